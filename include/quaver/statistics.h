// The statistics that a cast collects: what it saw and what the format lost of it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace quaver {

// counts: of elements that saturated, underflowed or were not finite, and amax. full: moments, error and histogram too.
enum class Detail : std::uint8_t { counts, full };

// The powers of two that magnitudes are counted by; what lies beyond counts at the ends.
inline constexpr int lowest_binade = -40;
inline constexpr int highest_binade = 23;
inline constexpr int binade_count = highest_binade - lowest_binade + 1;

// What a cast saw: x after the rotation, where there is one. The first group is always collected, the second with
// Detail::full, over the finite elements. (The few units that `saturated` allows are the rounding of a current scale:
// the largest element of a tensor or block times its own scale may be there, and nothing is lost.)
struct CastStatistics {
  std::uint64_t count = 0;
  std::uint64_t nonfinite = 0;    // inf and NaN in the input
  std::uint64_t saturated = 0;    // finite |x|·s more than 4 f32 units in the last place above the format's max
  std::uint64_t underflowed = 0;  // non-zero x whose code is zero
  float amax = 0;                 // over finite elements

  float min_nonzero = std::numeric_limits<float>::infinity();
  double sum = 0, sum2 = 0, sum4 = 0;  // of x; sum4 of x⁴, for kurtosis about zero
  double error2 = 0;                   // Σ (x − dequantized)²
  // Exponent e of |x| ≠ 0 counted at clamp(e, lowest_binade, highest_binade) − lowest_binade.
  std::array<std::uint64_t, binade_count> binades{};
  bool full = false;  // the second group covers everything counted in the first

  void merge(const CastStatistics& other);
  double mean() const;
  double std() const;  // of the population
  double rms() const;
  double kurtosis() const;  // about zero: 3 for a normal distribution, 1 for ±constant
  double underflow_percent() const;
  double saturated_percent() const;
  double sqnr_db() const;  // +inf where nothing was lost
};

}  // namespace quaver
