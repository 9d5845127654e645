// The plan: one row per site, saying how the tensor there is stored and why. It is printed, stored with the run, and
// edited by patterns in the config. A pattern that matches nothing is an error.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "precision/recipe.h"

namespace quaver {

// adapter: a factor of a low-rank adapter, in high precision whatever the patterns say; adapted: a layer that has one,
// which reads its x and dy.
enum class Adaptation : std::uint8_t { none, adapted, adapter };

// A linear layer as it registers itself (nn/registry.h).
struct LayerShape {
  std::string name;  // "blocks.3.mlp.up"
  Size in = 0;
  Size out = 0;
  Size block = -1;              // number of the block it lies in, −1 outside the stack
  bool high_precision = false;  // the head: in high precision unless a pattern says otherwise
  Adaptation adaptation = Adaptation::none;
};

// Sites have one order everywhere (plan, scale book, samples, store): layer by layer as they register, x, w, dy of
// each.
inline constexpr std::array<Role, 3> roles{Role::x, Role::w, Role::dy};
constexpr std::size_t site_index(std::size_t layer, Role role) {
  return roles.size() * layer + static_cast<std::size_t>(role);
}
constexpr std::size_t layer_index(std::size_t site) { return site / roles.size(); }
std::string site_name(std::string_view layer, Role role);  // "blocks.3.mlp.up/x"

struct PlanRow {
  std::string site;  // "blocks.3.mlp.up/x"
  std::string layer;
  Role role = Role::x;
  std::string recipe;
  std::string reason;
  SiteSpec spec;
};

struct Plan {
  std::vector<PlanRow> rows;

  const PlanRow& at(std::string_view site) const;  // throws Error
};

Plan make_plan(const PrecisionConfig& config, const std::vector<LayerShape>& layers);

// Both operands of a GEMM must be rotated, or neither. Where a pattern or a site moved to BF16 leaves one unrotated,
// the rotation of the other is dropped: the result is the same without it.
void agree_on_rotation(SiteSpec& x, SiteSpec& w, SiteSpec& dy);
void agree_on_rotation(Plan& plan);

// "*" any characters, "?" one; the whole name must match.
bool matches(std::string_view pattern, std::string_view name);

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
