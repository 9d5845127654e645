// CastStatistics: the moments of a run of elements, and the statistics derived from them.
#include <algorithm>
#include <array>
#include <cmath>

#include "formats/cast_loops.h"
#include "formats/lane.h"
#include "formats/simd.h"

namespace quaver {
namespace {

using lane::Bits;

constexpr int lanes = 8;  // fixed, so that the sums do not depend on the machine's vector width

struct Moments {
  std::array<double, lanes> sum{}, sum2{}, sum4{}, error2{};
};

QUAVER_LANE float finite_or_zero(float x) {
  const Bits b = lane::bits(x);
  return lane::value(b & lane::mask(lane::less(b & lane::magnitude_mask, lane::infinity_bits)));
}

QUAVER_LANE void add_element(float x, float error, double& sum, double& sum2, double& sum4, double& error2) {
  const double value = finite_or_zero(x);
  const double square = value * value;
  const double e = error;
  sum += value;
  sum2 += square;
  sum4 += square * square;
  error2 += e * e;
}

// The accumulators are local so that they live in registers; whole groups of `lanes` elements only.
QUAVER_SIMD void sum_moments(const float* __restrict x, const float* __restrict errors, int count, Moments& out) {
  double sum[lanes] = {}, sum2[lanes] = {}, sum4[lanes] = {}, error2[lanes] = {};
  for (int i = 0; i + lanes <= count; i += lanes) {
    for (int j = 0; j < lanes; ++j) add_element(x[i + j], errors[i + j], sum[j], sum2[j], sum4[j], error2[j]);
  }
  for (int j = 0; j < lanes; ++j) {
    out.sum[j] = sum[j];
    out.sum2[j] = sum2[j];
    out.sum4[j] = sum4[j];
    out.error2[j] = error2[j];
  }
}

// The histogram bin of each element (`skipped` for zero and the non-finite); returns the smallest non-zero magnitude.
constexpr std::uint8_t skipped = 64;
QUAVER_SIMD Bits find_binades(const float* __restrict x, int count, std::uint8_t* __restrict bins) {
  Bits smallest = lane::infinity_bits;
  for (int i = 0; i < count; ++i) {
    const Bits a = lane::bits(x[i]) & lane::magnitude_mask;
    const Bits counted = lane::less(a, lane::infinity_bits) & lane::less(0U, a);
    smallest = lane::smaller(smallest, lane::select(counted, a, lane::infinity_bits));
    const Bits field = lane::smaller(lane::larger(a >> lane::float_mantissa, lane::float_bias + lowest_binade),
                                     lane::float_bias + highest_binade);
    bins[i] = static_cast<std::uint8_t>(lane::select(counted, field - (lane::float_bias + lowest_binade), skipped));
  }
  return smallest;
}

// Neighbors often share a binade: separate tables keep one increment from waiting for the other.
constexpr int table_count = 8;
constexpr int table_size = 72;  // the bins, `skipped`, and padding to whole vectors
using Tables = std::array<std::array<std::uint16_t, table_size>, table_count>;

void count_binades(const std::uint8_t* bins, int count, Tables& tables) {
  int i = 0;
  for (; i + table_count <= count; i += table_count) {
#pragma GCC unroll 8
    for (int t = 0; t < table_count; ++t) ++tables[t][bins[i + t]];
  }
  for (; i < count; ++i) ++tables[0][bins[i]];
}

QUAVER_SIMD void add_tables(const Tables& tables, std::array<std::uint64_t, 64>& binades) {
  std::uint16_t sums[64] = {};
  for (const auto& table : tables) {
    for (int b = 0; b < 64; ++b) sums[b] = static_cast<std::uint16_t>(sums[b] + table[b]);
  }
  for (int b = 0; b < 64; ++b) binades[b] += sums[b];
}

double finite_count(const CastStatistics& s) { return static_cast<double>(s.count - s.nonfinite); }

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

void gather_moments(const float* x, const float* errors, Size count, CastStatistics& stats) {
  const auto n = static_cast<int>(count);
  Moments moments;
  sum_moments(x, errors, n, moments);
  for (int i = n - n % lanes; i < n; ++i) {
    const int j = i % lanes;
    add_element(x[i], errors[i], moments.sum[j], moments.sum2[j], moments.sum4[j], moments.error2[j]);
  }
  for (int j = 0; j < lanes; ++j) {
    stats.sum += moments.sum[j];
    stats.sum2 += moments.sum2[j];
    stats.sum4 += moments.sum4[j];
    stats.error2 += moments.error2[j];
  }
  std::array<std::uint8_t, run_limit> bins;
  stats.min_nonzero = std::min(stats.min_nonzero, lane::value(find_binades(x, n, bins.data())));
  Tables tables{};
  count_binades(bins.data(), n, tables);
  add_tables(tables, stats.binades);
  stats.full = true;
}

void CastStatistics::merge(const CastStatistics& other) {
  const bool covers_this = full || count == 0;
  const bool covers_other = other.full || other.count == 0;
  full = (full || other.full) && covers_this && covers_other;
  count += other.count;
  nonfinite += other.nonfinite;
  saturated += other.saturated;
  underflowed += other.underflowed;
  amax = std::max(amax, other.amax);
  min_nonzero = std::min(min_nonzero, other.min_nonzero);
  sum += other.sum;
  sum2 += other.sum2;
  sum4 += other.sum4;
  error2 += other.error2;
  for (std::size_t b = 0; b < binades.size(); ++b) binades[b] += other.binades[b];
}

double CastStatistics::mean() const { return finite_count(*this) > 0 ? sum / finite_count(*this) : 0.0; }

double CastStatistics::std() const {
  if (finite_count(*this) == 0) return 0.0;
  const double m = mean();
  return std::sqrt(std::max(0.0, sum2 / finite_count(*this) - m * m));  // rounding may take it below zero
}

double CastStatistics::rms() const { return finite_count(*this) > 0 ? std::sqrt(sum2 / finite_count(*this)) : 0.0; }

double CastStatistics::kurtosis() const { return sum2 > 0 ? finite_count(*this) * (sum4 / sum2) / sum2 : 0.0; }

double CastStatistics::underflow_percent() const { return percent(underflowed, count); }

double CastStatistics::saturated_percent() const { return percent(saturated, count); }

double CastStatistics::sqnr_db() const {
  if (error2 == 0) return std::numeric_limits<double>::infinity();
  return sum2 == 0 ? 0.0 : 10.0 * std::log10(sum2 / error2);
}

}  // namespace quaver
