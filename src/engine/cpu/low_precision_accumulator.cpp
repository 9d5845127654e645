// Models of accumulators with fewer bits than FP32. Only precision is modeled, not exponent range: a real FP16
// accumulator would also overflow at 65504.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/cpu/gemm.h"
#include "formats/simd.h"

namespace quaver {

namespace {

// The state of one row of the result.
struct Row {
  explicit Row(Size n)
      : sum(static_cast<std::size_t>(n)), partial(sum.size()), total(sum.size()), last_bit(sum.size()) {}
  Size size() const { return static_cast<Size>(sum.size()); }
  void clear() {
    std::fill(sum.begin(), sum.end(), 0.0F);
    std::fill(partial.begin(), partial.end(), 0.0F);
    std::fill(total.begin(), total.end(), 0.0F);
  }

  std::vector<float> sum;              // in the accumulator
  std::vector<float> partial;          // what is to be added, or the next sum in units of its last bit
  std::vector<float> total;            // of sums, in FP32
  std::vector<std::int32_t> last_bit;  // exponents
};

QUAVER_SIMD void promote(Size n, float* sum, float* total) {
  for (Size j = 0; j < n; ++j) {
    total[j] += sum[j];
    sum[j] = 0;
  }
}

QUAVER_SIMD void add_product(float a, const float* b, Size n, float* sum) {
  for (Size j = 0; j < n; ++j) sum[j] += a * b[j];
}

// sum + partial to nearest, ties away; NaN as it is: rounding could carry its payload into the sign. partial = 0
QUAVER_SIMD void store_rounded(int mantissa_bits, Size n, float* sum, float* partial) {
  const int dropped = 23 - mantissa_bits;
  const std::uint32_t mask = ~((1U << dropped) - 1U);
  const std::uint32_t half = 1U << (dropped - 1);
  for (Size j = 0; j < n; ++j) {
    const float wanted = sum[j] + partial[j];
    const float rounded = std::bit_cast<float>((std::bit_cast<std::uint32_t>(wanted) + half) & mask);
    sum[j] = wanted == wanted ? rounded : wanted;
    partial[j] = 0;
  }
}

// The sum is rounded after each multiply-add.
void sum_rounded(int mantissa_bits, const float* a, const float* b, Size k, Row& row) {
  for (Size p = 0; p < k; ++p) {
    add_product(a[p], b + p * row.size(), row.size(), row.partial.data());
    store_rounded(mantissa_bits, row.size(), row.sum.data(), row.partial.data());
  }
  promote(row.size(), row.sum.data(), row.total.data());
}

// FP8 in Hopper's tensor cores: 32 products and the sum so far are aligned to the largest exponent among them, each is
// cut 13 bits below it, they are added exactly, and the new sum is cut to 13 mantissa bits. A product's exponent is the
// sum of its factors' exponents, whatever their mantissas; a product of 0 has none.
constexpr int kept_bits = 13;
constexpr Size products_at_once = 32;
constexpr std::int32_t largest_exponent = 100;  // either way: FP8 has less than half of it, powers of two stay normal

inline std::int32_t exponent_of(float x, std::int32_t least) {
  const auto field = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(x) >> 23U & 0xFFU);
  return x == 0 ? no_exponent : std::max(field - 127, least);
}

inline float power_of_two(std::int32_t exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23U);
}

QUAVER_SIMD void exponents_of(const float* sum, Size n, std::int32_t* top) {
  for (Size j = 0; j < n; ++j) top[j] = exponent_of(sum[j], no_exponent);
}

QUAVER_SIMD void raise_to(std::int32_t a_exponent, const float* b, std::int32_t least, Size n, std::int32_t* top) {
  for (Size j = 0; j < n; ++j) top[j] = std::max(top[j], a_exponent + exponent_of(b[j], least));
}

// Exponents become those of the last bits, and the sum the first term.
QUAVER_SIMD void begin_partial(const float* sum, Size n, std::int32_t* exponent, float* partial) {
  for (Size j = 0; j < n; ++j) {
    exponent[j] = std::clamp(exponent[j], -largest_exponent, largest_exponent) - kept_bits;
    partial[j] = std::trunc(sum[j] * power_of_two(-exponent[j]));
  }
}

QUAVER_SIMD void add_cut_product(float a, const float* b, const std::int32_t* last_bit, Size n, float* partial) {
  for (Size j = 0; j < n; ++j) partial[j] += std::trunc(a * b[j] * power_of_two(-last_bit[j]));
}

QUAVER_SIMD void end_partial(const float* partial, const std::int32_t* last_bit, Size n, float* sum) {
  constexpr std::uint32_t mask = ~((1U << (23 - kept_bits)) - 1U);
  for (Size j = 0; j < n; ++j) {
    const float wanted = partial[j] * power_of_two(last_bit[j]);
    const float cut = std::bit_cast<float>(std::bit_cast<std::uint32_t>(wanted) & mask);
    sum[j] = wanted == wanted ? cut : wanted;
  }
}

// The sum moves into the FP32 total every `promotion` products.
void sum_aligned(Size promotion, const DecodedOperand& a, const DecodedOperand& b, Size k, Row& row) {
  const Size n = row.size();
  for (Size first = 0; first < k; first += products_at_once) {
    const Size last = std::min(k, first + products_at_once);
    exponents_of(row.sum.data(), n, row.last_bit.data());
    for (Size p = first; p < last; ++p) {
      raise_to(exponent_of(a.values[p], a.least_exponent), b.values + p * n, b.least_exponent, n, row.last_bit.data());
    }
    begin_partial(row.sum.data(), n, row.last_bit.data(), row.partial.data());
    for (Size p = first; p < last; ++p) {
      add_cut_product(a.values[p], b.values + p * n, row.last_bit.data(), n, row.partial.data());
    }
    end_partial(row.partial.data(), row.last_bit.data(), n, row.sum.data());
    if (last == k || last % promotion == 0) promote(n, row.sum.data(), row.total.data());
  }
}

void sum_row(Accumulator accumulator, const DecodedOperand& a, const DecodedOperand& b, Size k, Row& row) {
  switch (accumulator) {
    case Accumulator::hopper:
      return sum_aligned(k, a, b, k, row);
    case Accumulator::hopper_split:
      return sum_aligned(128, a, b, k, row);
    case Accumulator::fp16:
      return sum_rounded(10, a.values, b.values, k, row);
    case Accumulator::fp8:
      return sum_rounded(3, a.values, b.values, k, row);
    case Accumulator::fp32:
      break;
  }
  for (Size p = 0; p < k; ++p) add_product(a.values[p], b.values + p * row.size(), row.size(), row.total.data());
}

}  // namespace

void low_precision_gemm(const LowPrecisionGemm& op) {
#pragma omp parallel
  {
    Row row(op.n);
#pragma omp for schedule(static)
    for (Size i = 0; i < op.m; ++i) {
      row.clear();
      sum_row(op.accumulator, {op.a.values + i * op.k, op.a.least_exponent}, op.b, op.k, row);
      for (Size j = 0; j < op.n; ++j) op.out[i * op.n + j] = op.alpha * row.total[static_cast<std::size_t>(j)];
    }
  }
}

}  // namespace quaver
