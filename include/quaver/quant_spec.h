// How a tensor is quantized, and how the tensors of a linear layer are: plain data, checked before it is used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "quaver/format.h"

namespace quaver {

using Size = std::int64_t;

// The rectangle that shares a scale. 0 means the whole extent: {0, 0} is one scale per tensor, {1, 0} one per row.
struct Block {
  int rows = 0;
  int cols = 0;
  bool operator==(const Block&) const = default;
};

namespace block {
inline constexpr Block tensor{0, 0}, row{1, 0}, b1x128{1, 128}, b128x128{128, 128}, b1x32{1, 32}, b1x16{1, 16},
    b16x16{16, 16};
}

// The format of block scales. e4m3 is relative to an f32 scale of the whole tensor (NVFP4): a block's largest value
// becomes 6, e2m1's largest; with e4m3_4over6 it becomes 6 or 4, whichever rounds the block with the smaller error.
enum class ScaleFormat : std::uint8_t { f32, f32_power_of_two, e8m0, e8m0_floor, e4m3, e4m3_4over6 };

constexpr bool is_e4m3(ScaleFormat format) { return format == ScaleFormat::e4m3 || format == ScaleFormat::e4m3_4over6; }

// Where the scale of a whole tensor comes from. Block scales other than `tensor` are always current.
enum class ScalePolicy : std::uint8_t { none, current, delayed, fixed };

// What a delayed scale is computed from: the largest amax of the history, or the newest.
enum class HistoryRule : std::uint8_t { max, most_recent };

// Which of a tensor's two stored copies: rowwise, of x as it is in memory, or columnwise, of its transpose.
enum class Side : std::uint8_t { rows, columns };

enum class Rotation : std::uint8_t { none, hadamard };

// How a GEMM accumulates. On a CPU all but fp32 are slow models of hardware with fewer bits. hopper: fast accumulation,
// as Hopper's tensor cores sum FP8 products, which keeps 14 bits; hopper_split: split accumulation, the same with
// partial sums promoted to fp32 every 128 products.
enum class Accumulator : std::uint8_t { fp32, hopper, hopper_split, fp16, fp8 };

struct QuantSpec {
  Format format = Format::f32;
  Block block = block::tensor;
  ScaleFormat scale = ScaleFormat::f32;
  ScalePolicy policy = ScalePolicy::none;
  Rounding rounding = Rounding::nearest_even;
  Rotation rotation = Rotation::none;  // random signs, then Hadamard over groups of 16 along the columns
  float shrink = 1.0F;                 // the value cast is shrink · x; the tensor's dequantization factor undoes it
  int margin = 0;                      // scale leaves 2^margin of headroom

  bool operator==(const QuantSpec&) const = default;
};

// Whether the scale is given to the cast (delayed and static scaling) and not computed from the tensor.
constexpr bool has_given_scale(const QuantSpec& spec) {
  return spec.policy == ScalePolicy::delayed || spec.policy == ScalePolicy::fixed;
}

// The spec of one cast: a given scale that is not known yet (0) makes the cast a current one.
constexpr QuantSpec resolved(QuantSpec spec, float scale) {
  if (has_given_scale(spec) && scale == 0) spec.policy = ScalePolicy::current;
  return spec;
}

// Throws Error when the combination has no meaning (e4m3 scales with a format other than e2m1, rotation of a
// high-precision format, a policy other than current for blocks …). `where` names the site in the message.
void check(const QuantSpec& spec, const std::string& where);

std::string name_of(const Block& block);  // "tensor", "row", "1x128"
std::string name_of(ScalePolicy policy);  // "delayed"; none is "unscaled"

// "e4m3 tensor delayed", "e2m1 1x16/e4m3 current stochastic hadamard": for plans, reports and recipes in files.
//   FORMAT [BLOCK[/SCALE] POLICY] [stochastic] [hadamard] [shrink NUMBER] [margin INTEGER]
// Formats of 8 bits and fewer have a block and a policy, others have neither.
std::string describe(const QuantSpec& spec);

// The spec whose description it is; what follows the policy may come in any order. Throws Error where the text is none,
// and where check refuses what it says.
QuantSpec parse_quant_spec(std::string_view text);

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

// Throws Error where a side has no meaning, or where the two cannot share the scale that delayed and static scaling
// keep for the site.
void check(const SiteSpec& spec, const std::string& where);

}  // namespace quaver
