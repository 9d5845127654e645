#include "gpu/specs.h"

#include <array>
#include <bit>
#include <limits>
#include <utility>

namespace quaver::test {

namespace {

std::vector<std::pair<std::string, PrecisionConfig>> option_sets() {
  std::vector<std::pair<std::string, PrecisionConfig>> sets(1);
  const auto add = [&](const char* name, const auto& change) {
    PrecisionConfig options;
    change(options);
    sets.emplace_back(name, options);
  };
  add(" margin", [](PrecisionConfig& options) { options.margin = 2; });
  add(" power-of-two", [](PrecisionConfig& options) { options.power_of_two_scales = true; });
  add(" mx-floor", [](PrecisionConfig& options) { options.mx_floor = true; });
  add(" bf16-wgrad", [](PrecisionConfig& options) { options.wide_weight_gradient = true; });
  add(" e4m3-gradients", [](PrecisionConfig& options) { options.gradient_format = GradientFormat::e4m3; });
  return sets;
}

constexpr std::array<std::pair<Role, const char*>, 3> roles{{{Role::x, "/x"}, {Role::w, "/w"}, {Role::dy, "/dy"}}};

void add_new(std::vector<NamedSpec>& all, NamedSpec candidate) {
  for (const NamedSpec& known : all) {
    if (known.spec == candidate.spec) return;
  }
  all.push_back(std::move(candidate));
}

}  // namespace

Recipe block_2d_recipe(const PrecisionConfig& options) {
  Recipe recipe = make_recipe("fp8-block", options);
  recipe.x.columns.block = block::b128x128;
  return recipe;
}

Recipe four_over_six_recipe(const PrecisionConfig& options) {
  Recipe recipe = make_recipe("nvfp4", options);
  for (SiteSpec* site : {&recipe.x, &recipe.w, &recipe.dy}) {
    site->rows.scale = site->columns.scale = ScaleFormat::e4m3_4over6;
  }
  return recipe;
}

std::vector<NamedSpec> every_spec() {
  std::vector<NamedSpec> all;
  for (const auto& [suffix, options] : option_sets()) {
    for (const RecipeInfo& known : recipes()) {
      const Recipe recipe = make_recipe(known.name, options);
      for (const auto& [role, text] : roles) add_new(all, {std::string(known.name) + suffix + text, recipe.of(role)});
    }
    add_new(all, {"fp8-block-2d" + suffix + "/x", block_2d_recipe(options).x});
    const Recipe four_over_six = four_over_six_recipe(options);
    for (const auto& [role, text] : roles) {
      add_new(all, {"nvfp4-4over6" + suffix + text, four_over_six.of(role)});
    }
  }
  return all;
}

std::vector<NamedSpec> every_spec_of(Role role) {
  std::vector<NamedSpec> all;
  for (const RecipeInfo& known : recipes()) {
    add_new(all, {std::string(known.name), make_recipe(known.name, {}).of(role)});
  }
  return all;
}

std::vector<NamedRecipe> every_recipe() {
  std::vector<NamedRecipe> all;
  for (const RecipeInfo& known : recipes()) all.push_back({std::string(known.name), make_recipe(known.name, {})});
  PrecisionConfig bf16_wgrad;
  bf16_wgrad.wide_weight_gradient = true;
  all.push_back({"fp8-row bf16-wgrad", make_recipe("fp8-row", bf16_wgrad)});
  PrecisionConfig e4m3;
  e4m3.gradient_format = GradientFormat::e4m3;
  all.push_back({"fp8-delayed e4m3-gradients", make_recipe("fp8-delayed", e4m3)});
  all.push_back({"fp8-block-2d", block_2d_recipe()});
  all.push_back({"nvfp4-4over6", four_over_six_recipe()});
  return all;
}

Matrix matrix_with(Contents contents, Size rows, Size cols, std::uint32_t stream) {
  Matrix matrix = normal_matrix(rows, cols, stream);
  if (contents == Contents::plain) return matrix;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr std::array<float, 12> specials{0.0F, -0.0F, 1e-40F, -3e-39F, infinity, -infinity,
                                           nan,  -nan,  1e-12F, -1e-8F,  448.0F,   -57344.0F};
  for (std::size_t i = 0; i < matrix.values.size(); ++i) {
    const std::uint32_t word = random_word({7, 0, stream}, i);
    if (contents == Contents::special) {
      if (word % 16 == 0) matrix.values[i] = specials[(word >> 8) % specials.size()];
    } else {
      matrix.values[i] = std::ldexp(matrix.values[i], static_cast<int>(word % 254) - 127);
      if (!std::isfinite(matrix.values[i])) matrix.values[i] = std::numeric_limits<float>::max();
    }
  }
  return matrix;
}

std::string text_of(Contents contents) {
  switch (contents) {
    case Contents::plain:
      return "plain";
    case Contents::special:
      return "special";
    case Contents::huge:
      break;
  }
  return "huge";
}

}  // namespace quaver::test
