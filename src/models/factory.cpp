#include "models/factory.h"

#include "models/convnet.h"
#include "models/mlp.h"
#include "models/transformer.h"

namespace quaver {

std::unique_ptr<Model> make_model(const ModelConfig& config, const ScaleRules& rules) {
  if (config.family == Family::mlp) return std::make_unique<Mlp>(config, rules);
  if (config.family == Family::convnet) return std::make_unique<ConvNet>(config, rules);
  return std::make_unique<Transformer>(config, rules);
}

}  // namespace quaver
