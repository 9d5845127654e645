// Which casts the CUDA engine fuses into the kernel that computes the tensor. Nothing of CUDA is included here: memory
// plans for GPUs that are not here read these rules too.
#pragma once

#include "engine/operations.h"

namespace quaver::cuda {

// One scale for the tensor that is known beforehand, and nothing else to do to an element than to round it.
inline bool is_plain_fp8(const QuantSpec& spec, const Site& site) {
  const bool known = spec.policy == ScalePolicy::none || (has_given_scale(spec) && site.scale != 0);
  return is_fp8(spec.format) && known && spec.block == block::tensor && spec.rounding == Rounding::nearest_even &&
         spec.rotation == Rotation::none && spec.shrink == 1.0F;
}

// Whether kernels store it as they store high precision: in that format, or rounded to TF32 where that is FP32.
inline bool is_stored_as_high(const QuantSpec& spec, Format high) {
  return spec.format == high || (high == Format::f32 && spec == QuantSpec{.format = Format::tf32});
}

// Whether the kernel that computes a result casts it too. Otherwise it is cast in whole tiles (cast/whole_tiles.h) or
// staged in high precision for a cast of its own; plans count the staging either way, which full statistics need.
inline bool can_fuse(const QuantizedTensor& out, const Casting& casting, Format high) {
  // Full statistics are gathered from a staged tensor, and what is requantized then is staged too: both must see the
  // same values.
  if (casting.detail == Detail::full) return false;
  const Site& site = out.site();
  if (!out.has_own_columns()) {
    const QuantSpec& spec = site.spec.rows;
    return is_stored_as_high(spec, high) || (high == Format::bf16 && is_plain_fp8(spec, site));
  }
  return high == Format::bf16 && columns_share_rows(site.spec.rows, site.spec.columns) &&
         is_plain_fp8(site.spec.columns, site);
}

// Whether dlogits are stored otherwise than they are computed.
inline bool logits_are_cast(const SiteSpec& spec, Format high) {
  return spec.rows.format != high || !columns_share_rows(spec.rows, spec.columns);
}

}  // namespace quaver::cuda
