// Recipes (quaver/recipe.h) under the settings of a config. Precision is data; no layer knows a recipe by name.
#pragma once

#include <string_view>

#include "precision/precision_config.h"
#include "quaver/recipe.h"

namespace quaver {

// Throws Error with the known names, and the nearest, when there is no such recipe.
Recipe make_recipe(std::string_view name, const PrecisionConfig& options);

// The recipe of layers kept in high precision (the head) under this one: itself if it is one of high precision, else
// bf16.
std::string_view high_precision_recipe_for(std::string_view name);

}  // namespace quaver
