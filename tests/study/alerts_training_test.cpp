// Alerts on real training: a small model on the CPU with one thing wrong at a time. The alert must name the layer where
// it was planted; runs with nothing wrong raise none.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <set>

#include "numerics/alerts.h"
#include "precision/recipe.h"
#include "train/support.h"
#include "train/trainer.h"

namespace quaver::test {
namespace {

// Trains, samples every step, and watches.
class WatchedTraining {
 public:
  explicit WatchedTraining(const Config& given, const AlertConfig& alerts = {})
      : config_(every_step(given)),
        data_(open_training_data(config_.data, config_.train.seed, config_.model.context)),
        engine_(make_cpu_engine(1)),
        trainer(config_, data_, *engine_, [](const std::string&) {}),
        alarms(alerts) {}

  using Hook = std::function<void(Trainer&)>;

  void steps(int count, const Hook& after_step = nullptr) {
    for (int i = 0; i < count; ++i) step(after_step);
  }

  Parameter& parameter(const std::string& name) { return trainer.model().parameters().find(name); }

  void multiply_weight(const std::string& name, float factor) {
    const View& weight = parameter(name).weight;
    auto* values = static_cast<float*>(weight.data);
    for (Size i = 0; i < weight.rows * weight.cols; ++i) values[i] *= factor;
  }

  std::set<std::string> sites_of(AlertRule rule) const {
    std::set<std::string> sites;
    for (const Alert& alert : raised) {
      if (alert.rule == rule) sites.insert(alert.site);
    }
    return sites;
  }

  std::string texts() const {
    std::string all;
    for (const Alert& alert : raised) all += std::to_string(alert.step) + " " + alert.text + "\n";
    return all;
  }

  std::vector<Alert> raised;
  NumericsSample sample;

 private:
  static Config every_step(Config config) {
    config.train.statistics_every = 1;
    return config;
  }

  void step(const Hook& after_step) {
    const StepReport report = trainer.step();
    if (after_step) after_step(trainer);
    sample = trainer.numerics();
    StepMetrics figures;
    figures.step = static_cast<std::uint64_t>(report.step);
    figures.loss = report.loss;
    figures.gradient_norm = report.gradient_norm;
    figures.learning_rate = report.learning_rate;
    figures.loss_scale = report.loss_scale;
    figures.max_logit = report.max_logit;
    figures.skipped = report.skipped;
    figures.embedding_rms = trainer.embedding_rms();
    const std::vector<Alert> now = alarms.watch(figures, trainer.book(), &sample);
    raised.insert(raised.end(), now.begin(), now.end());
  }

  Config config_;
  TrainingData data_;
  std::unique_ptr<Engine> engine_;

 public:
  Trainer trainer;
  Alarms alarms;
};

Config config_for(const std::string& recipe) {
  Config config = small_config(recipe, "unused");
  config.train.steps = 1000;  // no end of the schedule in sight
  config.train.accumulation = 1;
  config.optim.warmup = 0.02;
  config.optim.learning_rate = 5e-4;
  return config;
}

using Sites = std::set<std::string>;

class HealthyTraining : public testing::TestWithParam<std::string> {};

TEST_P(HealthyTraining, RaisesNothing) {
  WatchedTraining training(config_for(GetParam()));
  training.steps(60);
  EXPECT_TRUE(training.raised.empty()) << training.texts();
}

std::vector<std::string> all_recipes() {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : recipes()) {
    if (recipe.name != "fp8-static") names.emplace_back(recipe.name);  // not calibrated: see below
  }
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Recipes, HealthyTraining, testing::ValuesIn(all_recipes()), test_name);

// The scales that the config has for want of a calibration: a gated MLP's product is too small for them at the start.
TEST(AlertsInTraining, UncalibratedStaticScales) {
  Config config = config_for("fp8-static");
  config.model.family = Family::llama;
  WatchedTraining training(config);
  training.steps(20);
  EXPECT_EQ(training.sites_of(AlertRule::stale_scale), (Sites{"blocks.0.mlp.down/x", "blocks.1.mlp.down/x"}))
      << training.texts();
}

// A scale that was once taken from a far larger tensor and is never set again.
TEST(AlertsInTraining, FrozenDelayedScale) {
  Config config = config_for("fp8-delayed");
  config.precision.history = 8;
  AlertConfig alerts;
  alerts.frozen_steps = 12;
  WatchedTraining training(config, alerts);
  training.steps(4);
  const std::string site = "blocks.1.mlp.up/x";
  const float frozen = training.trainer.book().entry(site).site.scale / 16;
  training.steps(20, [&](Trainer& trainer) { trainer.book().entry(site).site.scale = frozen; });
  EXPECT_EQ(training.sites_of(AlertRule::frozen_scale), Sites{site});
  EXPECT_EQ(training.raised.size(), 1) << training.texts();
  EXPECT_EQ(training.raised.front().act, Act::reset_history);
  // The suggested act helps.
  training.trainer.book().reset_history(site, 24, "suggested");
  training.steps(4);
  EXPECT_TRUE(training.alarms.active().empty());
}

TEST(AlertsInTraining, UnderflowingGradients) {
  Config config = config_for("fp8-current");
  config.precision.layers = {{"blocks.1.mlp.up/dy", "fp8-static"}};
  config.precision.static_gradient_scale = 1e-3;
  WatchedTraining training(config);
  training.steps(8);
  const std::string site = "blocks.1.mlp.up/dy";
  EXPECT_EQ(training.sites_of(AlertRule::underflow), Sites{site}) << training.texts();
  EXPECT_EQ(training.sites_of(AlertRule::stale_scale), Sites{site}) << "and why";
  EXPECT_EQ(training.sites_of(AlertRule::sqnr_deficit), Sites{site}) << "and what it costs";
  EXPECT_EQ(training.raised.size(), 3) << training.texts();
}

TEST(AlertsInTraining, SaturatingActivations) {
  Config config = config_for("fp8-current");
  config.precision.layers = {{"blocks.0.mlp.down/x", "fp8-static"}};
  config.precision.static_activation_scale = 1e4;
  WatchedTraining training(config);
  training.steps(8);
  const std::string site = "blocks.0.mlp.down/x";
  EXPECT_EQ(training.sites_of(AlertRule::saturation), Sites{site}) << training.texts();
  for (const Alert& alert : training.raised) EXPECT_EQ(alert.site, site) << alert.text;
}

TEST(AlertsInTraining, EmbeddingCollapse) {
  Config config = config_for("bf16");
  config.model.tie_head = TieHead::no;
  WatchedTraining training(config);
  training.steps(8);
  EXPECT_TRUE(training.raised.empty()) << training.texts();
  training.steps(8, [&](Trainer&) { training.multiply_weight("embed.weight", 0.5F); });
  EXPECT_EQ(training.sites_of(AlertRule::embedding_collapse), Sites{"embed"}) << training.texts();
}

TEST(AlertsInTraining, HeadCollapse) {
  Config config = config_for("bf16");
  config.model.tie_head = TieHead::no;
  WatchedTraining training(config);
  training.steps(8);
  training.steps(8, [&](Trainer&) { training.multiply_weight("head.weight", 0.2F); });
  EXPECT_EQ(training.sites_of(AlertRule::embedding_collapse), Sites{"head/w"}) << training.texts();
}

// Updates far below a unit in the last place of BF16: even stochastic rounding moves next to nothing.
TEST(AlertsInTraining, UnmovedWeights) {
  Config config = config_for("bf16");
  config.optim.master = MasterWeights::bf16_stochastic;
  config.optim.learning_rate_of = {{"blocks.1.attn.out.weight", 1e-6}};
  config.optim.weight_decay_of = {{"blocks.1.attn.out.weight", 0}};
  WatchedTraining training(config);
  training.steps(8);
  EXPECT_EQ(training.sites_of(AlertRule::unmoved_weights), Sites{"blocks.1.attn.out/w"}) << training.texts();
  EXPECT_EQ(training.raised.size(), 1) << training.texts();
}

TEST(AlertsInTraining, NormBlowUp) {
  WatchedTraining training(config_for("fp8-current"));
  training.steps(8);
  training.multiply_weight("blocks.0.mlp.up.weight", 200);
  training.steps(6);
  EXPECT_EQ(training.sites_of(AlertRule::norm_growth), Sites{"blocks.0.mlp.down/x"}) << training.texts();
}

TEST(AlertsInTraining, NonfiniteNamesTheLayerItCameFrom) {
  WatchedTraining training(config_for("fp8-current"));
  training.steps(4);
  static_cast<float*>(training.parameter("blocks.1.mlp.up.weight").weight.data)[5] = INFINITY;
  training.steps(3);
  EXPECT_EQ(training.sites_of(AlertRule::nonfinite).count("blocks.1.mlp.up/w"), 1) << training.texts();
}

}  // namespace
}  // namespace quaver::test
