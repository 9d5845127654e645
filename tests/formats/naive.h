// A plain reference for matrix casts, element by element with the scalar codec, and storage to cast into.
#pragma once

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "formats/quantize.h"

namespace quaver {

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();

namespace naive {

// A CodeMatrix with memory of its own.
struct Storage {
  Storage(const QuantSpec& spec, Size rows, Size cols) {
    matrix.spec = spec;
    matrix.rows = rows;
    matrix.cols = cols;
    codes.assign(static_cast<std::size_t>(matrix.code_bytes()), std::byte{0x5A});
    if (matrix.has_block_scales())
      scales.assign(static_cast<std::size_t>(matrix.scale_rows() * matrix.scale_cols()), -1.0F);
    matrix.codes = codes.data();
    matrix.block_scales = scales.empty() ? nullptr : scales.data();
    matrix.tensor_scale = &tensor_scale;
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::uint32_t code(Size r, Size c) const {
    const int bits = info(matrix.spec.format).storage_bits;
    const std::byte* row = codes.data() + r * matrix.row_bytes();
    if (bits == 4) return (static_cast<std::uint32_t>(row[c / 2]) >> (c % 2 * 4)) & 0xFU;
    std::uint32_t result = 0;
    for (int b = 0; b < bits / 8; ++b) result |= static_cast<std::uint32_t>(row[c * bits / 8 + b]) << (8 * b);
    return result;
  }

  float block_scale(Size r, Size c) const {
    if (scales.empty()) return 1.0F;
    const Block& b = matrix.spec.block;
    return scales[static_cast<std::size_t>((r / b.rows) * matrix.scale_cols() + (b.cols == 0 ? 0 : c / b.cols))];
  }

  std::vector<std::byte> codes;
  std::vector<float> scales;
  float tensor_scale = -1;
  CodeMatrix matrix;
};

inline std::vector<float> transpose(const std::vector<float>& x, Size rows, Size cols) {
  std::vector<float> y(x.size());
  for (Size r = 0; r < rows; ++r) {
    for (Size c = 0; c < cols; ++c) y[c * rows + r] = x[r * cols + c];
  }
  return y;
}

// What the definitions say about a matrix in the layout of its codes (already transposed for the columns side).
struct Reference {
  std::vector<std::uint32_t> codes;
  std::vector<float> block_scales;  // one per element
  float tensor_scale = 1;
  CastStatistics stats;
};

inline float finite_amax(const std::vector<float>& x, Size cols, Size r0, Size r1, Size c0, Size c1) {
  float result = 0;
  for (Size r = r0; r < r1; ++r) {
    for (Size c = c0; c < c1; ++c) {
      const float a = std::abs(x[r * cols + c]);
      if (std::isfinite(a)) result = std::max(result, a);
    }
  }
  return result;
}

inline float plain_scale(const QuantSpec& spec, float amax) {
  if (amax == 0) return 1;
  float s = info(spec.format).max * std::pow(2.0F, static_cast<float>(-spec.margin)) / amax;
  if (std::isinf(s)) s = FLT_MAX;
  if (spec.scale == ScaleFormat::f32_power_of_two) s = std::ldexp(1.0F, std::ilogb(s));
  return s;
}

// An NVFP4 block's multiplier that makes its largest value this.
inline float nvfp4_scale(float amax, float tensor_s, float largest) {
  return decode(Format::e4m3, encode(Format::e4m3, amax * tensor_s / largest));
}

// The multiplier of a block, and what casting x with it would lose, squared.
struct Candidate {
  float stored = 0;
  float factor = 0;
  std::int64_t error = 0;  // in 2^-12 of the multiplier's square, each element's rounded down

  Candidate(float stored_scale, float tensor_factor)
      : stored(stored_scale), factor(stored == 0 ? 0 : std::min(tensor_factor / stored, FLT_MAX)) {}

  void add(float x, Rounding rounding) {
    if (!std::isfinite(x)) return;
    const float scaled = std::abs(x) * factor;
    float lost = scaled - decode(Format::e2m1, encode(Format::e2m1, scaled));
    float other = lost;
    if (rounding == Rounding::stochastic && scaled < 6) {  // it goes down by the first or up by the second
      const std::array<float, 8> values{0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
      const float* above = std::upper_bound(values.begin(), values.end(), scaled);
      lost = scaled - *(above - 1);
      other = lost == 0 ? 0 : *above - scaled;
    }
    error += static_cast<std::int64_t>(std::min(lost * other, 64.0F) * 4096.0F);
  }

  float total() const { return static_cast<float>(error) * (stored * stored); }
};

// The dequantize multiplier of a block.
inline float stored_scale(const QuantSpec& spec, float amax, float tensor_s) {
  if (spec.scale == ScaleFormat::e4m3) return nvfp4_scale(amax, tensor_s, 6.0F);
  if (amax == 0) return 1;
  const double max = info(spec.format).max;
  if (spec.scale == ScaleFormat::e8m0) {
    int e = -127;
    while (std::ldexp(max, e) < static_cast<double>(amax)) ++e;
    return std::ldexp(1.0F, e);
  }
  if (spec.scale == ScaleFormat::e8m0_floor) {
    const int e = static_cast<int>(std::floor(std::log2(static_cast<double>(amax)))) - std::ilogb(max);
    return std::ldexp(1.0F, std::max(e, -127));
  }
  return 1.0F / plain_scale(spec, amax);
}

inline void count(const QuantSpec& spec, float x, float factor, std::uint32_t code, float multiplier,
                  CastStatistics& stats) {
  ++stats.count;
  if (!std::isfinite(x)) {
    ++stats.nonfinite;
    return;
  }
  const double d = x;
  stats.amax = std::max(stats.amax, std::abs(x));
  float limit = info(spec.format).max;
  for (int ulp = 0; ulp < 4; ++ulp) limit = std::nextafter(limit, std::numeric_limits<float>::infinity());
  if (std::abs(x * factor) > limit) ++stats.saturated;
  if (x != 0 && decode(spec.format, code) == 0) ++stats.underflowed;
  const double error = d - static_cast<double>(decode(spec.format, code)) * static_cast<double>(multiplier);
  stats.sum += d;
  stats.sum2 += d * d;
  stats.sum4 += d * d * d * d;
  stats.error2 += error * error;
  if (x == 0) return;
  stats.min_nonzero = std::min(stats.min_nonzero, std::abs(x));
  ++stats.binades[static_cast<std::size_t>(std::clamp(std::ilogb(x), -40, 23) + 40)];
}

// `key` is the one of the side.
inline Reference quantize(std::vector<float> x, Size rows, Size cols, const QuantSpec& spec, float given_scale,
                          const RandomKey& key) {
  Reference ref;
  if (spec.rotation == Rotation::hadamard) {
    for (Size r = 0; r < rows; ++r) rotate_row(x.data() + r * cols, cols, key);
  }
  float s = 1;
  const float amax = finite_amax(x, cols, 0, rows, 0, cols);
  const bool tensor = spec.block == block::tensor;
  if (spec.scale == ScaleFormat::e4m3) s = amax == 0 ? 1.0F : std::min(448.0F * 6.0F / amax, FLT_MAX);
  if (spec.scale == ScaleFormat::e4m3_4over6) s = amax == 0 ? 1.0F : std::min(256.0F * 6.0F / amax, FLT_MAX);
  if (tensor && spec.policy == ScalePolicy::current) s = plain_scale(spec, amax);
  if (spec.policy == ScalePolicy::delayed || spec.policy == ScalePolicy::fixed) s = given_scale;
  ref.tensor_scale = 1.0F / (spec.shrink * s);
  ref.codes.resize(x.size());
  ref.block_scales.assign(x.size(), 1.0F);
  const Size height = spec.block.rows == 0 ? rows : spec.block.rows;
  const Size width = spec.block.cols == 0 ? cols : spec.block.cols;
  for (Size r0 = 0; r0 < rows; r0 += height) {
    for (Size c0 = 0; c0 < cols; c0 += width) {
      const Size r1 = std::min(rows, r0 + height), c1 = std::min(cols, c0 + width);
      const float tensor_factor = std::min(1.0F / ref.tensor_scale, FLT_MAX);
      const float tensor_s = std::min(1.0F / (ref.tensor_scale * spec.shrink), FLT_MAX);
      const float block_amax = finite_amax(x, cols, r0, r1, c0, c1);
      float stored = tensor ? 1.0F : stored_scale(spec, block_amax, tensor_s);
      if (spec.scale == ScaleFormat::e4m3_4over6) {
        Candidate six(nvfp4_scale(block_amax, tensor_s, 6.0F), tensor_factor);
        Candidate four(nvfp4_scale(block_amax, tensor_s, 4.0F), tensor_factor);
        for (Size r = r0; r < r1; ++r) {
          for (Size c = c0; c < c1; ++c) {
            six.add(x[r * cols + c], spec.rounding);
            four.add(x[r * cols + c], spec.rounding);
          }
        }
        stored = six.stored == 0 || four.total() < six.total() ? four.stored : six.stored;
      }
      float factor = tensor_factor;
      if (!tensor) factor = (is_e4m3(spec.scale) ? tensor_factor : spec.shrink) / stored;
      if (stored == 0) factor = 0;
      factor = std::min(factor, FLT_MAX);
      for (Size r = r0; r < r1; ++r) {
        for (Size c = c0; c < c1; ++c) {
          const Size i = r * cols + c;
          const float y = std::isfinite(x[i]) ? std::clamp(x[i] * factor, -FLT_MAX, FLT_MAX) : x[i];
          ref.codes[i] = spec.rounding == Rounding::stochastic
                             ? encode_stochastic(spec.format, y, random_word(key, static_cast<std::uint64_t>(i)))
                             : encode(spec.format, y);
          ref.block_scales[i] = stored;
          count(spec, x[i], factor, ref.codes[i], stored * ref.tensor_scale, ref.stats);
        }
      }
    }
  }
  return ref;
}

}  // namespace naive

}  // namespace quaver
