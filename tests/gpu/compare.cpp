#include "gpu/compare.h"

#include <sstream>

namespace quaver::test {

namespace {

std::string place(Size i, Size cols) { return "(" + std::to_string(i / cols) + ", " + std::to_string(i % cols) + ")"; }

// Both NaN, or the same infinity: then they agree, and no difference can be taken.
bool both_not_finite(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::isinf(a) && a == b;
}

std::string hex(std::uint32_t code) {
  std::ostringstream text;
  text << "0x" << std::hex << code;
  return text.str();
}

// A code of 32 bits is the result of FP32 arithmetic as it is, and which NaN that gives is the device's choice: a GPU
// has one, CPUs hand on the bits of an operand. Formats of lower precision name the codes of their NaN, and keep to
// them.
bool same_code(Format format, std::uint32_t a, std::uint32_t b) {
  if (a == b) return true;
  return info(format).storage_bits == 32 && std::isnan(decode(format, a)) && std::isnan(decode(format, b));
}

void expect_same_codes(const std::string& what, const HostSide& expected, const HostSide& actual) {
  Size differing = 0;
  Size first = -1;
  for (std::size_t i = 0; i < expected.codes.size(); ++i) {
    if (same_code(expected.spec.format, expected.codes[i], actual.codes[i])) continue;
    if (differing++ == 0) first = static_cast<Size>(i);
  }
  if (differing == 0) return;
  const Size r = first / expected.cols;
  const Size c = first % expected.cols;
  ADD_FAILURE() << what << ": " << differing << " of " << expected.codes.size() << " codes differ, the first at "
                << place(first, expected.cols) << ": CPU " << hex(expected.codes[index(first)]) << " = "
                << expected.value(r, c) << ", GPU " << hex(actual.codes[index(first)]) << " = " << actual.value(r, c)
                << "; block scales " << expected.multiplier(r, c) << " and " << actual.multiplier(r, c);
}

void expect_same_scales(const std::string& what, const HostSide& expected, const HostSide& actual) {
  EXPECT_EQ(expected.tensor_scale, actual.tensor_scale) << what << ": the tensor's scale";
  ASSERT_EQ(expected.block_scales.size(), actual.block_scales.size()) << what << ": number of block scales";
  Size differing = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < expected.block_scales.size(); ++i) {
    if (expected.block_scales[i] == actual.block_scales[i]) continue;
    if (differing++ == 0) first = i;
  }
  if (differing == 0) return;
  ADD_FAILURE() << what << ": " << differing << " of " << expected.block_scales.size()
                << " block scales differ, the first at " << first << ": CPU " << expected.block_scales[first]
                << ", GPU " << actual.block_scales[first];
}

// Elements of a low-precision format further apart than one step of it plus the rounding of high-precision terms as
// large as the others.
struct Apart {
  Size count = 0;
  Size first = -1;
};

Apart find_apart(const HostSide& expected, const HostSide& actual, double slack) {
  Apart apart;
  for (Size i = 0; i < expected.rows * expected.cols; ++i) {
    const Size r = i / expected.cols;
    const Size c = i % expected.cols;
    const double difference = std::abs(actual.value(r, c) - expected.value(r, c));
    if (difference <= std::max(expected.step(r, c), actual.step(r, c)) * 1.0001 + slack) continue;
    if (apart.count++ == 0) apart.first = i;
  }
  return apart;
}

void expect_close_side(const std::string& what, const Pair& pair, const HostSide& expected, const HostSide& actual,
                       double limit) {
  ASSERT_EQ(expected.codes.size(), actual.codes.size()) << what;
  EXPECT_TRUE(actual.padding_is_clear) << what << ": what lies behind a row is not zero";
  const Size count = expected.rows * expected.cols;
  double error2 = 0;
  double norm2 = 0;
  for (Size r = 0; r < expected.rows; ++r) {
    for (Size c = 0; c < expected.cols; ++c) {
      const double want = expected.value(r, c);
      error2 += std::pow(actual.value(r, c) - want, 2);
      norm2 += want * want;
    }
  }
  // A handful of elements may all have crossed to the next code.
  const double few = count < 64 ? 2 * expected.step(0, 0) * std::sqrt(static_cast<double>(count)) : 0.0;
  EXPECT_LE(std::sqrt(error2), limit * std::sqrt(norm2) + few)
      << what << ": relative error " << std::sqrt(error2 / std::max(norm2, 1e-300)) << " over " << count
      << " elements, limit " << limit;
  if (!is_low_precision(expected.spec.format)) return;
  const double rounding = pair.high_precision == Format::f32   ? 1e-5
                          : pair.high_precision == Format::f16 ? 0x1p-10
                                                               : 0x1p-7;
  const Apart apart = find_apart(expected, actual, rounding * std::sqrt(norm2 / static_cast<double>(count)));
  if (apart.count * 100 <= count) return;
  const Size r = apart.first / expected.cols;
  const Size c = apart.first % expected.cols;
  ADD_FAILURE() << what << ": " << apart.count << " of " << count << " elements are more than a step of their format "
                << "apart, the first at " << place(apart.first, expected.cols) << ": CPU " << expected.value(r, c)
                << ", GPU " << actual.value(r, c);
}

// How far codes may be apart in all. An element that differs by d before its cast, relative, lands on the next code
// with probability d / step, and then differs by a step: √(d · step) over all.
double close_limit(const Pair& pair, const QuantSpec& spec) {
  const bool exact = pair.high_precision == Format::f32;
  if (!is_low_precision(spec.format)) {
    const double own = spec.format == Format::bf16 ? 2e-3 : spec.format == Format::f32 ? 0.0 : 3e-4;
    return own + high_precision_bound(pair);
  }
  if (spec.format == Format::e2m1) return exact ? 2e-2 : 0.1;
  return exact ? 1e-2 : 5e-2;
}

void expect_close_counts(const std::string& what, const Pair& pair, const CastStatistics& expected,
                         const CastStatistics& actual) {
  const auto slack = static_cast<double>(expected.count) * (pair.high_precision == Format::f32 ? 1e-3 : 2e-2) + 2;
  EXPECT_NEAR(static_cast<double>(expected.saturated), static_cast<double>(actual.saturated), slack)
      << what << ": saturated";
  EXPECT_NEAR(static_cast<double>(expected.underflowed), static_cast<double>(actual.underflowed), slack)
      << what << ": underflowed";
  EXPECT_NEAR(expected.amax, actual.amax, 2 * high_precision_bound(pair) * static_cast<double>(expected.amax) + 1e-6)
      << what << ": amax";
}

// Moments of the second group: sums in double in another order.
void expect_moments(const std::string& what, const CastStatistics& expected, const CastStatistics& actual) {
  constexpr double reordered = 1e-9;
  const double magnitude = std::sqrt(expected.sum2 * static_cast<double>(expected.count));
  EXPECT_NEAR(expected.sum, actual.sum, reordered * magnitude) << what << ": sum";
  EXPECT_NEAR(expected.sum2, actual.sum2, reordered * expected.sum2) << what << ": sum2";
  EXPECT_NEAR(expected.sum4, actual.sum4, reordered * expected.sum4) << what << ": sum4";
  EXPECT_NEAR(expected.error2, actual.error2, reordered * expected.error2) << what << ": error2";
  EXPECT_EQ(expected.min_nonzero, actual.min_nonzero) << what << ": min_nonzero";
  EXPECT_EQ(expected.full, actual.full) << what << ": full";
  for (std::size_t i = 0; i < expected.binades.size(); ++i) {
    EXPECT_EQ(expected.binades[i], actual.binades[i]) << what << ": binade " << static_cast<int>(i) - 40;
  }
}

}  // namespace

void expect_near(const std::string& what, const Matrix& expected, const Matrix& actual, double limit, double floor) {
  ASSERT_EQ(expected.values.size(), actual.values.size()) << what;
  double error2 = 0;
  double norm2 = 0;
  double worst = -1;
  Size worst_at = 0;
  Size beyond = 0;
  const Size count = expected.rows * expected.cols;
  for (Size i = 0; i < count; ++i) {
    const float want = expected.values[index(i)];
    const float got = actual.values[index(i)];
    if (both_not_finite(want, got)) continue;
    double difference = std::abs(static_cast<double>(got) - static_cast<double>(want));
    if (!std::isfinite(difference)) difference = 1e30;
    error2 += difference * difference;
    norm2 += std::isfinite(want) ? static_cast<double>(want) * static_cast<double>(want) : 0.0;
    if (difference > limit * (std::abs(static_cast<double>(want)) + floor)) ++beyond;
    if (difference <= worst) continue;
    worst = difference;
    worst_at = i;
  }
  const double allowed = limit * (std::sqrt(norm2) + floor * std::sqrt(static_cast<double>(count)));
  if (std::sqrt(error2) <= allowed) return;
  ADD_FAILURE() << what << ": error " << std::sqrt(error2) << " beside a norm of " << std::sqrt(norm2) << ", relative "
                << std::sqrt(error2 / std::max(norm2, 1e-300)) << ", limit " << limit << "; " << beyond << " of "
                << count << " elements are beyond it, the worst at " << place(worst_at, expected.cols) << ": CPU "
                << expected.values[index(worst_at)] << ", GPU " << actual.values[index(worst_at)];
}

void expect_near(const std::string& what, const Twin& twin, double limit, double floor) {
  expect_near(what, twin.from_cpu(), twin.from_gpu(), limit, floor);
  EXPECT_TRUE(twin.margins_are_intact()) << what << ": written beyond the matrix";
}

void expect_near(const std::string& what, double expected, double actual, double limit) {
  EXPECT_NEAR(expected, actual, limit * std::abs(expected) + 1e-30) << what;
}

void expect_same(const std::string& what, const HostSide& expected, const HostSide& actual) {
  ASSERT_EQ(expected.rows, actual.rows) << what;
  ASSERT_EQ(expected.cols, actual.cols) << what;
  expect_same_scales(what, expected, actual);
  expect_same_codes(what, expected, actual);
  EXPECT_TRUE(actual.padding_is_clear) << what << ": what lies behind a row is not zero";
}

void expect_same(const std::string& what, const TwinTensor& tensor) {
  auto& twin = const_cast<TwinTensor&>(tensor);
  if (twin.gpu().has_rows()) expect_same(what + ", rows", twin.cpu_rows(), twin.gpu_rows());
  if (twin.gpu().has_own_columns()) expect_same(what + ", columns", twin.cpu_columns(), twin.gpu_columns());
  EXPECT_TRUE(twin.margins_are_intact()) << what << ": written beyond the codes";
}

void expect_same_bytes(const std::string& what, const std::vector<std::byte>& expected,
                       const std::vector<std::byte>& actual) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  Size differing = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == actual[i]) continue;
    if (differing++ == 0) first = i;
  }
  if (differing == 0) return;
  ADD_FAILURE() << what << ": " << differing << " of " << expected.size() << " bytes differ, the first at " << first
                << ": " << hex(std::to_integer<std::uint32_t>(expected[first])) << " and "
                << hex(std::to_integer<std::uint32_t>(actual[first]));
}

void expect_close(const std::string& what, const Pair& pair, const TwinTensor& tensor) {
  auto& twin = const_cast<TwinTensor&>(tensor);
  const SiteSpec& spec = twin.site(On::gpu).spec;
  if (twin.gpu().has_rows()) {
    expect_close_side(what + ", rows", pair, twin.cpu_rows(), twin.gpu_rows(), close_limit(pair, spec.rows));
  }
  if (twin.gpu().has_own_columns()) {
    expect_close_side(what + ", columns", pair, twin.cpu_columns(), twin.gpu_columns(),
                      close_limit(pair, spec.columns));
    if (twin.gpu().has_rows() && columns_share_rows(spec.rows, spec.columns)) {
      expect_same_codes(what + ", columns against rows", twin.gpu_rows().transposed(), twin.gpu_columns());
    }
  }
  EXPECT_TRUE(twin.margins_are_intact()) << what << ": written beyond the codes";
}

void expect_statistics(const std::string& what, const Pair& pair, TwinTensor& tensor, Detail detail,
                       Statistics statistics) {
  const CastStatistics expected = tensor.take_cpu_seen();
  const CastStatistics actual = tensor.take_gpu_seen();
  const Format format = tensor.site(On::gpu).spec.rows.format;
  const Format high = pair.gpu->high_precision();
  const bool as_it_is = format == Format::f32 || format == high || (format == Format::tf32 && high == Format::f32);
  if (as_it_is && detail == Detail::counts && actual.count == 0) return;
  EXPECT_EQ(expected.count, actual.count) << what << ": count";
  EXPECT_EQ(expected.nonfinite, actual.nonfinite) << what << ": nonfinite";
  if (statistics == Statistics::close) return expect_close_counts(what, pair, expected, actual);
  EXPECT_EQ(expected.saturated, actual.saturated) << what << ": saturated";
  EXPECT_EQ(expected.underflowed, actual.underflowed) << what << ": underflowed";
  EXPECT_EQ(expected.amax, actual.amax) << what << ": amax";
  if (detail == Detail::full) expect_moments(what, expected, actual);
}

}  // namespace quaver::test
