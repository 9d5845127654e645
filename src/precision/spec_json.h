// SiteSpec ↔ JSON, for the scale book alone: the only header that carries the JSON library.
#pragma once

#include <nlohmann/json.hpp>

#include "tensor/site.h"

namespace quaver {

nlohmann::json spec_to_json(const SiteSpec& spec);
SiteSpec spec_from_json(const nlohmann::json& value);  // throws Error or json::exception

}  // namespace quaver
