// [recipes.NAME]: recipes that a config defines itself, in the words that plans print.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "precision/recipe.h"

namespace quaver {

// The keys of such a table.
const std::vector<std::string>& recipe_keys();

// Throws Error where a recipe cannot have that name: one that is built in, or one that is no word of files and flags.
void check_recipe_name(std::string_view name, const std::string& where);

// The recipe as a table of a config file: "[recipes.mine]\nx = …". Read back, it is the same recipe.
std::string recipe_toml(const Recipe& recipe);

// The same as a value, on one line: { x = …, w = …, dy = … }.
std::string inline_recipe(const Recipe& recipe);

}  // namespace quaver
