// The plan of a model: one row per site, saying how the tensor there is stored and why.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quaver/quant_spec.h"

namespace quaver {

// adapter: a factor of a low-rank adapter, in high precision whatever the patterns say; adapted: a layer that has one,
// which reads its x and dy.
enum class Adaptation : std::uint8_t { none, adapted, adapter };

// A linear layer of a model.
struct LayerShape {
  std::string name;  // "blocks.3.mlp.up"
  Size in = 0;
  Size out = 0;
  Size block = -1;              // number of the block it lies in, −1 outside the stack
  bool high_precision = false;  // the head: in high precision unless a pattern says otherwise
  Adaptation adaptation = Adaptation::none;
  Size pixels = 1;  // rows of its GEMMs for each row of the batch: the output pixels of a convolution
};

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

// The plan of these layers under settings of the section precision: "precision.recipe=nvfp4",
// "precision.layers.\"*.down\"=bf16". Throws Error where a setting is wrong or a pattern matches nothing.
Plan plan_of(const std::vector<LayerShape>& layers, const std::vector<std::string>& settings);

}  // namespace quaver
