// The vectorized loops under every array cast: one run of contiguous elements at a time. Internal to this module;
// quantize.h is the interface.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/quantize.h"

namespace quaver {

// The longest run of one call: its scratch stays in the first-level cache. A multiple of every block size.
inline constexpr Size run_limit = 1024;

// What elements are multiplied by: one factor for the run, or where `each` is not null one per element.
struct Factors {
  float all = 1;
  const float* each = nullptr;
};

struct CastRun {
  const float* x = nullptr;
  Size count = 0;  // at most run_limit
  Factors scale;
  Factors dequantize;                    // read with Detail::full only
  const std::uint32_t* words = nullptr;  // one random word per element rounds stochastically; null rounds to nearest
  std::byte* out = nullptr;
};

// Codes of x · scale. A finite x for which x · scale overflows saturates like any other. Counts what it sees into
// `stats`.
void cast_run(Format format, const CastRun& run, Detail detail, CastStatistics& stats);

// decode(code) · factor. `count` may be any length, but at most run_limit with a factor per element.
void decode_run(Format format, const std::byte* codes, Size count, Factors factor, float* out);

// out[b] = max(out[b], |finite elements of block b|) for consecutive blocks of `block` elements, the last maybe
// shorter.
void block_amax(const float* x, Size count, Size block, float* out);

// Sums, extremes and the histogram of a run for Detail::full; error2 is left to the cast.
void gather_moments(const float* x, const float* errors, Size count, CastStatistics& stats);

}  // namespace quaver
