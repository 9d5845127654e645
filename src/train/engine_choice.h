// Which engine a config trains on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "config/config.h"

namespace quaver {

// train.device, or for "auto" a GPU where one can be used; why one was not is told as a notice.
std::unique_ptr<Engine> make_engine(const Config& config, const std::function<void(const std::string&)>& notice);

// What a GPU stores high-precision matrices in under this recipe.
Format gpu_high_precision(const std::string& recipe);

}  // namespace quaver
