// What lies between a recipe of low precision and high precision, for layers that do not bear the recipe: a ladder of
// recipes in the order of what they cost. It moves the operands of a layer together, since finer scales and FP8 itself
// are multiplied as they are only where both operands of a GEMM have them. Operands that the layer's own recipe keeps
// in high precision stay there.
#pragma once

#include <set>
#include <string_view>
#include <vector>

#include "precision/plan.h"
#include "quaver/statistics.h"

namespace quaver {

// In this order. Each is for recipes that are coarser or smaller in range, and for no others:
//   fp4_blocks   FP4 in blocks of 16
//   tensor       FP8 with one scale per tensor, for FP4 and for FP8 without scales
//   range        x in E5M2, and dy in E4M3 where it was in E5M2, as tensor cores do not multiply E5M2 by E5M2
//   rows, blocks, mx   scales per row, per 1×128, per 1×32; dy in E4M3, as finer scales need less range
enum class RungKind : std::uint8_t { fp4_blocks, tensor, range, rows, blocks, mx };

std::string_view name_of(RungKind kind);

struct Rung {
  RungKind kind = RungKind::range;
  Plan plan;                     // of the whole model; other layers are as in the recipe's own plan
  std::set<std::size_t> layers;  // on this rung
};

struct Ladder {
  std::vector<Rung> rungs;  // those that any layer has
  RecipeTable recipes;      // that rungs name and that neither the program nor the options have
};

// `wide` has the layers whose x has_wide_range; `plan` is the recipe's own.
Ladder make_ladder(const Plan& plan, const std::vector<LayerShape>& layers, const PrecisionConfig& options,
                   const std::set<std::size_t>& wide);

// Whether a tensor's magnitudes lie too far apart for E4M3 at its best scale, and not for E5M2: by its histogram.
bool has_wide_range(const CastStatistics& seen);

}  // namespace quaver
