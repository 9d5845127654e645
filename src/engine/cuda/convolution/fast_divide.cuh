// Division of numbers below 2^31 by one that is known before the kernel starts: a multiplication and a shift.
#pragma once

#include <bit>
#include <cstdint>

namespace quaver::cuda {

struct FastDivide {
  unsigned divisor = 1;
  unsigned magic = 1;
  unsigned shift = 0;

  FastDivide() = default;
  explicit FastDivide(int by)
      : divisor(static_cast<unsigned>(by)), shift(static_cast<unsigned>(std::bit_width(divisor - 1))) {
    const std::uint64_t rest = (std::uint64_t{1} << shift) - divisor;
    magic = static_cast<unsigned>((rest << 32U) / divisor + 1);
  }

  __device__ int quotient(int n) const {
    const auto number = static_cast<unsigned>(n);
    return static_cast<int>((__umulhi(number, magic) + number) >> shift);
  }
  __device__ int rest(int n, int quotient) const { return n - quotient * static_cast<int>(divisor); }
};

}  // namespace quaver::cuda
