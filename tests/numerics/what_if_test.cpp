// What the histogram predicts against what casts of the same data do.
#include "numerics/what_if.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <random>

#include "formats/quantize.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

struct Source {
  std::string name;
  std::vector<float> values;
};

std::vector<float> draw(std::size_t count, const std::function<double(std::mt19937_64&)>& one) {
  std::mt19937_64 random(17);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(one(random));
  return values;
}

double normal(std::mt19937_64& random) { return std::normal_distribution<double>()(random); }
double sign(std::mt19937_64& random) { return (random() & 1U) != 0 ? 1 : -1; }

std::vector<Source> sources() {
  constexpr std::size_t many = 1U << 16U;
  const auto student = [](double freedom) {
    return [freedom](std::mt19937_64& random) { return std::student_t_distribution<double>(freedom)(random); };
  };
  const auto lognormal = [](double sigma) {
    return [sigma](std::mt19937_64& random) { return sign(random) * std::exp(sigma * normal(random)); };
  };
  return {{"normal", draw(many, normal)},
          {"small normal", draw(many, [](auto& random) { return 3.3e-5 * normal(random); })},
          {"few normal", draw(1024, normal)},
          {"uniform", draw(many, [](auto& random) { return std::uniform_real_distribution<double>(-1, 1)(random); })},
          {"lognormal 1", draw(many, lognormal(1))},
          {"lognormal 3", draw(many, lognormal(3))},
          {"student 3", draw(many, student(3))},
          {"student 1.5", draw(many, student(1.5))},
          {"gelu", draw(many,
                        [](auto& random) {
                          const double x = normal(random);
                          return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
                        })},
          {"half zeros", draw(many, [](auto& random) { return std::max(0.0, normal(random)); })}};
}

CastStatistics cast(const std::vector<float>& x, Format format, float scale, Rounding rounding) {
  QuantSpec spec;
  spec.format = format;
  spec.policy = is_low_precision(format) ? ScalePolicy::fixed : ScalePolicy::none;
  spec.rounding = rounding;
  CodeMatrix out{spec, static_cast<Size>(x.size()) / 64, 64};
  std::vector<std::byte> codes(static_cast<std::size_t>(out.code_bytes()));
  float tensor_scale = 1;
  out.codes = codes.data();
  out.tensor_scale = &tensor_scale;
  return quantize({x.data(), out.rows, out.cols},
                  {.side = Side::rows, .given_scale = scale, .random = {1, 2, 3}, .detail = Detail::full}, out);
}

struct Worst {
  double underflow = 0, saturated = 0, sqnr = 0;
};

void compare(const std::string& where, const CastPrediction& model, const CastStatistics& real, Worst& worst) {
  SCOPED_TRACE(where);
  const auto differ = [](double a, double b) { return a == b ? 0.0 : std::abs(a - b); };  // inf − inf
  const double underflow = differ(model.underflow_percent, real.underflow_percent());
  const double saturated = differ(model.saturated_percent, real.saturated_percent());
  const double sqnr = differ(model.sqnr_db, real.sqnr_db());
  // GELU's bulk lies inside one binade, and so does the value up to which 4 bits give zero.
  EXPECT_LE(underflow, where.starts_with("gelu e2m1") ? 9.0 : 1.5)
      << model.underflow_percent << " " << real.underflow_percent();
  EXPECT_LE(saturated, 2.5) << model.saturated_percent << " " << real.saturated_percent();
  // Under so heavy a tail a few elements carry most of the sum of squares, and the noise is theirs.
  const bool heavy = where.starts_with("lognormal 3") || where.starts_with("student 1.5");
  const double tolerance = heavy ? 3.5 : 1.6;
  EXPECT_LE(sqnr, tolerance) << model.sqnr_db << " " << real.sqnr_db();
  worst.underflow = std::max(worst.underflow, underflow);
  worst.saturated = std::max(worst.saturated, saturated);
  worst.sqnr = std::max(worst.sqnr, sqnr);
}

void record(const Worst& worst) {
  testing::Test::RecordProperty("underflow", std::to_string(worst.underflow));
  testing::Test::RecordProperty("saturated", std::to_string(worst.saturated));
  testing::Test::RecordProperty("sqnr", std::to_string(worst.sqnr));
}

TEST(WhatIf, TheNaturalScaleTakesTheLargestValueToTheFormatsEnd) {
  Distribution distribution;
  distribution.binades[40 - 20] = 1000;  // [2^-20, 2^-19)
  distribution.amax = 0x1.8p-20F;
  for (const Format format : {Format::e2m1, Format::e4m3, Format::e5m2}) {
    EXPECT_FLOAT_EQ(natural_scale(distribution, format) * distribution.amax, info(format).max);
    EXPECT_EQ(what_if(distribution, format).scale, natural_scale(distribution, format));
    EXPECT_EQ(what_if(distribution, format).underflow_percent, 0);
  }
}

TEST(WhatIf, PredictsTheCastToEveryFormatAtItsNaturalScale) {
  Worst worst;
  for (const Source& source : sources()) {
    const CastStatistics seen = cast(source.values, Format::f32, 1, Rounding::nearest_even);
    const Distribution distribution = distribution_of(seen);
    for (const Format format : {Format::e2m1, Format::e4m3, Format::e5m2, Format::f16, Format::bf16, Format::tf32}) {
      const CastPrediction model = what_if(distribution, format);
      const CastStatistics real = cast(source.values, format, model.scale, Rounding::nearest_even);
      compare(source.name + " " + std::string(info(format).name), model, real, worst);
    }
  }
  record(worst);
}

// From scales that lose the small values to scales that saturate a share of the large ones.
TEST(WhatIf, PredictsTheCastAtOtherScales) {
  Worst worst;
  for (const Source& source : sources()) {
    const Distribution distribution = distribution_of(cast(source.values, Format::f32, 1, Rounding::nearest_even));
    for (const Format format : {Format::e2m1, Format::e4m3, Format::e5m2}) {
      for (const float factor : {1e-6F, 0.0009F, 0.37F, 0.5F, 2.0F}) {
        const float scale = natural_scale(distribution, format) * factor;
        // A few saturated outliers that carry most of the sum of squares are no matter for a histogram.
        if (factor > 1 && source.name.find("student") == 0) continue;
        if (factor > 1 && source.name == "lognormal 3") continue;
        const CastPrediction model = what_if(distribution, format, scale);
        const CastStatistics real = cast(source.values, format, scale, Rounding::nearest_even);
        compare(source.name + " " + std::string(info(format).name) + " " + std::to_string(factor), model, real, worst);
      }
    }
  }
  record(worst);
}

TEST(WhatIf, PredictsHeavySaturation) {
  Worst worst;
  for (const Source& source : sources()) {
    const Distribution distribution = distribution_of(cast(source.values, Format::f32, 1, Rounding::nearest_even));
    if (source.name.find("student") == 0 || source.name == "lognormal 3") continue;
    for (const Format format : {Format::e4m3, Format::e5m2}) {
      const float scale = natural_scale(distribution, format) * 20;
      compare(source.name + " " + std::string(info(format).name), what_if(distribution, format, scale),
              cast(source.values, format, scale, Rounding::nearest_even), worst);
    }
  }
}

TEST(WhatIf, PredictsStochasticRounding) {
  Worst worst;
  for (const Source& source : sources()) {
    const Distribution distribution = distribution_of(cast(source.values, Format::f32, 1, Rounding::nearest_even));
    for (const Format format : {Format::e2m1, Format::e4m3, Format::e5m2}) {
      const CastPrediction model = what_if(distribution, format, Rounding::stochastic);
      const CastStatistics real = cast(source.values, format, model.scale, Rounding::stochastic);
      compare(source.name + " " + std::string(info(format).name), model, real, worst);
    }
  }
}

// The run store keeps statistics and binades, not the number of zeros.
TEST(WhatIf, ZerosAreInferredFromTheRms) {
  for (const Source& source : sources()) {
    const CastStatistics seen = cast(source.values, Format::f32, 1, Rounding::nearest_even);
    SiteSample values;
    values[Statistic::amax] = seen.amax;
    values[Statistic::min_nonzero] = seen.min_nonzero;
    values[Statistic::rms] = static_cast<float>(seen.rms());
    const CastPrediction model = what_if(distribution_of(values, seen.binades), Format::e2m1);
    const CastStatistics real = cast(source.values, Format::e2m1, model.scale, Rounding::nearest_even);
    const double tolerance = source.name == "gelu" ? 9.0 : 0.05 * real.underflow_percent() + 0.5;
    EXPECT_NEAR(model.underflow_percent, real.underflow_percent(), tolerance) << source.name;
  }
}

TEST(WhatIf, NothingIsLostInF32) {
  const std::vector<float> x = draw(1024, normal);
  const CastPrediction predicted =
      what_if(distribution_of(cast(x, Format::f32, 1, Rounding::nearest_even)), Format::f32, 1.0F);
  EXPECT_EQ(predicted.underflow_percent, 0);
  EXPECT_EQ(predicted.saturated_percent, 0);
  EXPECT_EQ(predicted.sqnr_db, std::numeric_limits<double>::infinity());
}

TEST(WhatIf, OneMagnitudeOnlyIsExactOnTheGrid) {
  const std::vector<float> x(1024, 0.75F);
  const Distribution distribution = distribution_of(cast(x, Format::f32, 1, Rounding::nearest_even));
  const CastPrediction predicted = what_if(distribution, Format::e4m3, 1.0F);
  EXPECT_EQ(predicted.underflow_percent, 0);
  EXPECT_EQ(predicted.saturated_percent, 0);
  EXPECT_GT(predicted.sqnr_db, 100);
  EXPECT_EQ(what_if(distribution, Format::e4m3, 0.001F).underflow_percent, 100);
  EXPECT_EQ(what_if(distribution, Format::e4m3, 1000.0F).saturated_percent, 100);
}

// A store may hold anything: statistics that contradict the histogram give numbers, not undefined behavior.
TEST(WhatIf, NonsenseGivesFiguresInRange) {
  std::mt19937_64 random(3);
  const float odd[] = {0, -1, 1e-45F, 1e-30F, 1, 3e38F, INFINITY, -INFINITY, NAN};
  for (int round = 0; round < 2000; ++round) {
    Distribution d;
    for (int i = 0; i < 5; ++i) d.binades[random() % 64] = random() >> (random() % 64);
    d.amax = odd[random() % std::size(odd)];
    d.min_nonzero = odd[random() % std::size(odd)];
    d.rms = odd[random() % std::size(odd)];
    d.count = odd[random() % std::size(odd)];
    for (const Format format : all_formats) {
      const float scale = std::exp2(static_cast<float>(random() % 200) - 100);
      for (const CastPrediction& predicted : {what_if(d, format), what_if(d, format, scale, Rounding::stochastic)}) {
        EXPECT_GE(predicted.underflow_percent, 0);
        EXPECT_LE(predicted.underflow_percent, 100.001);
        EXPECT_GE(predicted.saturated_percent, 0);
        EXPECT_LE(predicted.saturated_percent, 100.001);
        EXPECT_FALSE(std::isnan(predicted.sqnr_db));
      }
    }
  }
}

TEST(WhatIf, NoElementsNoFigures) {
  EXPECT_TRUE(std::isnan(what_if({}, Format::e4m3).sqnr_db));
  EXPECT_TRUE(std::isnan(what_if({}, Format::e4m3).underflow_percent));
  EXPECT_EQ(natural_scale({}, Format::e4m3), 1);
}

TEST(WhatIf, RefusesAScaleThatIsNone) {
  for (const float scale : {0.0F, -1.0F, INFINITY, NAN}) {
    EXPECT_THROW(what_if({}, Format::e4m3, scale), Error);
    EXPECT_THROW(format_range(Format::e4m3, scale), Error);
  }
}

// Just below `lowest` the cast gives zero, just above it does not; `largest` is the last value that does not saturate.
TEST(FormatRange, EndsWhereTheCastDoes) {
  for (const Format format : {Format::e2m1, Format::e4m3, Format::e5m2, Format::f16, Format::bf16}) {
    for (const float scale : {1.0F, 0.3F, 1024.0F}) {
      const FormatRange range = format_range(format, scale);
      const auto at = [&](double exponent) { return static_cast<float>(std::exp2(exponent) * scale); };
      EXPECT_EQ(decode(format, encode(format, at(range.lowest - 0.01))), 0);
      EXPECT_GT(decode(format, encode(format, at(range.lowest + 0.01))), 0);
      EXPECT_NEAR(at(range.smallest_normal), info(format).min_normal, 1e-5 * info(format).min_normal);
      EXPECT_NEAR(std::exp2(range.largest) * scale / info(format).max, 1, 1e-5);
    }
  }
}

}  // namespace
}  // namespace quaver::test
