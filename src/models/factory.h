// The model that a config describes. Only models/, config and interop name families of models.
#pragma once

#include "models/model.h"
#include "models/model_config.h"

namespace quaver {

// Takes a resolved config. The model has no memory yet: it is cheap enough to be built for its layers alone.
std::unique_ptr<Model> make_model(const ModelConfig& config, const ScaleRules& rules = {});

}  // namespace quaver
