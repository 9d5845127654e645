// Models of accumulators narrower than FP32. Only precision is modelled, not exponent range: a real FP16 accumulator
// would also overflow at 65504.
#include <bit>
#include <cstdint>
#include <vector>

#include "engine/cpu/matmul.h"
#include "formats/simd.h"

namespace quaver {

namespace {

enum class Keep : std::uint8_t { truncate, nearest };

struct Model {
  int mantissa_bits;  // explicit bits of a partial sum
  Keep keep;
  Size chunk;      // products added exactly before a partial sum is stored
  Size promotion;  // products after which the partial sum moves into an FP32 total; 0: never
};

Model model_of(Accumulator accumulator) {
  switch (accumulator) {
    case Accumulator::hopper:
      return {13, Keep::truncate, 32, 0};
    case Accumulator::hopper_split:
      return {13, Keep::truncate, 32, 128};
    case Accumulator::fp16:
      return {10, Keep::nearest, 1, 0};
    case Accumulator::fp8:
      return {3, Keep::nearest, 1, 0};
    case Accumulator::fp32:
      break;
  }
  return {23, Keep::nearest, 1, 0};
}

QUAVER_SIMD void add_products(float a, const float* b, Size n, float* partial) {
  for (Size j = 0; j < n; ++j) partial[j] += a * b[j];
}

// sum = keep(sum + partial), NaN as it is: rounding could carry its payload into the sign; partial = 0
QUAVER_SIMD void store_partial(std::uint32_t mask, std::uint32_t half, Size n, float* sum, float* partial) {
  for (Size j = 0; j < n; ++j) {
    const float wanted = sum[j] + partial[j];
    const float kept = std::bit_cast<float>((std::bit_cast<std::uint32_t>(wanted) + half) & mask);
    sum[j] = wanted == wanted ? kept : wanted;
    partial[j] = 0;
  }
}

QUAVER_SIMD void promote(Size n, float* sum, float* total) {
  for (Size j = 0; j < n; ++j) {
    total[j] += sum[j];
    sum[j] = 0;
  }
}

}  // namespace

void narrow_matmul(Accumulator accumulator, const float* a, const float* b, Size m, Size n, Size k, float alpha,
                   float* out, Size out_stride) {
  const Model model = model_of(accumulator);
  const int dropped = 23 - model.mantissa_bits;
  const std::uint32_t mask = ~((1U << dropped) - 1U);
  const std::uint32_t half = model.keep == Keep::nearest && dropped > 0 ? 1U << (dropped - 1) : 0U;
#pragma omp parallel
  {
    std::vector<float> sum(static_cast<std::size_t>(n));
    std::vector<float> partial(sum.size());
    std::vector<float> total(sum.size());
#pragma omp for schedule(static)
    for (Size i = 0; i < m; ++i) {
      std::fill(total.begin(), total.end(), 0.0F);
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (Size p = 0; p < k; ++p) {
        add_products(a[i * k + p], b + p * n, n, partial.data());
        const bool last = p + 1 == k;
        if (last || (p + 1) % model.chunk == 0) store_partial(mask, half, n, sum.data(), partial.data());
        if (last || (model.promotion > 0 && (p + 1) % model.promotion == 0)) promote(n, sum.data(), total.data());
      }
      for (Size j = 0; j < n; ++j) out[i * out_stride + j] = alpha * total[static_cast<std::size_t>(j)];
    }
  }
}

}  // namespace quaver
