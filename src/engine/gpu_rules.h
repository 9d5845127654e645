// What an NVIDIA GPU does with operands, decided from formats alone: one set of rules that the CUDA engine follows and
// that planning its memory without a GPU reads. Nothing of CUDA is included here.
#pragma once

#include <algorithm>
#include <string>

#include "engine/engine.h"

namespace quaver::cuda {

// How the library is told about an FP8 operand's scales; none where it cannot be.
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

// Products of blocks are promoted to FP32 to be scaled, whatever is asked.
inline bool sums_may_be_short(Scaling scaling) { return scaling == Scaling::tensor || scaling == Scaling::row; }

// Why tensor cores cannot take operands stored so, whatever their shapes; empty: they can, if the library has a kernel.
inline std::string why_not_native(int architecture, const std::string& gpu, const QuantSpec& a, const QuantSpec& b) {
  if (!is_fp8(a.format) || !is_fp8(b.format)) return "only FP8 is multiplied as it is, and only by FP8";
  if (!has_fp8(architecture)) return gpu + " has no FP8 arithmetic";
  if (a.format == Format::e5m2 && b.format == Format::e5m2) return "cuBLASLt multiplies e5m2 by e4m3 only";
  if (!scalings_meet(scaling_of(a), scaling_of(b))) {
    return "cuBLASLt does not multiply " + describe(a) + " by " + describe(b);
  }
  return "";
}

// Tensor cores take FP8 as it lies where every extent is a multiple of this.
inline constexpr Size fp8_multiple = 16;

inline bool extents_fit_fp8(const Matmul& op) {
  return op.a.extent() % fp8_multiple == 0 && op.b.extent() % fp8_multiple == 0 && op.a.reduction() % fp8_multiple == 0;
}

// Whether cuBLASLt 13 has kernels for FP8 with such scales: rows and blocks on Hopper only. For GPUs that are not here;
// one that is here is asked.
inline bool library_has_scaling(int architecture, Scaling scaling) {
  return scaling == Scaling::tensor || architecture == 90;
}

// Codes times block scales have at most 6 significant bits, unless the scales have a whole float's.
inline bool exact_in_bf16(const QuantSpec& spec) {
  if (!is_low_precision(spec.format)) return spec.format == Format::bf16;
  return spec.block == block::tensor || spec.scale != ScaleFormat::f32;
}

// What operands that are not multiplied as they lie are decoded to.
inline Format decoded_format(const QuantSpec& a, const QuantSpec& b) {
  return exact_in_bf16(a) && exact_in_bf16(b) ? Format::bf16 : Format::f32;
}

// FP8 products are summed in tensor cores, short and fast. Weight gradients, sums over all tokens of a micro-batch, and
// the head's input gradient, one over the vocabulary, would lose most: those are promoted to FP32.
inline Accumulators gpu_accumulators() {
  return {.forward = Accumulator::hopper, .input_gradient = Accumulator::hopper};
}

inline bool waits_for_scale(const QuantSpec& spec) {
  return spec.policy == ScalePolicy::delayed || spec.policy == ScalePolicy::fixed;
}

// One scale for the tensor that is known beforehand, and nothing else to do to an element than to round it.
inline bool is_plain_fp8(const QuantSpec& spec, const Site& site) {
  const bool known = spec.policy == ScalePolicy::none || (waits_for_scale(spec) && site.scale != 0);
  return is_fp8(spec.format) && known && spec.block == block::tensor && spec.rounding == Rounding::nearest_even &&
         spec.rotation == Rotation::none && spec.shrink == 1.0F;
}

// Whether the kernel that makes a result casts it too, or writes it wide for a cast of its own.
inline bool can_fuse(const QuantizedTensor& out, const Casting& casting, Format wide) {
  // What is looked at closely is staged, and so is what is cast once more for it: both must see the same values.
  if (casting.detail == Detail::full) return false;
  const Site& site = out.site();
  if (!out.has_own_columns()) {
    const QuantSpec& spec = site.spec.rows;
    return spec.format == wide || (wide == Format::bf16 && is_plain_fp8(spec, site));
  }
  return wide == Format::bf16 && columns_share_rows(site.spec.rows, site.spec.columns) &&
         is_plain_fp8(site.spec.columns, site);
}

// Bytes of attention scores that a GPU holds at once in the backward pass.
inline constexpr Size scores_limit = Size{1} << 30;

// Whether dlogits are stored otherwise than they are computed.
inline bool logits_are_cast(const SiteSpec& spec, Format wide) {
  return spec.rows.format != wide || !columns_share_rows(spec.rows, spec.columns);
}

// Rows of logits that are computed at once, so that they and what dlogits are cast into take no more than `limit`
// bytes: whole blocks of scales.
inline Size logits_chunk(Size tokens, Size vocab, Format wide, const Site* gradient, Size limit) {
  Size bits = info(wide).storage_bits;
  if (gradient != nullptr && logits_are_cast(gradient->spec, wide)) {
    bits += info(gradient->spec.rows.format).storage_bits + info(gradient->spec.columns.format).storage_bits;
  }
  return std::clamp<Size>(limit / (vocab * bits / 8) / 128 * 128, std::min<Size>(tokens, 128), tokens);
}

// Memory for parts that begin at multiples of 256 bytes.
inline Size part_bytes(Size bytes) { return (bytes + 255) / 256 * 256; }

// What the codes and scales of dlogits take, both sides.
inline Size logits_codes_bytes(Site& site, Size rows, Size vocab, Sharing sharing) {
  static std::byte nowhere{};
  Size total = 0;
  const QuantizedTensor laid_out(site, rows, vocab, Copies::both, sharing, [&total](std::size_t bytes) {
    total += part_bytes(static_cast<Size>(bytes));
    return &nowhere;
  });
  return total;
}

// Columns [first, first + count) of codes with their scales; first is a multiple of the blocks' columns.
inline CodeMatrix columns_shape(const CodeMatrix& matrix, Size count) {
  CodeMatrix part = matrix;
  part.cols = count;
  return part;
}
inline bool scales_are_cut(const CodeMatrix& matrix) { return matrix.has_block_scales() && matrix.spec.block.cols > 0; }
inline Size columns_bytes(const CodeMatrix& part) {
  const Size scales = scales_are_cut(part) ? part.scale_rows() * part.scale_cols() * 4 : 0;
  return part_bytes(part.code_bytes()) + scales;
}

// Bytes of the scores of one sequence, and how many sequences a backward pass of attention takes at once.
inline Size scores_of_sequence(const HeadLayout& layout) {
  const Size padded = (layout.sequence + 63) / 64 * 64;
  return layout.heads * padded * padded * 2;
}
inline Size attention_chunk(const HeadLayout& layout) {
  const Size most = std::clamp<Size>(scores_limit / scores_of_sequence(layout), 1, layout.batch);
  const Size parts = (layout.batch + most - 1) / most;
  return (layout.batch + parts - 1) / parts;
}

// Hopper's own backward pass of attention. A block of threads has a head to itself, so there must be as many as keep
// more than half of the GPU busy, or cuDNN is faster; and it is as fast for heads of 128.
inline constexpr Size hopper_multiprocessors = 132;  // 114 on PCIe cards
inline bool hopper_attention_takes(int architecture, const HeadLayout& layout) {
  return architecture == 90 && (layout.head_size == 64 || layout.head_size == 128);
}
inline bool hopper_attention_pays(const HeadLayout& layout) {
  return layout.head_size == 64 && 2 * layout.batch * layout.heads >= hopper_multiprocessors;
}

// Bytes of what it keeps: two figures of each query, sums for the queries that a block is at, and, where heads share
// keys, their gradients for each head by itself.
struct HopperAttentionMemory {
  static constexpr Size key_rows = 128;  // of a tile
  static constexpr Size query_rows(Size head_size) { return Size{128} * 64 / head_size; }
  static Size query_tiles(const HeadLayout& layout) {
    const Size rows = query_rows(layout.head_size);
    return (layout.sequence + rows - 1) / rows;
  }
  static Size blocks(const HeadLayout& layout, Size multiprocessors) {
    return std::min(layout.batch * layout.heads, multiprocessors);
  }

  HopperAttentionMemory(const HeadLayout& layout, Size multiprocessors)
      : figures(layout.batch * layout.heads * query_tiles(layout) * query_rows(layout.head_size) * 2 * 4),
        partial(blocks(layout, multiprocessors) * query_tiles(layout) * query_rows(layout.head_size) *
                layout.head_size * 4),
        groups(layout.heads == layout.kv_heads ? 0 : layout.tokens() * layout.heads * layout.head_size * 2 * 2) {}
  Size total() const { return figures + partial + groups; }

  Size figures;
  Size partial;
  Size groups;
};

}  // namespace quaver::cuda
