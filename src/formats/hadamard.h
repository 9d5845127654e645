// The signs of a rotation, drawn once for many rows. Internal to this module; quantize.h has rotate_row.
#pragma once

#include <array>
#include <cstdint>

#include "formats/quant_spec.h"
#include "formats/random.h"

namespace quaver {

inline constexpr int hadamard_group = 16;

using RotationSigns = std::array<std::uint32_t, hadamard_group>;  // sign bits to flip

// Both operands of a GEMM must be rotated alike, and weights are cast in another step than activations,
// so the signs depend on the key's seed alone.
RotationSigns rotation_signs(const RandomKey& random);

// rotate_row with signs at hand.
void rotate_groups(float* row, Size count, const RotationSigns& signs);

}  // namespace quaver
