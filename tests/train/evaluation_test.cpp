// Losses against their definition: the mean over tokens, over the batches that were asked for.
#include "precision/recipe.h"
#include "train/own_text.h"

namespace quaver::test {
namespace {

Config short_config() {
  Config config = small_config("fp32", "unused");
  config.model.context = 8;
  config.train.batch = 2;
  return config;
}

TEST(Evaluation, IsTheMeanLossOfATokenOfTheBatchesAskedFor) {
  OwnTrainer own(short_config());
  const double first = own.loss_of(*own.data.valid, 0);
  const double second = own.loss_of(*own.data.valid, 1);
  const double third = own.loss_of(*own.data.valid, 2);
  ASSERT_GT(std::abs(first - second), 1e-3);
  EXPECT_NEAR(own.trainer.evaluate(1).value(), first, 2e-5);
  EXPECT_NEAR(own.trainer.evaluate(3).value(), (first + second + third) / 3, 2e-5);
}

// Three windows fill one batch of two and half of the next: what goes round the end is not read again and again.
TEST(Evaluation, OfAShortTextReadsEachWindowOnce) {
  OwnTrainer own(short_config(), 3);
  const double first = own.loss_of(*own.data.valid, 0);
  const double second = own.loss_of(*own.data.valid, 1);
  EXPECT_NEAR(own.trainer.evaluate(1).value(), first, 2e-5);
  EXPECT_NEAR(own.trainer.evaluate(2).value(), (first + second) / 2, 2e-5);
  EXPECT_NEAR(own.trainer.evaluate(8).value(), (first + second) / 2, 2e-5);
}

TEST(Evaluation, WithoutValidationTextThereIsNone) {
  OwnTrainer own(short_config());
  own.data.valid.reset();
  EXPECT_FALSE(own.trainer.evaluate(1).has_value());
}

TEST(TrainingStep, ReportsTheMeanLossOfItsMicroBatches) {
  OwnTrainer own(short_config());  // two micro-batches
  const double first = (own.loss_of(*own.data.train, 0) + own.loss_of(*own.data.train, 1)) / 2;
  const StepReport one = own.trainer.step();
  EXPECT_NEAR(one.loss, first, 2e-5);
  EXPECT_EQ(one.step, 1);
  EXPECT_EQ(one.tokens, 2 * 2 * 8);
  const double second = (own.loss_of(*own.data.train, 2) + own.loss_of(*own.data.train, 3)) / 2;
  EXPECT_NEAR(own.trainer.step().loss, second, 2e-5);
}

TEST(TrainingStep, SkippedBatchesAreNeverSeen) {
  OwnTrainer own(short_config());
  own.trainer.step();
  own.trainer.skip_batches(3);
  const double next = (own.loss_of(*own.data.train, 5) + own.loss_of(*own.data.train, 6)) / 2;
  EXPECT_NEAR(own.trainer.step().loss, next, 2e-5);
}

// switch_at is a share of all steps: half of six leaves the fourth to begin with the other recipe.
TEST(RecipeSwitch, ComesAfterTheShareOfTheStepsThatTheConfigSays) {
  Config config = short_config();
  config.precision.recipe = "bf16";
  config.precision.switch_to = "fp8-delayed";
  config.precision.switch_at = 0.5;
  OwnTrainer own(config);
  const auto format = [&] { return own.trainer.book().entry("blocks.0.mlp.up/x").site.spec.rows.format; };
  for (int step = 0; step < 3; ++step) own.trainer.step();
  EXPECT_EQ(format(), Format::bf16);
  EXPECT_TRUE(own.notices.empty());
  own.trainer.step();
  EXPECT_EQ(format(), Format::e4m3);
  const auto& changes = own.trainer.book().entry("blocks.0.mlp.up/x").changes;
  ASSERT_FALSE(changes.empty());
  EXPECT_EQ(changes[0].step, 3U);
  EXPECT_EQ(changes[0].reason, "switch to fp8-delayed");
  ASSERT_EQ(own.notices.size(), 1U);
  EXPECT_EQ(own.notices[0], "step 3: the rest of the run uses fp8-delayed");
}

// The learning rate of each step: a linear warm-up over half of the steps, then a constant.
TEST(TrainingStep, LearningRateAndGradientNormAreThoseOfTheStep) {
  Config config = short_config();
  config.optim.schedule = ScheduleShape::constant;
  config.optim.warmup = 0.5;
  config.optim.learning_rate = 0.06;
  config.train.accumulation = 1;
  OwnTrainer own(config);
  const ProbeResult probe = own.trainer.probe(own.trainer.specs(), 0, ProbeWhat::gradients);
  double square = 0;
  for (const auto& gradient : probe.gradients) {
    for (const float value : gradient) square += static_cast<double>(value) * value;
  }
  const StepReport first = own.trainer.step();
  EXPECT_NEAR(first.learning_rate, 0.015, 1e-12);
  EXPECT_NEAR(first.gradient_norm, std::sqrt(square), 1e-5 * std::sqrt(square));
  EXPECT_NEAR(own.trainer.step().learning_rate, 0.03, 1e-12);
  EXPECT_NEAR(own.trainer.step().learning_rate, 0.045, 1e-12);
  EXPECT_NEAR(own.trainer.step().learning_rate, 0.06, 1e-12);
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(
      a.begin(), a.end(), b.begin(), 0.0, [](double sum, double term) { return sum + term; },
      [](float x, float y) { return static_cast<double>(x) * y; });
}

// Of two micro-batches with gradients g and h the mean m has E‖m‖² = ‖E‖² + σ²/2 and E‖g‖² = ‖E‖² + σ²: with one draw
// of each, σ² = 2(‖g‖² − ‖m‖²) and ‖E‖² = 2‖m‖² − ‖g‖².
TEST(TrainingStep, SignalToNoiseOfTwoMicroBatches) {
  Config config = short_config();
  config.train.statistics_every = 1;
  OwnTrainer own(config);
  const auto g = own.trainer.probe(own.trainer.specs(), 0, ProbeWhat::gradients).gradients;
  const auto h = own.trainer.probe(own.trainer.specs(), 1, ProbeWhat::gradients).gradients;
  double first = 0, mean = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    first += dot(g[i], g[i]);
    mean += (dot(g[i], g[i]) + 2 * dot(g[i], h[i]) + dot(h[i], h[i])) / 4;
  }
  ASSERT_GT(2 * mean, first) << "choose other text: the estimate is zero";
  EXPECT_NEAR(own.trainer.step().gradient_snr, std::sqrt((2 * mean - first) / (2 * (first - mean))), 1e-4);
  const auto& parameters = own.trainer.model().parameters().all();
  const NumericsSample sample = own.trainer.numerics();
  int compared = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].site == nullptr) continue;
    const double one = dot(g[i], g[i]);
    const double both = (one + 2 * dot(g[i], h[i]) + dot(h[i], h[i])) / 4;
    const auto& entries = own.trainer.book().entries();
    for (std::size_t s = 0; s < entries.size(); ++s) {
      if (&entries[s]->site != parameters[i].site || one <= both) continue;
      EXPECT_NEAR(sample.sites[s][Statistic::gradient_snr],
                  std::sqrt(std::max(0.0, 2 * both - one) / (2 * (one - both))), 2e-3)
          << parameters[i].name;
      ++compared;
    }
  }
  EXPECT_GE(compared, 6);
}

TEST(TrainingStep, WithOneMicroBatchThereIsNoSignalToNoise) {
  Config config = short_config();
  config.train.statistics_every = 1;
  config.train.accumulation = 1;
  OwnTrainer own(config);
  EXPECT_TRUE(std::isnan(own.trainer.step().gradient_snr));
}

TEST(TrainingStep, IsSampledAsOftenAsTheConfigSays) {
  Config config = short_config();
  config.train.statistics_every = 2;
  OwnTrainer own(config);
  std::vector<bool> sampled;
  for (int i = 0; i < 5; ++i) sampled.push_back(own.trainer.step().sampled);
  EXPECT_EQ(sampled, (std::vector<bool>{true, false, true, false, true}));
}

struct Moved {
  double ratio = 0;
  double unmoved_percent = 0;
};

// ‖Δw‖/‖w‖ and the share of weights that stay, of all matrices, from the weights before and after a step.
Moved moved_by_step(OwnTrainer& own, StepReport& report) {
  const auto weights = [&] {
    std::vector<float> all;
    for (const Parameter& parameter : own.trainer.model().parameters().all()) {
      if (parameter.kind == ParameterKind::vector) continue;
      std::vector<float> values(static_cast<std::size_t>(parameter.count()));
      own.engine->device().download(parameter.weight.data, values.data(), values.size() * sizeof(float));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const std::vector<float> before = weights();
  report = own.trainer.step();
  const std::vector<float> after = weights();
  double change2 = 0, size2 = 0, unmoved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double change = static_cast<double>(after[i]) - before[i];
    change2 += change * change;
    size2 += static_cast<double>(before[i]) * before[i];
    unmoved += change == 0 ? 1 : 0;
  }
  return {std::sqrt(change2 / size2), 100 * unmoved / static_cast<double>(before.size())};
}

TEST(TrainingStep, UpdateRatioIsThatOfTheWeights) {
  OwnTrainer own(short_config());
  StepReport report;
  const Moved moved = moved_by_step(own, report);
  EXPECT_NEAR(report.update_ratio, moved.ratio, 0.02 * moved.ratio);
  EXPECT_EQ(report.unmoved_percent, moved.unmoved_percent);
}

TEST(TrainingStep, WeightsThatTheUpdateDidNotChangeAreCounted) {
  Config config = short_config();
  config.optim.schedule = ScheduleShape::constant;
  config.optim.warmup = 0;
  config.optim.learning_rate = 1e-9;  // of the size of half a unit in the last place of 0.02
  OwnTrainer own(config);
  StepReport report;
  const Moved moved = moved_by_step(own, report);
  EXPECT_GT(moved.unmoved_percent, 5);
  EXPECT_LT(moved.unmoved_percent, 95);
  EXPECT_NEAR(report.unmoved_percent, moved.unmoved_percent, 1e-9);
}

// A site overflows where more than one percent of its elements saturate, and wide ones never do.
TEST(TrainingStep, OverflowsAreTheSitesThatSaturate) {
  Config config = short_config();
  config.precision.recipe = "fp8-static";
  config.precision.static_activation_scale = 1e6;
  OwnTrainer own(config);
  const StepReport report = own.trainer.step();
  std::uint64_t overflows = 0, saturated = 0, underflowed = 0;
  for (const auto& entry : own.trainer.book().entries()) {
    const CastStatistics& seen = entry->last_step;
    overflows += 100 * seen.saturated > seen.count && entry->site.spec.rows.format != Format::bf16 ? 1 : 0;
    saturated += seen.saturated;
    underflowed += seen.underflowed;
  }
  EXPECT_GE(overflows, 4U) << "the inputs of qkv and up of two blocks, at least";
  EXPECT_EQ(report.overflows, overflows);
  EXPECT_EQ(report.saturated, saturated);
  EXPECT_EQ(report.underflowed, underflowed);
}

}  // namespace
}  // namespace quaver::test
