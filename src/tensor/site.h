// A site: the place where a tensor is stored for a GEMM, such as "blocks.3.mlp.up/x". The layer that consumes the
// tensor owns the site; whoever produces it writes it there.
#pragma once

#include <cstdint>
#include <string>

#include "formats/quantize.h"

namespace quaver {

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
