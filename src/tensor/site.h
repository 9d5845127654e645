// A site: the place where a tensor is stored for a GEMM, such as "blocks.3.mlp.up/x". The layer that consumes the
// tensor owns the site; whoever produces it writes it there.
#pragma once

#include <cstdint>
#include <string>

#include "formats/quantize.h"

namespace quaver {

// x: a layer's input, w: its weight, dy: the gradient of its output.
enum class Role : std::uint8_t { x, w, dy };

// Rowwise and columnwise codes are read by different GEMMs:
//   forward y = x·wᵀ reads x.rows and w.rows; the input gradient dx = dy·w reads dy.rows and w.columns;
//   the weight gradient dw = dyᵀ·x reads dy.columns and x.columns.
struct SiteSpec {
  QuantSpec rows;
  QuantSpec columns;
  bool operator==(const SiteSpec&) const = default;
};

struct Site {
  std::string name;
  Role role = Role::x;
  SiteSpec spec;
  std::uint32_t stream = 0;  // of random numbers, from the name

  // s in q = cast(x · s) for policies delayed and fixed. 0: not known yet, the cast takes the tensor's own amax.
  float scale = 0;

  // What the casts of this step saw, until the scale book takes it.
  CastStatistics seen;
};

// A site whose scale follows its amax history, and what the history brings into the next scale.
struct DelayedScale {
  const Site* site = nullptr;
  float kept_amax = 0;     // the largest that the history keeps when a step's amax joins it
  float present_amax = 0;  // that of the history as it is, for a step that adds none
  bool has_history = false;
};

inline bool is_high_precision(const QuantSpec& spec) { return !is_low_precision(spec.format); }

}  // namespace quaver
