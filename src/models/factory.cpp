#include "models/factory.h"

namespace quaver {

std::unique_ptr<Transformer> make_model(const ModelConfig& config, const ScaleRules& rules) {
  return std::make_unique<Transformer>(config, rules);
}

}  // namespace quaver
