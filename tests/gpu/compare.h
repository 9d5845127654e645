// Comparisons that keep going and say what differs: which operation, where, both values, and how many elements. Also
// the bounds that every test states its tolerance by.
#pragma once

#include <string>

#include "gpu/pair.h"

namespace quaver::test {

namespace bound {
// ‖GPU − CPU‖ / ‖CPU‖. With FP32 between operations only the order of the sums differs: some units of 2^-24 each.
inline constexpr double f32 = 2e-5;
// GEMMs on tensor cores, which round toward zero, and exponentials by the special function unit.
inline constexpr double f32_gemm = 1e-4;
// BF16 keeps 8 bits, so each matrix on the way adds up to 2^-9 an element; an operation passes two or three.
inline constexpr double bf16 = 1e-2;
// FP16 keeps 11.
inline constexpr double f16 = 2e-3;
// Attention's operands in TF32, which has 11 too.
inline constexpr double tf32 = 2e-3;
// Hopper adds FP8 products with 14 bits between promotions to FP32.
inline constexpr double fp8_gemm = 2e-3;
}  // namespace bound

// Where results are stored in 16 bits, rounding them is most of the error.
inline double rounding_bound(Format format, double of_f32) {
  if (format == Format::bf16) return bound::bf16;
  return format == Format::f16 ? bound::f16 : of_f32;
}
inline double high_precision_bound(const Pair& pair) { return rounding_bound(pair.high_precision, bound::f32); }
inline double gemm_bound(const Pair& pair) { return rounding_bound(pair.high_precision, bound::f32_gemm); }

// ‖actual − expected‖ ≤ limit · (‖expected‖ + floor · √count): `floor` is the size of a typical element, below which an
// error is no error (sums that cancel).
void expect_near(const std::string& what, const Matrix& expected, const Matrix& actual, double limit,
                 double floor = 1e-3);
void expect_near(const std::string& what, const Twin& twin, double limit, double floor = 1e-3);
void expect_near(const std::string& what, double expected, double actual, double limit);

// Same codes and scales, both sides, bit for bit; of codes in 32 bits all NaN are the same.
void expect_same(const std::string& what, const HostSide& expected, const HostSide& actual);
void expect_same(const std::string& what, const TwinTensor& tensor);
void expect_same_bytes(const std::string& what, const std::vector<std::byte>& expected,
                       const std::vector<std::byte>& actual);

// For producers whose sums differ in the last bits: nearly every element within one step of its format, small error in
// all, and, where one copy of the codes would be enough, the GPU's two sides the same codes.
void expect_close(const std::string& what, const Pair& pair, const TwinTensor& tensor);

enum class Statistics : std::uint8_t { exact, close };
// A site in the engine's own high precision, or in TF32 beside FP32, is written by whatever computes it, and need not
// be observed.
void expect_statistics(const std::string& what, const Pair& pair, TwinTensor& tensor, Detail detail,
                       Statistics statistics = Statistics::exact);

}  // namespace quaver::test
