// Plans (quaver/plan.h) from the settings of a config: printed, stored with the run, and edited by patterns. A pattern
// that matches nothing is an error.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "precision/recipe.h"
#include "quaver/plan.h"

namespace quaver {

// Sites have one order everywhere (plan, scale book, samples, store): layer by layer as they register, x, w, dy of
// each.
inline constexpr std::array<Role, 3> roles{Role::x, Role::w, Role::dy};
constexpr std::size_t site_index(std::size_t layer, Role role) {
  return roles.size() * layer + static_cast<std::size_t>(role);
}
constexpr std::size_t layer_index(std::size_t site) { return site / roles.size(); }
std::string site_name(std::string_view layer, Role role);  // "blocks.3.mlp.up/x"

// Throws Error where precision.only_where_faster is asked for and a layer's speed is not known (train/faster_layers.h).
Plan make_plan(const PrecisionConfig& config, const std::vector<LayerShape>& layers);

// The layers that precision.only_where_faster decides about: those of which an operand is stored as the recipe says, by
// no pattern and no exception. None where the recipe is one of high precision.
std::vector<LayerShape> layers_in_recipe(const PrecisionConfig& config, const std::vector<LayerShape>& layers);

// The entry of precision.layer_speeds for a layer in the config's recipe.
std::string speed_key(std::string_view pattern, std::string_view recipe);  // "blocks.*.mlp.up in fp8-delayed"
std::optional<double> layer_speed(const PrecisionConfig& config, std::string_view layer);

// Both operands of a GEMM must be rotated, or neither. Where a pattern or a site moved to BF16 leaves one unrotated,
// the rotation of the other is dropped: the result is the same without it.
void agree_on_rotation(SiteSpec& x, SiteSpec& w, SiteSpec& dy);
void agree_on_rotation(Plan& plan);

// "*" any characters, "?" one; the whole name must match.
bool matches(std::string_view pattern, std::string_view name);
std::vector<std::string> patterns_in(std::string_view list);  // separated by commas, with spaces or without

std::string_view name_of(Role role);  // "x", "w", "dy"

// The plan as TOML: one table per site.
std::string to_toml(const Plan& plan);

// For the terminal: one line per group of sites with the same storage.
std::string summary(const Plan& plan);

// Share of the GEMMs' floating-point operations by the higher-precision format of their two operands: "e4m3" → 0.93 …
std::map<std::string, double> flops_by_format(const Plan& plan, const std::vector<LayerShape>& layers);

// Sum of the shares of formats of 8 bits and fewer.
double low_precision_share(const std::map<std::string, double>& shares);

}  // namespace quaver
