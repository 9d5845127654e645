// Random signs and the Hadamard transform over groups of 16.
#include "formats/hadamard.h"

#include "formats/lane.h"
#include "formats/quantize.h"
#include "formats/simd.h"

namespace quaver {
namespace {

constexpr int group = hadamard_group;
constexpr int stages = 4;
constexpr float norm = 0.25F;  // 1/√16, exact

constexpr RotationSigns no_signs{};

// Adds and subtracts neighbors 1, 2, 4 and 8 apart, in this order. Each stage puts its sums in the lower and its
// differences in the upper half, which makes every stage the same: after four, each element is back in its place.
QUAVER_SIMD void transform(float* __restrict x, Size groups, const lane::Bits* __restrict before,
                           const lane::Bits* __restrict after) {
  for (Size g = 0; g < groups; ++g, x += group) {
    float a[group];
    float b[group];
    for (int i = 0; i < group; ++i) a[i] = lane::value(lane::bits(x[i]) ^ before[i]);
    for (int stage = 0; stage < stages; ++stage) {
      for (Size i = 0; i < group / 2; ++i) {
        b[i] = a[2 * i] + a[2 * i + 1];
        b[i + group / 2] = a[2 * i] - a[2 * i + 1];
      }
      for (int i = 0; i < group; ++i) a[i] = b[i];
    }
    for (int i = 0; i < group; ++i) x[i] = lane::value(lane::bits(a[i] * norm) ^ after[i]);
  }
}

}  // namespace

RotationSigns rotation_signs(const RandomKey& random) {
  constexpr std::uint32_t rotation_stream = 0x48414441U;
  const std::uint32_t word = philox({random.seed, 0, rotation_stream}, 0)[0];
  RotationSigns signs{};
  for (int i = 0; i < group; ++i) signs[i] = ((word >> i) & 1U) << 31;
  return signs;
}

void rotate_groups(float* row, Size count, const RotationSigns& signs) {
  transform(row, count / group, signs.data(), no_signs.data());
}

void rotate_row(float* row, Size count, const RandomKey& random) { rotate_groups(row, count, rotation_signs(random)); }

void unrotate_row(float* row, Size count, const RandomKey& random) {
  transform(row, count / group, no_signs.data(), rotation_signs(random).data());
}

}  // namespace quaver
