#include "models/factory.h"

#include "models/transformer.h"

namespace quaver {

std::unique_ptr<Model> make_model(const ModelConfig& config, const ScaleRules& rules) {
  return std::make_unique<Transformer>(config, rules);
}

}  // namespace quaver
