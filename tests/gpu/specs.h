// Every way in which any recipe stores a tensor, and matrices with what casts must survive in them.
#pragma once

#include <string>
#include <vector>

#include "gpu/pair.h"

#include "precision/recipe.h"

namespace quaver::test {

struct NamedSpec {
  std::string name;  // of the recipe, its options and the role
  SiteSpec spec;
};

// Each spec once, whichever recipes share it.
std::vector<NamedSpec> every_spec();
std::vector<NamedSpec> every_spec_of(Role role);  // with default options

// The 13 recipes with default options, those whose options change a GEMM, and fp8-block whose wgrad reads x in 128 ×
// 128 blocks, as examples/recipes/fp8-block-2d.toml has it.
struct NamedRecipe {
  std::string name;
  Recipe recipe;
};
Recipe block_2d_recipe(const PrecisionConfig& options = {});
Recipe four_over_six_recipe(const PrecisionConfig& options = {});
std::vector<NamedRecipe> every_recipe();

// plain: normal numbers. special: zeros of both signs, subnormals, infinities and NaN among them. huge: from the
// smallest to the largest float.
enum class Contents : std::uint8_t { plain, special, huge };
Matrix matrix_with(Contents contents, Size rows, Size cols, std::uint32_t stream);
std::string text_of(Contents contents);

}  // namespace quaver::test
