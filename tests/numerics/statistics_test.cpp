// The sample of a step holds what the book's casts saw, and says NaN where nothing was measured.
#include "numerics/statistics.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <set>

namespace quaver::test {
namespace {

Site& add(ScaleBook& book, const std::string& name, const QuantSpec& spec) {
  return book.add({.site = name, .layer = {}, .role = Role::x, .recipe = {}, .reason = {}, .spec = {spec, spec}});
}

CastStatistics cast(const std::vector<float>& x, Format format, float scale, Detail detail) {
  CodeMatrix out{{.format = format, .policy = ScalePolicy::fixed}, 1, static_cast<Size>(x.size())};
  std::vector<std::byte> codes(static_cast<std::size_t>(out.code_bytes()));
  float tensor_scale = 1;
  out.codes = codes.data();
  out.tensor_scale = &tensor_scale;
  return quantize({x.data(), 1, out.cols},
                  {.side = Side::rows, .given_scale = scale, .random = {1, 2, 3}, .detail = detail}, out);
}

constexpr QuantSpec fixed_e4m3{.format = Format::e4m3, .policy = ScalePolicy::fixed};

TEST(Statistics, TableIsInTheOrderOfTheEnumeration) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < statistic_count; ++i) {
    EXPECT_EQ(static_cast<std::size_t>(all_statistics()[i].statistic), i);
    EXPECT_EQ(&info(static_cast<Statistic>(i)), &all_statistics()[i]);
    EXPECT_FALSE(all_statistics()[i].doc.empty());
    names.insert(all_statistics()[i].name);
  }
  EXPECT_EQ(names.size(), statistic_count);
}

// A normal tensor in E4M3 has some 31 dB with a scale that fits, and next to none with one that is 64 times too large
// or takes it below the subnormal numbers.
TEST(Statistics, TheDeficitIsWhatAScaleThatDoesNotFitCosts) {
  std::mt19937_64 random(5);
  std::vector<float> x(4096);
  for (float& value : x) value = static_cast<float>(std::normal_distribution<double>()(random));
  const auto deficit_with = [&](const QuantSpec& spec, float scale) {
    ScaleBook book;
    Site& site = add(book, "a/x", spec);
    site.scale = scale;
    site.seen = cast(x, spec.format, scale, Detail::full);
    book.end_step(1);
    return sample_of(book, 1).sites[0][Statistic::sqnr_deficit_db];
  };
  EXPECT_EQ(deficit_with(fixed_e4m3, 100), 0);
  EXPECT_GT(deficit_with(fixed_e4m3, 64 * 100), 28);
  EXPECT_GT(deficit_with(fixed_e4m3, 1e-4F), 28);
  const QuantSpec e5m2{.format = Format::e5m2, .policy = ScalePolicy::fixed};
  EXPECT_EQ(deficit_with(e5m2, 1000), 0);
  const float half_clipped = deficit_with(fixed_e4m3, 448);
  EXPECT_GT(half_clipped, 12) << "a third beyond the largest value";
  EXPECT_LT(half_clipped, 28);
  EXPECT_TRUE(std::isnan(deficit_with({.format = Format::bf16}, 1)));
}

TEST(Statistics, AreThoseOfTheCast) {
  ScaleBook book;
  Site& site = add(book, "a/x", fixed_e4m3);
  site.scale = 2;
  const std::vector<float> x{0, 1e-6F, -3, 300, 0.5F, 0.25F, 0.125F, -1};
  site.seen = cast(x, Format::e4m3, 2, Detail::full);
  book.end_step(7);
  const NumericsSample sample = sample_of(book, 7);
  ASSERT_EQ(sample.sites.size(), 1);
  const SiteSample& values = sample.sites[0];
  EXPECT_EQ(sample.step, 7);
  EXPECT_EQ(values[Statistic::scale], 2);
  EXPECT_EQ(values[Statistic::amax], 300);
  EXPECT_EQ(values[Statistic::min_nonzero], 1e-6F);
  EXPECT_FLOAT_EQ(values[Statistic::underflow_percent], 12.5F);
  EXPECT_FLOAT_EQ(values[Statistic::saturated_percent], 12.5F);
  EXPECT_EQ(values[Statistic::nonfinite], 0);
  EXPECT_NEAR(values[Statistic::headroom_log2], std::log2(448.0 / 600), 1e-6);
  double sum = 0, sum2 = 0;
  for (const float value : x) {
    sum += value;
    sum2 += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(values[Statistic::mean], sum / 8, 1e-4);
  EXPECT_NEAR(values[Statistic::rms], std::sqrt(sum2 / 8), 1e-3);
  EXPECT_NEAR(values[Statistic::std], std::sqrt(sum2 / 8 - sum * sum / 64), 1e-3);
  EXPECT_NEAR(values[Statistic::sqnr_db], 10 * std::log10(sum2 / (76.0 * 76.0)), 1e-3);  // 300 became 224
  EXPECT_EQ(sample.binades[0][40 - 1], 1) << "0.5";
  EXPECT_EQ(sample.binades[0][40 + 8], 1) << "300";
  for (const Statistic other : {Statistic::gradient_snr, Statistic::update_ratio, Statistic::unmoved_percent,
                                Statistic::shadow_cosine, Statistic::shadow_error}) {
    EXPECT_TRUE(std::isnan(values[other])) << "no cast knows it";
  }
}

// One micro-step of several collects full statistics, and end_step has moved the scale by the time the sample is taken.
TEST(Statistics, CountsAreTheStepsTheRestIsTheSamples) {
  ScaleBook book;
  Site& site = add(book, "a/x", {.format = Format::e4m3, .policy = ScalePolicy::delayed});
  site.scale = 2;
  site.seen = cast({1, -1, 3, 0.5F}, Format::e4m3, 2, Detail::full);
  book.take_samples();
  site.seen.merge(cast({300, 1e-6F, 1, 1}, Format::e4m3, 2, Detail::counts));
  book.end_step(1);
  ASSERT_NE(site.scale, 2);
  const NumericsSample sample = sample_of(book, 1);
  const SiteSample& values = sample.sites[0];
  EXPECT_EQ(values[Statistic::amax], 300);
  EXPECT_FLOAT_EQ(values[Statistic::underflow_percent], 12.5F);
  EXPECT_FLOAT_EQ(values[Statistic::saturated_percent], 12.5F);
  EXPECT_EQ(values[Statistic::scale], 2) << "the one that was used";
  EXPECT_NEAR(values[Statistic::headroom_log2], std::log2(448.0 / 600), 1e-6);
  EXPECT_NEAR(values[Statistic::rms], std::sqrt(11.25 / 4), 1e-6);
  EXPECT_EQ(values[Statistic::min_nonzero], 0.5F);
  EXPECT_EQ(sample.binades[0][40 + 8], 0) << "300 was in another micro-step";
}

TEST(Statistics, WithoutFullDetailOnlyCounts) {
  ScaleBook book;
  Site& site = add(book, "a/x", fixed_e4m3);
  site.scale = 1;
  site.seen = cast({1, 2, 3}, Format::e4m3, 1, Detail::counts);
  book.end_step(1);
  const SiteSample values = sample_of(book, 1).sites[0];
  EXPECT_EQ(values[Statistic::amax], 3);
  EXPECT_EQ(values[Statistic::underflow_percent], 0);
  for (const Statistic full : {Statistic::rms, Statistic::mean, Statistic::std, Statistic::kurtosis, Statistic::sqnr_db,
                               Statistic::min_nonzero}) {
    EXPECT_TRUE(std::isnan(values[full])) << info(full).name;
  }
}

TEST(Statistics, ASiteThatSawNothingHasNone) {
  ScaleBook book;
  add(book, "a/x", fixed_e4m3);
  const SiteSample values = sample_of(book, 1).sites[0];
  for (const StatisticInfo& statistic : all_statistics()) {
    EXPECT_TRUE(std::isnan(values[statistic.statistic])) << statistic.name;
  }
}

TEST(Statistics, ATensorOfZerosHasNoSmallestValueAndNoHeadroom) {
  ScaleBook book;
  Site& site = add(book, "a/x", fixed_e4m3);
  site.scale = 1;
  site.seen = cast({0, 0, 0}, Format::e4m3, 1, Detail::full);
  book.end_step(1);
  const SiteSample values = sample_of(book, 1).sites[0];
  EXPECT_EQ(values[Statistic::amax], 0);
  EXPECT_TRUE(std::isnan(values[Statistic::min_nonzero]));
  EXPECT_TRUE(std::isnan(values[Statistic::headroom_log2]));
  EXPECT_EQ(values[Statistic::rms], 0);
}

// Their scales differ from cast to cast, or from block to block.
TEST(Statistics, CurrentScalesAreNotOneFigure) {
  ScaleBook book;
  Site& current = add(book, "a/x", {.format = Format::e4m3, .policy = ScalePolicy::current});
  Site& none = add(book, "b/x", {.format = Format::e4m3});
  current.seen = none.seen = cast({1, 2, 4}, Format::e4m3, 1, Detail::full);
  book.end_step(1);
  const NumericsSample sample = sample_of(book, 1);
  EXPECT_TRUE(std::isnan(sample.sites[0][Statistic::scale]));
  EXPECT_TRUE(std::isnan(sample.sites[0][Statistic::headroom_log2]));
  EXPECT_EQ(sample.sites[1][Statistic::scale], 1) << "unit scaling multiplies by nothing";
  EXPECT_NEAR(sample.sites[1][Statistic::headroom_log2], std::log2(112.0), 1e-6);
}

}  // namespace
}  // namespace quaver::test
