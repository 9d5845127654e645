// Recipes: a table from role to how that role's tensors are stored for their GEMMs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quaver/quant_spec.h"

namespace quaver {

struct Recipe {
  std::string name = {};
  SiteSpec x = {};
  SiteSpec w = {};
  SiteSpec dy = {};
  double wide_start = 0;     // share of the first blocks kept in bf16
  double wide_tail = 0;      // the same of the last blocks
  std::string summary = {};  // one line

  bool operator==(const Recipe&) const = default;
  const SiteSpec& of(Role role) const { return role == Role::x ? x : role == Role::w ? w : dy; }
};

struct RecipeInfo {
  std::string_view name;
  std::string_view summary;
};

std::span<const RecipeInfo> recipes();  // those that are built in

// A recipe under its defaults, or with settings of the section precision, such as "precision.margin=1". They may define
// it, as a table in a config does: "recipes.mine={ x = \"e4m3 row current\", w = …, dy = … }". Throws Error with the
// known names, and the nearest, when there is no such recipe or setting.
Recipe find_recipe(std::string_view name, const std::vector<std::string>& settings = {});

// One line per role: "x   rowwise e4m3 tensor delayed, columnwise e4m3 tensor delayed".
std::string describe(const Recipe& recipe);

}  // namespace quaver
