// Casts inside the kernels that compute the tensor: FP8 with one scale per 128 elements of a row, of a column, or both,
// columnwise codes also with one per 128 × 128 elements, in one pass over memory; or with the tensor's own amax, which
// a first pass finds. Bit for bit what staging the tensor in BF16 and the general cast give.
#pragma once

#include "engine/cuda/cast/cast.h"
#include "engine/cuda/cast/fused_target.h"

namespace quaver::cuda {

// How a target is scaled that is cast so.
enum class TileScales : std::uint8_t { none, blocks, tensor };  // none: it goes through the general cast

// For x, or what is computed from x: BF16 in whole vectors, both sizes multiples of 128; blockwise scales for E4M3
// only.
TileScales whole_tile_scales(const View& x, const CastTarget& target);

// The same for a kernel that computes a tensor from x. Full statistics are gathered from a staged tensor.
inline TileScales fused_tile_scales(const View& x, const CastTarget& target) {
  if (target.detail == Detail::full && target.slot.statistics != nullptr) return TileScales::none;
  return whole_tile_scales(x, target);
}

// Where a kernel may leave the amax of what it computes, as bits: in workspace, 0.
unsigned* new_amax(Gpu& gpu);

// `amax`: the tensor's, where a kernel has left it; null: a pass finds it, where it is needed.
void cast_whole_tiles(Gpu& gpu, const View& x, const CastTarget& target, const unsigned* amax = nullptr);

void cast_activation(Gpu& gpu, const Activation& op, const CastTarget& target);

// `requantized`: where the forward pass's result is cast once more, in blocks as `target` is; null: nowhere.
void cast_activation_backward(Gpu& gpu, const ActivationBackward& op, const CastTarget& target,
                              const CastTarget* requantized);

// The rows of a blockwise target as add_norm() casts them on its way.
FusedTarget row_blocks(const CastTarget& target);

// The norm of op.sum, whose rows have been measured.
void cast_norm(Gpu& gpu, const AddNorm& op, const CastTarget& target, const unsigned* amax = nullptr);

}  // namespace quaver::cuda
