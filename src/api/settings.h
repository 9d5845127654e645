// Settings of the section precision, as the public headers take them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "precision/precision_config.h"

namespace quaver {

// Throws Error where one is wrong or of another section. A recipe that is given comes first.
PrecisionConfig precision_of(std::string_view recipe, const std::vector<std::string>& settings);

}  // namespace quaver
