#include "train/training_context.h"

#include "train/resolved_config.h"

namespace quaver {

Step TrainingContext::make_step(Pass pass) const {
  Step made{engine, memory.arena(), config.train.batch, config.train.context, pass};
  made.memory = config.train.memory;
  made.documents = documents_of(config.data);
  made.casting.seed = config.train.seed;
  made.casting.observe = pass != Pass::evaluate;
  made.accumulators = accumulators_for(config.precision.accumulator, engine);
  made.z_loss = pass == Pass::train ? static_cast<float>(config.train.z_loss) : 0.0F;
  made.generation = memory.generation();
  if (model.parameters().place().ranks > 1) made.sections = &sections;
  return made;
}

}  // namespace quaver
