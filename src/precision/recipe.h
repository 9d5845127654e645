// Recipes: a table from role to how that role's tensors are stored for their GEMMs. Precision is data; no layer
// knows a recipe by name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "precision/precision_config.h"
#include "tensor/site.h"

namespace quaver {

struct Recipe {
  std::string name = {};
  SiteSpec x;
  SiteSpec w;
  SiteSpec dy;
  double wide_tail = 0;  // share of the last blocks kept in bf16

  const SiteSpec& of(Role role) const { return role == Role::x ? x : role == Role::w ? w : dy; }
};

struct RecipeInfo {
  std::string_view name;
  std::string_view summary;
};

std::span<const RecipeInfo> recipes();

// Throws Error with the known names, and the nearest, when there is no such recipe.
Recipe make_recipe(std::string_view name, const PrecisionConfig& options);

// The recipe of layers kept in high precision (the head) under this one: itself if it is one of high precision, else
// bf16.
std::string_view high_precision_recipe_for(std::string_view name);

}  // namespace quaver
