// What a trainer does, by hand: which steps are sampled, how much weights decay, what a prompt is continued from, what
// a run's result keeps after a rewind.
#include <gmock/gmock.h>

#include "data/tokenizer.h"
#include "quaver/error.h"
#include "train/memory_plan.h"
#include "train/own_text.h"
#include "train/resolved_config.h"
#include "train/sampling.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;

std::vector<bool> sampled(Size statistics_every, Size shadow_every) {
  Config config = small_config("fp8-current", "unused");
  config.train.statistics_every = statistics_every;
  config.train.shadow_every = shadow_every;
  OwnTrainer own(config);
  std::vector<bool> steps;
  for (int i = 0; i < 5; ++i) steps.push_back(own.trainer.step().sampled);
  return steps;
}

TEST(Sampling, IsDueWithStatisticsAndWithShadowChecks) {
  EXPECT_THAT(sampled(0, 0), ElementsAre(false, false, false, false, false));
  EXPECT_THAT(sampled(2, 0), ElementsAre(true, false, true, false, true));
  EXPECT_THAT(sampled(0, 3), ElementsAre(true, false, false, true, false));
  EXPECT_THAT(sampled(4, 3), ElementsAre(true, false, false, true, true));
}

// One step without a learning rate to speak of: what is left is the decay.
double decayed_to(Parametrization parametrization, double learning_rate) {
  Config config = small_config("fp32", "unused");
  config.model.parametrization = parametrization;
  config.optim.learning_rate = config.optim.unit_learning_rate = learning_rate;
  config.optim.weight_decay = 0.5;
  config.optim.schedule = ScheduleShape::constant;
  config.optim.warmup = 0;
  OwnTrainer own(config);
  Parameter& weight = own.trainer.model().parameters().find("blocks.0.mlp.up.weight");
  const float before = weight.weight.f32()[7];
  own.trainer.step();
  return weight.weight.f32()[7] / before;
}

TEST(Decay, OfUnitScaledWeightsDoesNotFollowTheLearningRate) {
  EXPECT_NEAR(decayed_to(Parametrization::umup, 1e-12), 1 - 0.5 / 1024, 2e-7);
  EXPECT_NEAR(decayed_to(Parametrization::standard, 1e-12), 1, 2e-7);
}

TEST(Prompt, IsContinuedFromItsLastTokens) {
  Config config = small_config("fp32", "unused");
  config.model.context = 8;
  OwnTrainer own(config);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 20; ++i) tokens.push_back((i * 7 + i * i) % 32);
  const std::span<const std::int32_t> all(tokens);
  const auto logits = own.trainer.next_token_logits(all);
  EXPECT_EQ(logits, own.trainer.next_token_logits(all.last(8)));
  EXPECT_NE(logits, own.trainer.next_token_logits(all.first(8)));
  EXPECT_NE(logits, own.trainer.next_token_logits(all.last(7)));
}

TEST(Prompt, EmptyBeginsAfterAnEndOfTextThatIsNotShown) {
  Config config = small_config("fp32", "unused");
  config.model.vocab = 320;
  config.data.synthetic_vocab = 300;
  OwnTrainer own(config);
  const auto tokenizer = load_tokenizer("bytes");
  const std::string nothing = sample_text(own.trainer, *tokenizer, {.prompt = {""}, .tokens = 0});
  EXPECT_EQ(nothing, "");
  EXPECT_EQ(sample_text(own.trainer, *tokenizer, {.prompt = {"ab"}, .tokens = 0}), "ab");
  const std::string three = sample_text(own.trainer, *tokenizer, {.prompt = {"ab"}, .tokens = 3, .temperature = 0});
  EXPECT_LE(three.size(), 5U);
  EXPECT_TRUE(three.starts_with("ab"));
}

TEST(PlannedMemory, OfARunThatSwitchesIsThatOfTheLargerRecipe) {
  const auto needed = [](const std::string& recipe, const std::string& later) {
    Config config = small_config(recipe, "unused");
    config.precision.switch_to = later;
    return plan_memory(resolve_shape(config, {.vocab = 32}), make_cpu_engine(1)->device().hardware()).engine_total();
  };
  const Size small = std::min(needed("fp8-delayed", ""), needed("fp32", ""));
  const Size large = std::max(needed("fp8-delayed", ""), needed("fp32", ""));
  ASSERT_LT(small, large);
  EXPECT_EQ(needed("fp8-delayed", "fp32"), large);
  EXPECT_EQ(needed("fp32", "fp8-delayed"), large);
}

// Loss and gradient norm of every step appear once, also of the one that a run goes back to.
TEST(Rewound, ARunKeepsTheLossOfTheStepItGoesBackTo) {
  const TemporaryFolder folder;
  const Config config = diverging_config(folder.path() / "run");
  std::atomic<bool> stop{false};
  RunOptions options;
  options.stop = &stop;
  options.observer.warning = [&](const std::string& text) {
    if (text.find("back to step") != std::string::npos) stop = true;
  };
  const RunResult result = run_training(config, options);
  ASSERT_EQ(result.end, RunEnd::interrupted);
  ASSERT_EQ(result.losses.size(), static_cast<std::size_t>(result.steps));
  for (std::size_t i = 0; i < result.losses.size(); ++i) EXPECT_EQ(result.losses[i].step, static_cast<Size>(i) + 1);
}

}  // namespace
}  // namespace quaver::test
