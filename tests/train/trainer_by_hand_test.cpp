// A trainer's own doings against numbers taken from its weights, its book and its probes.
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/memory_plan.h"
#include "train/own_text.h"
#include "train/resolved_config.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TrainersConfig, HasAbsolutePathsWhereverItIsLookedAtFrom) {
  Config config = miniature_config("fp32");
  config.data.path = "some/../text.qv";
  config.data.valid_path = "valid.qv";
  config.precision.localization = "map.json";
  config.data.tokenizer = "folder/tokenizer.json";
  const std::filesystem::path here = std::filesystem::current_path();
  const OwnTrainer own(config);
  EXPECT_EQ(own.trainer.config().data.path, (here / "text.qv").string());
  EXPECT_EQ(own.trainer.config().data.valid_path, (here / "valid.qv").string());
  EXPECT_EQ(own.trainer.config().precision.localization, (here / "map.json").string());
  EXPECT_EQ(own.trainer.config().data.tokenizer, (here / "folder/tokenizer.json").string());
  EXPECT_EQ(own.trainer.config().precision.scales, "");
  config.data.tokenizer = "bytes";
  EXPECT_EQ(OwnTrainer(config).trainer.config().data.tokenizer, "bytes") << "a name and no path";
}

TEST(LossScaleOfARun, IsThatOfFp16UnlessTheConfigSays) {
  const auto scale = [](const char* recipe, LossScaling mode) {
    Config config = miniature_config(recipe);
    config.precision.loss_scaling = mode;
    config.precision.loss_scale_log2 = 4;
    return OwnTrainer(config).trainer.step().loss_scale;
  };
  EXPECT_EQ(scale("bf16", LossScaling::automatic), 1);
  EXPECT_EQ(scale("fp16", LossScaling::automatic), 16);
  EXPECT_EQ(scale("bf16", LossScaling::fixed), 16);
  EXPECT_EQ(scale("fp16", LossScaling::off), 1);
}

TEST(LearningRate, OfUnitScaledModelsIsTheirOwn) {
  const auto rate = [](Parametrization parametrization) {
    Config config = miniature_config("fp32");
    config.model.parametrization = parametrization;
    config.optim.learning_rate = 1e-3;
    config.optim.unit_learning_rate = 2e-2;
    config.optim.schedule = ScheduleShape::constant;
    config.optim.warmup = 0;
    return OwnTrainer(config).trainer.step().learning_rate;
  };
  EXPECT_DOUBLE_EQ(rate(Parametrization::standard), 1e-3);
  EXPECT_DOUBLE_EQ(rate(Parametrization::umup), 2e-2);
}

// The same step with and without decay: what differs is the decay, at the learning rate of the step.
TEST(Decay, OfStandardWeightsFollowsTheSchedule) {
  const auto weight_after = [](double decay, float& before) {
    Config config = miniature_config("fp32");
    config.optim.schedule = ScheduleShape::constant;
    config.optim.warmup = 0.5;  // three of six steps: the first has a quarter of the rate
    config.optim.learning_rate = 0.08;
    config.optim.weight_decay = decay;
    OwnTrainer own(config);
    Parameter& weight = own.trainer.model().parameters().find("blocks.0.mlp.up.weight");
    before = weight.weight.f32()[7];
    own.trainer.step();
    return weight.weight.f32()[7];
  };
  float before = 0;
  const double difference = static_cast<double>(weight_after(0, before)) - weight_after(0.5, before);
  EXPECT_NEAR(difference / before, 0.02 * 0.5, 2e-5);
}

TEST(SkippedBatches, AddUp) {
  OwnTrainer own(miniature_config("fp32"));
  own.trainer.skip_batches(2);
  own.trainer.skip_batches(3);
  const double want = own.trainer.probe(own.trainer.specs(), 5, ProbeWhat::loss).loss;
  EXPECT_NEAR(own.trainer.step().loss, want, 1e-6);
  const double next = own.trainer.probe(own.trainer.specs(), 6, ProbeWhat::loss).loss;
  EXPECT_NEAR(own.trainer.step().loss, next, 1e-6);
}

// High precision against itself, after a step and past some batches: the same batch, and no other gradient mixed in.
TEST(ShadowCheck, ComparesTheBatchToComeWithItself) {
  Config config = miniature_config("fp32");
  config.train.accumulation = 2;
  OwnTrainer own(config);
  own.trainer.step();
  own.trainer.skip_batches(3);
  const GradientAgreement agreement = own.trainer.shadow_check();
  EXPECT_NEAR(agreement.cosine, 1, 1e-9);
  EXPECT_NEAR(agreement.error, 0, 1e-4);
}

// ‖own − wide‖ / ‖wide‖ and the cosine, over all gradients together.
TEST(ShadowCheck, IsTheAgreementOfAllGradients) {
  OwnTrainer own(miniature_config("mxfp4"));
  const auto narrow = own.trainer.probe(own.trainer.specs(), 0, ProbeWhat::gradients).gradients;
  const auto wide = own.trainer.probe(own.trainer.high_precision_specs(), 0, ProbeWhat::gradients).gradients;
  double aa = 0, bb = 0, ab = 0, difference = 0;
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    for (std::size_t j = 0; j < narrow[i].size(); ++j) {
      const double a = narrow[i][j], b = wide[i][j];
      aa += a * a;
      bb += b * b;
      ab += a * b;
      difference += (a - b) * (a - b);
    }
  }
  const GradientAgreement agreement = own.trainer.shadow_check();
  EXPECT_NEAR(agreement.cosine, ab / std::sqrt(aa * bb), 1e-9);
  EXPECT_NEAR(agreement.error, std::sqrt(difference / bb), 1e-9);
  ASSERT_GT(std::abs(aa / bb - 1), 1e-4) << "own and wide must differ in norm";
}

TEST(WideSpecs, AreFp32WhereTheEngineHasIt) {
  OwnTrainer own(miniature_config("mxfp4"));
  for (const SiteSpec& spec : own.trainer.high_precision_specs()) EXPECT_EQ(spec.rows.format, Format::f32);
}

// The gradients of a probe are the true ones, whatever they were scaled by on the way.
TEST(ProbedGradients, AreWithoutLossScaleAndUnitFactors) {
  for (const char* recipe : {"fp16", "fp8-unit"}) {
    OwnTrainer own(miniature_config(recipe));
    double square = 0;
    for (const auto& gradient : own.trainer.probe(own.trainer.specs(), 0, ProbeWhat::gradients).gradients) {
      for (const float value : gradient) square += static_cast<double>(value) * value;
    }
    const StepReport report = own.trainer.step();
    EXPECT_FALSE(report.skipped);
    EXPECT_NEAR(std::sqrt(square), report.gradient_norm, 1e-4 * report.gradient_norm) << recipe;
  }
}

TEST(EmbeddingRms, IsThatOfTheTokenTable) {
  OwnTrainer own(miniature_config("fp32"));
  EXPECT_TRUE(std::isnan(own.trainer.embedding_rms())) << "before the first update";
  const auto rms = [&] {
    for (const Parameter& parameter : own.trainer.model().parameters().all()) {
      if (parameter.kind != ParameterKind::embedding) continue;
      double squares = 0;
      for (Size i = 0; i < parameter.count(); ++i) squares += std::pow(parameter.weight.f32()[i], 2);
      return std::sqrt(squares / static_cast<double>(parameter.count()));
    }
    return 0.0;
  };
  const double before = rms();
  own.trainer.step();
  const double after = rms();
  EXPECT_GT(own.trainer.embedding_rms(), 0.98 * std::min(before, after));
  EXPECT_LT(own.trainer.embedding_rms(), 1.02 * std::max(before, after));
}

// Every sampled step has statistics of the weights; those of a shadow check belong to its own step only.
TEST(SampledFigures, AreThoseOfTheirStep) {
  Config config = miniature_config("fp8-current");
  config.train.statistics_every = 2;
  OwnTrainer own(config);
  const auto& entries = own.trainer.book().entries();
  for (int step = 0; step < 5; ++step) {
    if (step == 2) own.trainer.shadow_check();
    const StepReport report = own.trainer.step();
    EXPECT_EQ(report.sampled, step % 2 == 0);
    if (!report.sampled) continue;
    const NumericsSample sample = own.trainer.numerics();
    EXPECT_EQ(sample.step, static_cast<std::uint64_t>(step + 1));
    int weights = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i]->site.role != Role::w || !is_low_precision(entries[i]->site.spec.rows.format)) continue;
      ++weights;
      const SiteSample& figures = sample.sites[i];
      EXPECT_TRUE(std::isfinite(figures[Statistic::sqnr_db])) << step;
      EXPECT_GT(figures[Statistic::update_ratio], 0) << step;
      EXPECT_EQ(std::isfinite(figures[Statistic::shadow_cosine]), step == 2) << step;
      EXPECT_EQ(std::isfinite(figures[Statistic::shadow_error]), step == 2) << step;
      if (step == 2) {
        EXPECT_GT(figures[Statistic::shadow_cosine], 0.9);
        EXPECT_LT(figures[Statistic::shadow_error], 0.5);
      }
    }
    EXPECT_EQ(weights, 8);
  }
}

// A resumed trainer's next sample has statistics of the weights too, though a checkpoint keeps their codes only.
TEST(SampledFigures, OfWeightsComeBackWithACheckpoint) {
  const TemporaryFolder folder;
  Config config = miniature_config("fp8-current");
  config.train.statistics_every = 2;
  OwnTrainer own(config);
  own.trainer.step();
  own.trainer.step();
  CheckpointStore(folder.path(), 1).save(2, own.trainer.snapshot());
  OwnTrainer again(config);
  again.trainer.restore(CheckpointStore::read_only(folder.path()).load(2));
  own.trainer.step();
  again.trainer.step();
  const NumericsSample a = own.trainer.numerics();
  const NumericsSample b = again.trainer.numerics();
  for (std::size_t i = 0; i < a.sites.size(); ++i) {
    const std::string& name = own.trainer.book().entries()[i]->site.name;
    for (const Statistic statistic : {Statistic::sqnr_db, Statistic::amax, Statistic::underflow_percent}) {
      const float x = a.sites[i][statistic], y = b.sites[i][statistic];
      EXPECT_TRUE(x == y || (std::isnan(x) && std::isnan(y))) << name << ": " << x << " and " << y;
    }
    EXPECT_EQ(a.binades[i], b.binades[i]) << name;
  }
}

// A weight that is not finite: the step is skipped, and no scale learns from it.
TEST(SkippedStep, LeavesScalesWeightsAndMomentsAsTheyWere) {
  OwnTrainer own(miniature_config("fp8-delayed"));
  own.trainer.step();
  Parameter& gain = own.trainer.model().parameters().find("blocks.1.norm2.weight");
  gain.weight.f32()[3] = NAN;
  const std::vector<float> history = [&] {
    const auto& kept = own.trainer.book().entry("blocks.0.attn.qkv/x").history;
    return std::vector<float>(kept.begin(), kept.end());
  }();
  const float scale = own.trainer.book().entry("blocks.0.attn.qkv/x").site.scale;
  const float weight = own.trainer.model().parameters().find("blocks.0.mlp.up.weight").weight.f32()[7];
  const StepReport report = own.trainer.step();
  EXPECT_TRUE(report.skipped);
  EXPECT_EQ(report.step, 2);
  EXPECT_FALSE(std::isfinite(report.loss));
  const auto& kept = own.trainer.book().entry("blocks.0.attn.qkv/x").history;
  EXPECT_EQ(std::vector<float>(kept.begin(), kept.end()), history);
  EXPECT_EQ(own.trainer.book().entry("blocks.0.attn.qkv/x").site.scale, scale);
  EXPECT_EQ(own.trainer.model().parameters().find("blocks.0.mlp.up.weight").weight.f32()[7], weight);
  EXPECT_EQ(own.trainer.optimizer().updates(), 1);
}

TEST(TakeBack, UndoesTheLatestChangeOfTheSitesNamed) {
  OwnTrainer own(miniature_config("fp8-current"));
  const SiteSpec wide = make_recipe("bf16", {}).of(Role::x);
  for (const char* site : {"blocks.0.mlp.up/x", "blocks.1.mlp.up/x"}) own.trainer.change_site(site, wide, "tried");
  const auto format = [&](const char* site) { return own.trainer.book().entry(site).site.spec.rows.format; };
  const auto done = own.trainer.take_back("blocks.0.*");
  ASSERT_EQ(done.size(), 1U);
  EXPECT_THAT(done[0], HasSubstr("blocks.0.mlp.up/x: took back \"tried\"; stored as "));
  EXPECT_EQ(format("blocks.0.mlp.up/x"), Format::e4m3);
  EXPECT_EQ(format("blocks.1.mlp.up/x"), Format::bf16) << "not named";
  EXPECT_THROW(own.trainer.take_back("blocks.0.*"), Error);
}

TEST(SharesOfFormats, FollowTheSitesAsTheyAreNow) {
  OwnTrainer own(miniature_config("fp8-current"));
  const double before = low_precision_share(own.trainer.format_shares());
  for (const char* site : {"blocks.0.mlp.up/x", "blocks.0.mlp.up/w", "blocks.0.mlp.up/dy"}) {
    own.trainer.change_site(site, make_recipe("bf16", {}).of(Role::x), "tried");
  }
  const double after = low_precision_share(own.trainer.format_shares());
  // Of 2 blocks with 12·32² weights each and a head of 32 · 64, up has 4·32².
  EXPECT_NEAR(before - after, 4096.0 / (2 * 12 * 1024 + 2048), 1e-9);
}

TEST(MemoryOfATrainer, AddsUpInBytes) {
  Config config = miniature_config("fp8-current");
  OwnTrainer own(config);
  const MemoryUse use = own.trainer.memory();
  const Size count = own.trainer.model().parameters().count();
  EXPECT_EQ(use.gradients, 4 * count);
  EXPECT_EQ(use.weights, 4 * count) << "FP32";
  EXPECT_GE(use.optimizer, 8 * count) << "two moments";
  EXPECT_GT(use.activations, 0);
  EXPECT_GT(use.scratch, 0);
  EXPECT_EQ(use.total(),
            use.weights + use.quantized_weights + use.gradients + use.optimizer + use.activations + use.scratch);
  const auto engine = make_cpu_engine(1);
  const MemoryPlan plan = plan_memory(own.trainer.config(), engine->device().hardware());
  EXPECT_EQ(plan.activations, use.activations);
  EXPECT_EQ(plan.scratch, use.scratch);
  EXPECT_NEAR(static_cast<double>(plan.gradients), static_cast<double>(use.gradients), 16384);
  EXPECT_EQ(plan.fixed(), plan.weights + plan.quantized_weights + plan.gradients + plan.optimizer);
  EXPECT_EQ(plan.arena(), plan.activations + plan.scratch);
  EXPECT_EQ(plan.engine_total(), plan.fixed() + plan.arena() + plan.workspace + plan.transient);
  EXPECT_EQ((MemoryPlan{.workspace = 3, .transient = 5}).engine_total(), 8);
}

TEST(PlannedMemory, OfACheckpointIsTheCopyThatIsWritten) {
  for (const MomentFormat moments : {MomentFormat::f32, MomentFormat::bf16, MomentFormat::fp8}) {
    Config config = miniature_config("fp8-current");
    config.optim.moments = moments;
    OwnTrainer own(config);
    const CheckpointContent content = own.trainer.snapshot();
    std::size_t bytes = 0;
    for (const TensorEntry& tensor : content.model) bytes += tensor.data.size();
    for (const TensorEntry& tensor : content.optimizer) bytes += tensor.data.size();
    EXPECT_EQ(plan_memory(own.trainer.config(), make_cpu_engine(1)->device().hardware()).checkpoint,
              static_cast<Size>(bytes));
  }
}

// Looking closely takes room; a shadow check looks as closely as statistics do.
TEST(PlannedMemory, OfShadowChecksIsThatOfStatistics) {
  const auto arena = [](Size statistics_every, Size shadow_every) {
    Config config = miniature_config("bf16");
    config.train.statistics_every = statistics_every;
    config.train.shadow_every = shadow_every;
    return plan_memory(resolve_shape(config, {.vocab = 32}), make_cpu_engine(1)->device().hardware()).arena();
  };
  EXPECT_EQ(arena(0, 3), arena(3, 0));
  EXPECT_GE(arena(3, 0), arena(0, 0));
}

TEST(MemoryThatIsMissing, IsSaidWithTheBatchThatFits) {
  Config config = miniature_config("fp32");
  config.train.batch = 512;
  config.model.context = 64;
  const auto needed = [&](Size batch) {
    Config smaller = config;
    smaller.train.batch = batch;
    return plan_memory(resolve_shape(smaller, {.vocab = 32}), make_cpu_engine(1)->device().hardware()).engine_total();
  };
  config.train.memory_limit_mb = needed(128) / (1024 * 1024) + 1;
  ASSERT_GT(needed(192), config.train.memory_limit_mb * 1024 * 1024);
  try {
    const OwnTrainer own(config);
    FAIL() << "it fitted";
  } catch (const Error& error) {
    EXPECT_THAT(error.remedy(), HasSubstr("train.batch = 128 fits;"));
    const double gib = 1024.0 * 1024 * 1024;
    const auto limit = static_cast<double>(config.train.memory_limit_mb) * 1024 * 1024;
    const auto all = static_cast<double>(needed(512));
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("the run needs {:.2f} GiB (", all / gib)));
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("and {:.2f} GiB are free: {:.2f} GiB too much", limit / gib,
                                                    (all - limit) / gib)));
  }
}

TEST(Snapshot, HasTensorsThatOthersCanRead) {
  Config config = miniature_config("fp8-current");
  config.optim.moments = MomentFormat::fp8;
  OwnTrainer own(config);
  own.trainer.step();
  const CheckpointContent content = own.trainer.snapshot();
  EXPECT_EQ(content.metadata, (Metadata{{"quaver.step", "1"}, {"quaver.recipe", "fp8-current"}}));
  const auto find = [](const std::vector<TensorEntry>& all, const std::string& name) -> const TensorEntry& {
    return *std::find_if(all.begin(), all.end(), [&](const TensorEntry& one) { return one.name == name; });
  };
  EXPECT_EQ(find(content.model, "blocks.0.mlp.up.weight").dtype, "F32");
  EXPECT_THAT(find(content.model, "blocks.0.mlp.up.weight").shape, ElementsAre(128, 32));
  EXPECT_THAT(find(content.model, "blocks.0.norm1.weight").shape, ElementsAre(32)) << "a vector";
  EXPECT_EQ(find(content.optimizer, "blocks.0.mlp.up.weight.m").dtype, "F8_E4M3");
  EXPECT_THAT(find(content.optimizer, "blocks.0.mlp.up.weight.v_root").shape, ElementsAre(128, 32));
  EXPECT_EQ(find(content.optimizer, "blocks.0.mlp.up.weight.m.scale").dtype, "F32");
}

// Another type of as many bytes is not this run's.
TEST(Restore, RefusesAnotherTypeAndABookOfAnotherModel) {
  const TemporaryFolder folder;
  OwnTrainer own(miniature_config("fp8-current"));
  CheckpointStore store(folder.path(), 9);
  CheckpointContent content = own.trainer.snapshot();
  for (TensorEntry& tensor : content.model) {
    if (tensor.name == "blocks.0.mlp.up.weight") tensor.dtype = "I32";
  }
  store.save(0, content);
  EXPECT_THROW(own.trainer.restore(store.load(0)), Error);
  content = own.trainer.snapshot();
  const std::string name = "\"blocks.0.mlp.up/x\"";
  for (std::size_t at = content.state.find(name); at != std::string::npos; at = content.state.find(name, at)) {
    content.state.replace(at, name.size(), "\"blocks.9.mlp.up/x\"");
  }
  store.save(0, content);
  try {
    own.trainer.restore(store.load(0));
    FAIL() << "it was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has no entry for blocks.0.mlp.up/x"));
  }
}

}  // namespace
}  // namespace quaver::test
