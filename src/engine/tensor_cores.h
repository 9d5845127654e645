// Which operands a GPU can have, and which its tensor cores multiply as they are stored, decided from formats alone.
// The CUDA engine follows these rules, memory plans for GPUs that are not here read them, and the CPU engine needs them
// to accumulate as Hopper does.
#pragma once

#include <string>

#include "engine/operations.h"
#include "quaver/error.h"

namespace quaver {

// Formats that the CUDA engine casts to; of the others the CPU engine alone has casts.
inline bool is_cast_on_gpu(Format format) { return format <= Format::e2m1; }

inline void require_cast_on_gpu(Format format) {
  if (is_cast_on_gpu(format)) return;
  throw Error("the CUDA engine has no casts to " + std::string(info(format).name) + ", which the CPU engine emulates",
              "set train.device = \"cpu\", or use e4m3, e5m2 or e2m1");
}

// The granularities of FP8 scales that FP8 tensor cores support; none: any other.
enum class Scaling : std::uint8_t { none, tensor, row, vector128, block128 };

inline bool has_fp8(int architecture) { return architecture >= 89; }

inline Scaling scaling_of(const QuantSpec& spec) {
  if (spec.block == block::tensor) return Scaling::tensor;
  if (spec.block == block::row) return Scaling::row;
  if (spec.block == block::b1x128) return Scaling::vector128;
  if (spec.block == block::b128x128) return Scaling::block128;
  return Scaling::none;
}

inline bool scalings_meet(Scaling a, Scaling b) {
  if (a == Scaling::tensor || a == Scaling::row) return a == b;
  const bool both =
      (a == Scaling::vector128 || a == Scaling::block128) && (b == Scaling::vector128 || b == Scaling::block128);
  return both && !(a == Scaling::block128 && b == Scaling::block128);
}

// Partial sums of blocks are promoted to FP32 to be scaled, whatever is asked.
inline bool allows_fast_accumulation(Scaling scaling) { return scaling == Scaling::tensor || scaling == Scaling::row; }

// Why tensor cores do not support operands stored so, whatever their shapes; empty: they do, if cuBLASLt has a kernel.
inline std::string why_not_native(int architecture, const std::string& gpu, const QuantSpec& a, const QuantSpec& b) {
  if (!is_fp8(a.format) || !is_fp8(b.format)) return "only FP8 is multiplied as it is, and only by FP8";
  if (!has_fp8(architecture)) return gpu + " has no FP8 arithmetic";
  if (a.format == Format::e5m2 && b.format == Format::e5m2) return "cuBLASLt multiplies e5m2 by e4m3 only";
  if (!scalings_meet(scaling_of(a), scaling_of(b))) {
    return "cuBLASLt does not multiply " + describe(a) + " by " + describe(b);
  }
  return "";
}

// Whether cuBLASLt 13 has kernels for FP8 with such scales: rows and blocks on Hopper only. For GPUs that are not here;
// one that is here is asked.
inline bool library_has_scaling(int architecture, Scaling scaling) {
  return scaling == Scaling::tensor || architecture == 90;
}

// A code times its block scale has at most 6 significant bits, unless the scale is FP32.
inline bool exact_in_bf16(const QuantSpec& spec) {
  if (!is_low_precision(spec.format)) return spec.format == Format::bf16;
  return spec.block == block::tensor || spec.scale != ScaleFormat::f32;
}

// What operands are decoded to where the GEMM is emulated.
inline Format decoded_format(const QuantSpec& a, const QuantSpec& b) {
  return exact_in_bf16(a) && exact_in_bf16(b) ? Format::bf16 : Format::f32;
}

// FP8 GEMMs use fast accumulation. wgrad, a sum over all tokens of a micro-batch, and the head's dgrad, one over the
// vocabulary, would lose most precision: they use split accumulation, promoted to FP32.
inline Accumulators gpu_accumulators() { return {.fprop = Accumulator::hopper, .dgrad = Accumulator::hopper}; }

}  // namespace quaver
