// What a trainer promises of steps that fail or are skipped, of looking without touching, and of its checkpoints.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/memory_plan.h"
#include "train/own_text.h"
#include "train/resolved_config.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

nlohmann::json state_of(Trainer& trainer) { return nlohmann::json::parse(trainer.snapshot().state); }

float& gain_of(Trainer& trainer, const std::string& norm) {
  return trainer.model().parameters().find(norm + ".weight").weight.f32()[3];
}

// One step that is skipped, because a weight is not finite for as long as it takes.
StepReport skipped_step(Trainer& trainer) {
  float& gain = gain_of(trainer, "blocks.1.norm2");
  const float before = std::exchange(gain, NAN);
  const StepReport report = trainer.step();
  gain = before;
  EXPECT_TRUE(report.skipped);
  return report;
}

// The same tokens in every batch: what differs between batches is the random numbers of their casts.
class SameText final : public TokenSource {
 public:
  void fill(std::uint64_t batch_index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
            std::int32_t* targets) const override {
    if (batch_index >= broken_from) throw Error("the text cannot be read", "mend it");
    text_.fill(0, batch, context, inputs, targets);
  }
  int vocab_size() const override { return 32; }
  std::uint64_t tokens() const override { return 0; }
  std::uint64_t windows(std::int64_t) const override { return 0; }
  std::string describe() const override { return "always the same"; }
  std::uint64_t content_hash() const override { return 0; }

  std::uint64_t broken_from = UINT64_MAX;

 private:
  OwnText text_{3, 0};
};

struct SameTextTrainer {
  explicit SameTextTrainer(const Config& config, std::uint64_t broken_from = UINT64_MAX)
      : data(text(broken_from)), trainer(config, data, *engine, [](const std::string&) {}) {}

  static TrainingData text(std::uint64_t broken_from) {
    TrainingData data;
    auto source = std::make_unique<SameText>();
    source->broken_from = broken_from;
    data.train = std::move(source);
    data.vocab = 32;
    return data;
  }

  TrainingData data;
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  Trainer trainer;
};

TEST(LookingAtATrainer, LeavesItsStateAsItWas) {
  OwnTrainer own(miniature_config("fp8-delayed"));
  own.trainer.step();
  const std::string before = own.trainer.snapshot().state;
  own.trainer.evaluate(2);
  EXPECT_EQ(own.trainer.snapshot().state, before) << "an evaluation";
  own.trainer.next_token_logits(std::vector<std::int32_t>{1, 2, 3});
  EXPECT_EQ(own.trainer.snapshot().state, before) << "a sample";
  own.trainer.probe(own.trainer.high_precision_specs(), 3, ProbeWhat::gradients);
  EXPECT_EQ(own.trainer.snapshot().state, before) << "a probe";
  own.trainer.shadow_check();
  EXPECT_EQ(own.trainer.snapshot().state, before) << "a shadow check";
}

// Weights are cast between steps, so what was seen of them is not the failed step's.
TEST(StepWithoutData, LeavesTheTrainerAsItWas) {
  Config config = miniature_config("fp8-delayed");
  config.train.accumulation = 2;
  SameTextTrainer broken(config, 3);  // in the middle of the second step
  broken.trainer.step();
  const std::string before = broken.trainer.snapshot().state;
  EXPECT_THROW(broken.trainer.step(), Error);
  EXPECT_EQ(broken.trainer.snapshot().state, before);
  EXPECT_EQ(broken.trainer.steps_done(), 1);
  const ScaleBook& book = broken.trainer.book();
  for (const auto& entry : book.entries()) {
    const bool narrow = is_low_precision(entry->site.spec.rows.format);
    if (entry->site.role != Role::w) {
      EXPECT_EQ(entry->site.seen.count, 0U) << entry->site.name;
    }
    if (entry->site.role == Role::w && narrow) {
      EXPECT_GT(entry->site.seen.count, 0U) << entry->site.name;
    }
  }
}

TEST(UnitScaledTrainer, StartsWithoutATraceOfItsCalibration) {
  OwnTrainer own(miniature_config("fp8-unit"));
  own.trainer.snapshot();
  Size weights = 0;
  for (const auto& entry : own.trainer.book().entries()) {
    if (entry->site.role != Role::w) {
      EXPECT_EQ(entry->site.seen.count, 0U) << entry->site.name;
    }
    weights += entry->site.role == Role::w && entry->site.seen.count > 0 ? 1 : 0;
  }
  EXPECT_GT(weights, 0);
}

// A logit of minus infinity where it is the target: the loss is infinite, every gradient is finite.
TEST(SkippedSteps, AreThoseOfAnInfiniteLossToo) {
  Config config = miniature_config("fp32");
  config.model.tie_head = TieHead::no;
  OwnTrainer own(config);
  std::vector<std::int32_t> inputs(16), targets(16);
  own.data.train->fill(0, 2, 8, inputs.data(), targets.data());
  Parameters& parameters = own.trainer.model().parameters();
  parameters.find("norm.bias").weight.f32()[0] = 1e20F;
  Parameter& head = parameters.find("head.weight");
  for (Size row = 0; row < head.rows; ++row) head.weight.f32()[row * head.cols] = row == targets[0] ? -1e20F : 0;
  parameters.quantize(head, *own.engine, Casting{});
  const StepReport report = own.trainer.step();
  EXPECT_TRUE(std::isinf(report.loss));
  EXPECT_TRUE(std::isfinite(report.gradient_norm));
  EXPECT_TRUE(report.skipped);
  EXPECT_EQ(own.trainer.optimizer().updates(), 0);
}

// What FP16 cannot hold of activations saturates; a smaller loss scale would not help, so the step counts.
TEST(SkippedSteps, AreNotThoseOfSaturatedActivations) {
  Config config = miniature_config("fp16");
  config.precision.loss_scale_log2 = 0;
  OwnTrainer own(config);
  gain_of(own.trainer, "blocks.0.norm1") = 1e6F;
  const StepReport report = own.trainer.step();
  const ScaleBook& book = own.trainer.book();
  const auto saturated = [&](Role role) {
    std::uint64_t sum = 0;
    for (const auto& entry : book.entries()) sum += entry->site.role == role ? entry->last_step.saturated : 0;
    return sum;
  };
  EXPECT_GT(saturated(Role::x), 0U);
  ASSERT_EQ(saturated(Role::dy), 0U);
  EXPECT_FALSE(report.skipped);
  EXPECT_EQ(report.saturated, saturated(Role::x) + saturated(Role::w));
}

TEST(SkippedSteps, HalveTheLossScaleAndCleanOnesDoubleIt) {
  Config config = miniature_config("fp16");
  config.precision.loss_scale_log2 = 4;
  config.precision.loss_scale_window = 2;
  OwnTrainer own(config);
  EXPECT_EQ(own.trainer.step().loss_scale, 16);
  EXPECT_EQ(skipped_step(own.trainer).loss_scale, 16);
  EXPECT_EQ(own.trainer.step().loss_scale, 8);
  EXPECT_EQ(own.trainer.step().loss_scale, 8);
  EXPECT_EQ(own.trainer.step().loss_scale, 16) << "after two clean steps";
}

TEST(SwitchOfRecipes, HappensOnceAndLeavesLaterChangesAlone) {
  Config config = miniature_config("fp8-current");
  config.precision.switch_to = "bf16";
  config.precision.switch_at = 0.5;  // of six steps
  OwnTrainer own(config);
  const auto format = [&] { return own.trainer.book().entry("blocks.0.mlp.up/x").site.spec.rows.format; };
  for (int step = 0; step < 3; ++step) own.trainer.step();
  EXPECT_THAT(own.notices, IsEmpty());
  EXPECT_EQ(format(), Format::e4m3);
  EXPECT_FALSE(state_of(own.trainer).at("switched").get<bool>());
  own.trainer.step();
  EXPECT_EQ(format(), Format::bf16);
  EXPECT_TRUE(state_of(own.trainer).at("switched").get<bool>());
  own.trainer.change_site("blocks.0.mlp.up/x", make_recipe("fp32", {}).of(Role::x), "tried");
  own.trainer.step();
  own.trainer.step();
  EXPECT_EQ(format(), Format::f32) << "switched once more";
  EXPECT_THAT(own.notices, ElementsAre("step 3: the rest of the run uses bf16"));
}

// Steps of about half a unit in the last place of most weights: some move, some do not.
TEST(UnmovedWeights, AreCountedInPercent) {
  Config config = miniature_config("fp8-current");
  config.optim.learning_rate = 3e-10;
  config.optim.weight_decay = 0;
  config.optim.schedule = ScheduleShape::constant;
  config.optim.warmup = 0;
  config.train.statistics_every = 1;
  OwnTrainer own(config);
  const auto weights = [&] {
    std::vector<std::vector<float>> all;
    for (const Parameter& parameter : own.trainer.model().parameters().all()) {
      all.emplace_back(parameter.weight.f32(), parameter.weight.f32() + parameter.count());
    }
    return all;
  };
  const auto before = weights();
  const StepReport report = own.trainer.step();
  const auto after = weights();
  const NumericsSample sample = own.trainer.numerics();
  const auto& entries = own.trainer.book().entries();
  double unmoved = 0, count = 0;
  std::size_t index = 0;
  for (const Parameter& parameter : own.trainer.model().parameters().all()) {
    double same = 0;
    for (std::size_t i = 0; i < before[index].size(); ++i) same += before[index][i] == after[index][i] ? 1 : 0;
    if (parameter.kind != ParameterKind::vector) {
      unmoved += same;
      count += static_cast<double>(before[index].size());
    }
    ++index;
    if (parameter.site == nullptr) continue;
    const auto place =
        std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return &entry->site == parameter.site; });
    const double percent = 100 * same / static_cast<double>(parameter.count());
    EXPECT_NEAR(sample.sites[static_cast<std::size_t>(place - entries.begin())][Statistic::unmoved_percent], percent,
                0.2)
        << parameter.name << ": but for weights whose update is zero";
    EXPECT_GT(percent, 1);
  }
  EXPECT_NEAR(report.unmoved_percent, 100 * unmoved / count, 0.2);
}

// Stochastic rounding: batches of the same text differ by their random numbers, a batch looked at twice does not.
TEST(RandomNumbers, OfAProbeAreThoseOfItsBatch) {
  SameTextTrainer same(miniature_config("mxfp4"));
  const auto gradients = [&](Size batch) {
    return same.trainer.probe(same.trainer.specs(), batch, ProbeWhat::gradients).gradients;
  };
  EXPECT_EQ(gradients(1), gradients(1));
  EXPECT_NE(gradients(0), gradients(1));
  EXPECT_NE(gradients(1), gradients(2));
}

// Every micro-batch of every step draws numbers of its own: those that a probe of the same batch draws.
TEST(RandomNumbers, OfMicroBatchesNeverRepeat) {
  Config config = miniature_config("mxfp4");
  config.train.accumulation = 2;
  SameTextTrainer same(config);
  for (Size step = 0; step < 3; ++step) {
    const auto specs = same.trainer.specs();
    const auto first = same.trainer.probe(specs, 2 * step, ProbeWhat::gradients).gradients;
    const auto second = same.trainer.probe(specs, 2 * step + 1, ProbeWhat::gradients).gradients;
    double square = 0;
    for (std::size_t i = 0; i < first.size(); ++i) {
      for (std::size_t j = 0; j < first[i].size(); ++j) square += std::pow((first[i][j] + second[i][j]) / 2.0, 2);
    }
    const double norm = same.trainer.step().gradient_norm;
    EXPECT_NEAR(norm / std::sqrt(square), 1, 2e-6) << step;
  }
}

// A scale belongs to a format: where a probe tries another, the tensor's own amax gives the scale.
TEST(ProbedScales, OfAnotherFormatAreTheTensorsOwn) {
  OwnTrainer own(miniature_config("fp8-delayed"));
  own.trainer.step();
  const std::string site = "blocks.0.mlp.up/x";
  const float absurd = std::ldexp(1.0F, 40);
  own.trainer.book().set_scale(site, absurd, 1, "tried");
  const auto& entries = own.trainer.book().entries();
  const auto index = static_cast<std::size_t>(
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry->site.name == site; }) -
      entries.begin());
  std::vector<SiteSpec> specs = own.trainer.specs();
  EXPECT_GT(own.trainer.probe(specs, 0, ProbeWhat::loss).seen[index].saturated, 0U) << "its own scale";
  EXPECT_EQ(entries[index]->site.scale, absurd);
  specs[index].rows.format = specs[index].columns.format = Format::e5m2;
  const CastStatistics other = own.trainer.probe(specs, 0, ProbeWhat::loss).seen[index];
  EXPECT_GT(other.count, 0U);
  EXPECT_EQ(other.saturated, 0U);
  EXPECT_EQ(entries[index]->site.scale, absurd) << "put back";
  EXPECT_EQ(entries[index]->site.spec.rows.format, Format::e4m3) << "put back";
}

TEST(ChangedSites, TakeTheRotationOfWhatMeetsThemAway) {
  OwnTrainer own(miniature_config("mxfp4"));
  const auto spec = [&](const char* role) {
    return own.trainer.book().entry(std::string("blocks.0.mlp.up/") + role).site.spec;
  };
  ASSERT_EQ(spec("dy").rows.rotation, Rotation::hadamard);
  ASSERT_EQ(spec("dy").columns.rotation, Rotation::hadamard);
  ASSERT_EQ(spec("w").columns.rotation, Rotation::hadamard);
  own.trainer.change_site("blocks.0.mlp.up/x", make_recipe("bf16", {}).of(Role::x), "tried");
  EXPECT_EQ(spec("dy").columns.rotation, Rotation::none) << "it meets x in the weight gradient";
  EXPECT_EQ(spec("dy").rows.rotation, Rotation::hadamard) << "it meets w";
  EXPECT_EQ(spec("w").columns.rotation, Rotation::hadamard);
  const auto& changes = own.trainer.book().entry("blocks.0.mlp.up/dy").changes;
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].reason, "no longer rotated: blocks.0.mlp.up/x is not");
  own.trainer.change_site("blocks.0.mlp.up/dy", make_recipe("bf16", {}).of(Role::dy), "tried");
  EXPECT_EQ(spec("w").columns.rotation, Rotation::none);
  EXPECT_FALSE(own.trainer.step().skipped);
}

// All that a checkpoint holds besides tensors, none of it what a fresh trainer has.
TEST(RestoredTrainer, HasTheWholeState) {
  const TemporaryFolder folder;
  Config config = miniature_config("fp16");
  config.precision.loss_scale_log2 = 5;
  config.precision.switch_to = "fp8-delayed";
  config.precision.switch_at = 0.2;  // after one of six steps
  config.train.statistics_every = 0;
  OwnTrainer own(config);
  own.trainer.step();
  own.trainer.skip_batches(3);
  skipped_step(own.trainer);
  own.trainer.step();
  own.trainer.step();
  CheckpointStore store(folder.path(), 9);
  store.save(4, own.trainer.snapshot({.guard = {.mean = 2.5}, .alarms = {}}));
  const nlohmann::json state = state_of(own.trainer);
  EXPECT_EQ(state.at("step"), 4);
  EXPECT_EQ(state.at("updates"), 3);
  EXPECT_EQ(state.at("skipped_batches"), 3);
  EXPECT_EQ(state.at("last_weight_cast"), 4);
  EXPECT_EQ(state.at("switched"), true);
  EXPECT_EQ(state.at("loss_scale_log2"), 4);
  EXPECT_EQ(state.at("loss_scale_clean_steps"), 2);
  OwnTrainer again(config);
  EXPECT_EQ(again.trainer.restore(store.load(4)).guard.mean, 2.5);
  EXPECT_EQ(state_of(again.trainer), state);
  EXPECT_EQ(again.trainer.step().loss, own.trainer.step().loss);
  EXPECT_EQ(again.trainer.snapshot().state, own.trainer.snapshot().state);
}

TEST(RestoredTrainer, HasTheUnitFactorsOfTheCheckpoint) {
  const TemporaryFolder folder;
  Config config = miniature_config("fp8-unit");
  OwnTrainer own(config);
  CheckpointStore store(folder.path(), 9);
  store.save(0, own.trainer.snapshot());
  config.train.seed = 9;
  OwnTrainer again(config);
  const auto factors = own.trainer.model().unit_factors();
  ASSERT_NE(again.trainer.model().unit_factors(), factors) << "of other weights";
  again.trainer.restore(store.load(0));
  EXPECT_EQ(again.trainer.model().unit_factors(), factors);
}

// After a skipped step the weights were not cast, so a sampled step to come has seen nothing of them.
TEST(RestoredTrainer, HasSeenWhatTheOtherHasOfItsWeights) {
  for (const Size every : {0, 2}) {
    for (const bool skipped : {false, true}) {
      if (every == 0 && skipped) continue;  // looks at nothing again
      const TemporaryFolder folder;
      Config config = miniature_config("fp8-delayed");
      config.train.statistics_every = every;
      OwnTrainer own(config);
      own.trainer.step();
      skipped ? skipped_step(own.trainer) : own.trainer.step();
      CheckpointStore store(folder.path(), 9);
      store.save(2, own.trainer.snapshot());
      EXPECT_EQ(state_of(own.trainer).at("last_weight_cast"), skipped ? 1 : 2);
      OwnTrainer again(config);
      again.trainer.restore(store.load(2));
      EXPECT_EQ(again.trainer.snapshot().state, own.trainer.snapshot().state) << every << skipped;
      for (const auto& entry : again.trainer.book().entries()) {
        if (entry->site.role != Role::w || !is_low_precision(entry->site.spec.rows.format)) continue;
        EXPECT_EQ(entry->site.seen.count > 0, !skipped) << entry->site.name;
      }
    }
  }
}

TEST(ChangedPlans, AreAppliedWhereTheConfigTrainedWithHadAnother) {
  const TemporaryFolder folder;
  OwnTrainer wide(miniature_config("bf16"));
  CheckpointStore store(folder.path(), 9);
  store.save(0, wide.trainer.snapshot());
  OwnTrainer narrow(miniature_config("fp8-current"));
  narrow.trainer.restore(store.load(0));
  const auto format = [&] { return narrow.trainer.book().entry("blocks.0.mlp.up/x").site.spec.rows.format; };
  EXPECT_EQ(format(), Format::bf16);
  EXPECT_FALSE(narrow.trainer.change_plan_from(narrow.trainer.config(), "resumed with "));
  EXPECT_EQ(format(), Format::bf16) << "the config is as it was: the sites stay as they were left";
  EXPECT_TRUE(narrow.trainer.change_plan_from(wide.trainer.config(), "resumed with "));
  EXPECT_EQ(format(), Format::e4m3);
  const auto& changes = narrow.trainer.book().entry("blocks.0.mlp.up/x").changes;
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].reason, "resumed with fp8-current");
}

TEST(ChangedPlans, DoNotTakeBackTheSwitchOfRecipes) {
  const TemporaryFolder folder;
  Config config = miniature_config("fp8-current");
  config.precision.switch_to = "bf16";
  config.precision.switch_at = 0;
  OwnTrainer switched(config);
  switched.trainer.step();
  CheckpointStore store(folder.path(), 9);
  store.save(1, switched.trainer.snapshot());
  Config changed = config;
  changed.precision.layers["blocks.0.mlp.down"] = "fp8-row";
  OwnTrainer resumed(changed);
  resumed.trainer.restore(store.load(1));
  EXPECT_EQ(resumed.trainer.change_plan_from(config, "resumed with "), "bf16");
  const auto format = [&](const char* site) { return resumed.trainer.book().entry(site).site.spec.rows.format; };
  EXPECT_EQ(format("blocks.0.mlp.down/x"), Format::e4m3);
  EXPECT_EQ(format("blocks.0.mlp.up/x"), Format::bf16);
  changed.precision.recipe = "fp8-block";
  OwnTrainer other(changed);
  other.trainer.restore(store.load(1));
  EXPECT_EQ(other.trainer.change_plan_from(config, "looked at with "), "fp8-block") << "it was asked for";
}

TEST(OpenedRuns, AreStoredAsTheFlagsSay) {
  const TemporaryFolder folder;
  Config config = miniature_config("bf16");
  config.run.dir = (folder.path() / "run").string();
  config.train.steps = 1;
  run_training(config, {});
  const auto format = [&](const std::vector<std::string>& flags) {
    const auto run = open_run(config.run.dir, flags, std::nullopt, [](const std::string&) {});
    return run->trainer->book().entry("blocks.0.mlp.up/x").site.spec.rows.format;
  };
  EXPECT_EQ(format({}), Format::bf16);
  EXPECT_EQ(format({"precision.recipe=fp8-current"}), Format::e4m3);
}

// Wide operands are copied to be looked at, which takes room where they are else their own codes.
TEST(PlannedMemory, OfShadowChecksHasRoomForCopiesOfWideOperands) {
  const auto arena = [](const char* recipe, Size statistics_every, Size shadow_every) {
    Config config = miniature_config(recipe);
    config.train.statistics_every = statistics_every;
    config.train.shadow_every = shadow_every;
    const Hardware hopper{.kind = HardwareKind::gpu, .threads = 0, .architecture = 90};
    return plan_memory(resolve_shape(config, {.vocab = 32}), hopper).arena();
  };
  for (const char* recipe : {"bf16", "fp32"}) {
    EXPECT_GT(arena(recipe, 3, 0), arena(recipe, 0, 0)) << recipe;
    EXPECT_EQ(arena(recipe, 0, 3), arena(recipe, 3, 0)) << recipe;
  }
}

// What BF16 is to one recipe, FP16 is to the other.
TEST(PlannedMemory, OfFp16IsThatOfBf16) {
  const auto plan = [](const char* recipe, int architecture) {
    const Hardware gpu{.kind = HardwareKind::gpu, .threads = 0, .architecture = architecture};
    return plan_memory(resolve_shape(miniature_config(recipe), {.vocab = 32}), gpu);
  };
  for (const int architecture : {80, 90}) {
    EXPECT_EQ(plan("fp16", architecture).arena(), plan("bf16", architecture).arena());
    EXPECT_EQ(plan("fp16", architecture).engine_total(), plan("bf16", architecture).engine_total());
    EXPECT_GT(plan("tf32", architecture).arena(), plan("fp16", architecture).arena());
  }
}

}  // namespace
}  // namespace quaver::test
