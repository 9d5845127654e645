// The arithmetic of scales: from an amax to the stored multiplier, and from the stored multiplier to the factor that
// the cast uses. Internal to this module.
//
// The cast never uses a scale that was not stored: its factor is the correctly rounded quotient of the stored values,
// so a tile can be cast from the stored scales alone and every engine gets the same factor.
#pragma once

#include "formats/cast_loops.h"

namespace quaver {

// The tensor's multiplier for s: 1 / (shrink · s).
float stored_tensor_scale(const QuantSpec& spec, float s);

// shrink · s from the tensor's multiplier; infinite becomes FLT_MAX.
float factor_from_stored(float tensor_scale);

// Stored block scales of `count` blocks from their amaxes alone (not e4m3_4over6). tensor_scale is read where the scale
// format is e4m3.
void block_scales_from_amax(const QuantSpec& spec, float tensor_scale, const float* amax, Size count, float* stored);

// Blocks side by side: `rows` rows of `cols` elements, `stride` apart; a block is `width` columns, the last maybe
// fewer.
struct BlockStrip {
  const float* x = nullptr;
  Size stride = 0;
  Size rows = 1;
  Size cols = 0;  // at most run_limit
  Size width = 0;
};

// Stored scales of these blocks, from their values.
void block_scales(const QuantSpec& spec, float tensor_scale, const BlockStrip& strip, float* stored);

// The factors of the cast for blocks with these stored scales; 0 for a block whose scale is 0.
void factors_from_blocks(const QuantSpec& spec, float tensor_scale, const float* stored, Size count, float* factors);

}  // namespace quaver
