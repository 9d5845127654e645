#include "train/step_memory.h"

#include <algorithm>

namespace quaver {

void StepMemory::plan(Model& model, const Config& config, Engine& engine) {
  const auto sizing = make_sizing_engine(engine.device().hardware(), engine.high_precision());
  const ArenaPlan plan = plan_arena(model, config, *sizing);
  begin_generation();
  if (plan.bytes <= arena_.capacity()) return;
  memory_.reset();
  memory_ = engine.device().allocate(plan.bytes);
  arena_ = Arena(memory_.get(), plan.bytes);
  saved_ = plan.saved;
}

void StepMemory::note_scales(std::span<const Site* const> sites) {
  const auto known = std::count_if(sites.begin(), sites.end(), [](const Site* site) { return site->scale != 0; });
  if (known == known_scales_) return;
  known_scales_ = known;
  begin_generation();
}

}  // namespace quaver
