// The model that a config describes. Nothing outside models/ names a family of models.
#pragma once

#include "models/transformer.h"

namespace quaver {

// Takes a resolved config. Without memory: cheap enough to be built for its layers alone.
std::unique_ptr<Transformer> make_model(const ModelConfig& config, const ScaleRules& rules = {});

}  // namespace quaver
