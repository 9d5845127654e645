#include "formats/cast_loops.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/lane.h"
#include "formats/simd.h"

namespace quaver {
namespace {

using lane::Bits;

// The product of an element with its own block's scale may end a few units in the last place above the format's max
// without anything having been lost: that is not saturation.
constexpr Bits rounding_slack = 4;

struct Counts {
  Bits amax = 0;
  std::uint32_t nonfinite = 0;
  std::uint32_t saturated = 0;
  std::uint32_t underflowed = 0;
};

enum class Factor : std::uint8_t { all, each };

template <Factor K>
QUAVER_LANE float factor_at(float all, const float* each, Size i) {
  if constexpr (K == Factor::all) return all;
  return each[i];
}

template <Format F, Rounding R, Factor K, Detail D>
QUAVER_SIMD void cast_loop(const CastRun& run, lane::Storage<F>* __restrict out, float* __restrict errors,
                           Counts& counts) {
  const float* __restrict x = run.x;
  const float* __restrict scales = run.scale.each;
  const float* __restrict multipliers = run.dequantize.each;
  const std::uint32_t* __restrict words = run.words;
  const float scale = run.scale.all;
  const float multiplier = run.dequantize.all;
  const auto count = static_cast<int>(run.count);
  Bits amax = 0;
  std::uint32_t nonfinite = 0;
  std::uint32_t saturated = 0;
  std::uint32_t underflowed = 0;
  for (int i = 0; i < count; ++i) {
    const Bits xb = lane::bits(x[i]);
    const Bits ax = xb & lane::magnitude_mask;
    const Bits scaled = lane::bits(x[i] * factor_at<K>(scale, scales, i)) & lane::magnitude_mask;
    const Bits finite = lane::less(ax, lane::infinity_bits);
    const Bits word = R == Rounding::stochastic ? words[i] : 0U;
    const lane::Rounded rounded = lane::round_magnitude<F, R>(scaled, word);
    out[i] = static_cast<lane::Storage<F>>(lane::finish_code<F>(xb, rounded.code));
    amax = lane::larger(amax, ax & lane::mask(finite));
    nonfinite += 1U - finite;
    saturated += finite & lane::less(lane::layout(F).max + rounding_slack, scaled);
    underflowed += finite & lane::less(rounded.code, 1U) & lane::less(0U, ax);
    if constexpr (D == Detail::full) {
      const float error = lane::value(ax) - rounded.value * factor_at<K>(multiplier, multipliers, i);
      errors[i] = lane::value(lane::bits(error) & lane::mask(finite));
    }
  }
  counts = {amax, nonfinite, saturated, underflowed};
}

QUAVER_SIMD void pack_nibbles(const std::uint8_t* __restrict codes, Size pairs, std::uint8_t* __restrict out) {
  for (Size i = 0; i < pairs; ++i) {
    out[i] = static_cast<std::uint8_t>(codes[2 * i] | (codes[2 * i + 1] << 4));
  }
}

QUAVER_SIMD void unpack_nibbles(const std::uint8_t* __restrict packed, Size pairs, std::uint8_t* __restrict codes) {
  for (Size i = 0; i < pairs; ++i) {
    codes[2 * i] = packed[i] & 0xFU;
    codes[2 * i + 1] = static_cast<std::uint8_t>(packed[i] >> 4);
  }
}

template <Format F, Rounding R, Factor K, Detail D>
void cast_stored(const CastRun& run, CastStatistics& stats) {
  Counts counts;
  std::array<float, D == Detail::full ? run_limit : 1> errors;
  if constexpr (F == Format::e2m1) {
    std::array<std::uint8_t, run_limit + 1> codes;
    cast_loop<F, R, K, D>(run, codes.data(), errors.data(), counts);
    codes[run.count] = 0;  // the other half of a last odd code
    pack_nibbles(codes.data(), (run.count + 1) / 2, reinterpret_cast<std::uint8_t*>(run.out));
  } else if constexpr (F == Format::f32) {
    std::array<std::uint32_t, run_limit> codes;
    cast_loop<F, R, K, D>(run, codes.data(), errors.data(), counts);
    std::memcpy(run.out, codes.data(), static_cast<std::size_t>(run.count) * sizeof(float));  // may be x itself
  } else {
    cast_loop<F, R, K, D>(run, reinterpret_cast<lane::Storage<F>*>(run.out), errors.data(), counts);
  }
  stats.count += static_cast<std::uint64_t>(run.count);
  stats.nonfinite += counts.nonfinite;
  stats.saturated += counts.saturated;
  stats.underflowed += counts.underflowed;
  stats.amax = std::max(stats.amax, lane::value(counts.amax));
  if constexpr (D == Detail::full) gather_moments(run.x, errors.data(), run.count, stats);
}

template <Format F, Rounding R, Factor K>
void cast_detail(const CastRun& run, Detail detail, CastStatistics& stats) {
  if (detail == Detail::full) {
    cast_stored<F, R, K, Detail::full>(run, stats);
  } else {
    cast_stored<F, R, K, Detail::counts>(run, stats);
  }
}

template <Format F>
void cast_format(const CastRun& run, Detail detail, CastStatistics& stats) {
  const bool stochastic = run.words != nullptr && F != Format::f32;
  if constexpr (is_low_precision(F)) {
    if (run.scale.each != nullptr) {
      if (stochastic) return cast_detail<F, Rounding::stochastic, Factor::each>(run, detail, stats);
      return cast_detail<F, Rounding::nearest_even, Factor::each>(run, detail, stats);
    }
  }
  if constexpr (F != Format::f32) {
    if (stochastic) return cast_detail<F, Rounding::stochastic, Factor::all>(run, detail, stats);
  }
  cast_detail<F, Rounding::nearest_even, Factor::all>(run, detail, stats);
}

template <Format F, Factor K>
QUAVER_SIMD void decode_loop(const lane::Storage<F>* __restrict codes, Size count, float all,
                             const float* __restrict each, float* __restrict out) {
  for (Size i = 0; i < count; ++i) out[i] = lane::decode<F>(codes[i]) * factor_at<K>(all, each, i);
}

template <Format F>
void decode_stored(const lane::Storage<F>* codes, Size count, Factors factor, float* out) {
  if (factor.each != nullptr) return decode_loop<F, Factor::each>(codes, count, 1.0F, factor.each, out);
  decode_loop<F, Factor::all>(codes, count, factor.all, nullptr, out);
}

template <Format F>
void decode_format(const std::byte* codes, Size count, Factors factor, float* out) {
  decode_stored<F>(reinterpret_cast<const lane::Storage<F>*>(codes), count, factor, out);
}

void decode_packed(const std::byte* codes, Size count, Factors factor, float* out) {
  std::array<std::uint8_t, run_limit + 1> unpacked;
  for (Size done = 0; done < count; done += run_limit) {
    const Size n = std::min(run_limit, count - done);
    unpack_nibbles(reinterpret_cast<const std::uint8_t*>(codes) + done / 2, (n + 1) / 2, unpacked.data());
    decode_stored<Format::e2m1>(unpacked.data(), n, factor, out + done);
  }
}

QUAVER_SIMD void amax_loop(const float* __restrict x, int count, Counts& counts) {
  Bits largest = 0;
  std::uint32_t nonfinite = 0;
  for (int i = 0; i < count; ++i) {
    const Bits a = lane::bits(x[i]) & lane::magnitude_mask;
    const Bits finite = lane::less(a, lane::infinity_bits);
    largest = lane::larger(largest, a & lane::mask(finite));
    nonfinite += 1U - finite;
  }
  counts.amax = largest;
  counts.nonfinite = nonfinite;
}

// A block size known when compiling unrolls into a few vector operations.
template <int block>
QUAVER_SIMD void block_amax_loop(const float* __restrict x, Size blocks, float* __restrict out) {
  for (Size b = 0; b < blocks; ++b) {
    Bits result = lane::bits(out[b]);
    for (int i = 0; i < block; ++i) {
      const Bits a = lane::bits(x[b * block + i]) & lane::magnitude_mask;
      result = lane::larger(result, a & lane::mask(lane::less(a, lane::infinity_bits)));
    }
    out[b] = lane::value(result);
  }
}

}  // namespace

void cast_run(Format format, const CastRun& run, Detail detail, CastStatistics& stats) {
  switch (format) {
    case Format::f32:
      return cast_format<Format::f32>(run, detail, stats);
    case Format::tf32:
      return cast_format<Format::tf32>(run, detail, stats);
    case Format::bf16:
      return cast_format<Format::bf16>(run, detail, stats);
    case Format::f16:
      return cast_format<Format::f16>(run, detail, stats);
    case Format::e4m3:
      return cast_format<Format::e4m3>(run, detail, stats);
    case Format::e5m2:
      return cast_format<Format::e5m2>(run, detail, stats);
    case Format::e2m1:
      return cast_format<Format::e2m1>(run, detail, stats);
    case Format::e3m4:
      return cast_format<Format::e3m4>(run, detail, stats);
    case Format::e3m2:
      return cast_format<Format::e3m2>(run, detail, stats);
    case Format::e2m3:
      return cast_format<Format::e2m3>(run, detail, stats);
    case Format::int8:
      return cast_format<Format::int8>(run, detail, stats);
  }
}

void decode_run(Format format, const std::byte* codes, Size count, Factors factor, float* out) {
  switch (format) {
    case Format::f32:
      return decode_format<Format::f32>(codes, count, factor, out);
    case Format::tf32:
      return decode_format<Format::tf32>(codes, count, factor, out);
    case Format::bf16:
      return decode_format<Format::bf16>(codes, count, factor, out);
    case Format::f16:
      return decode_format<Format::f16>(codes, count, factor, out);
    case Format::e4m3:
      return decode_format<Format::e4m3>(codes, count, factor, out);
    case Format::e5m2:
      return decode_format<Format::e5m2>(codes, count, factor, out);
    case Format::e2m1:
      return decode_packed(codes, count, factor, out);
    case Format::e3m4:
      return decode_format<Format::e3m4>(codes, count, factor, out);
    case Format::e3m2:
      return decode_format<Format::e3m2>(codes, count, factor, out);
    case Format::e2m3:
      return decode_format<Format::e2m3>(codes, count, factor, out);
    case Format::int8:
      return decode_format<Format::int8>(codes, count, factor, out);
  }
}

Amax amax(const float* x, Size count) {
  constexpr Size chunk = Size{1} << 20;
  Amax result;
  for (Size done = 0; done < count; done += chunk) {
    Counts counts;
    amax_loop(x + done, static_cast<int>(std::min(chunk, count - done)), counts);
    result.value = std::max(result.value, lane::value(counts.amax));
    result.nonfinite += counts.nonfinite;
  }
  return result;
}

void block_amax(const float* x, Size count, Size block, float* out) {
  const Size whole = count / block;
  if (block == 16) {
    block_amax_loop<16>(x, whole, out);
  } else if (block == 32) {
    block_amax_loop<32>(x, whole, out);
  } else {
    for (Size b = 0; b < whole; ++b) {
      out[b] = std::max(out[b], amax(x + b * block, block).value);
    }
  }
  if (const Size rest = count - whole * block; rest > 0) {
    out[whole] = std::max(out[whole], amax(x + whole * block, rest).value);
  }
}

}  // namespace quaver
