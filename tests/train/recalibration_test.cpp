// Activations that drift out of the range of their static scales: recalibration keeps the loss that current scaling
// has.
#include <cmath>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "store/reader.h"
#include "train/resumed_run.h"
#include "train/run_record.h"
#include "train/support.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;

// Multiplies what the first layer gives by a factor, and divides the weights that read it: a network of ReLUs computes
// what it did, in other ranges.
void shift_ranges(Trainer& trainer, float factor) {
  for (Parameter& parameter : trainer.model().parameters().all()) {
    const bool producer = parameter.name.starts_with("blocks.0.linear");
    const bool consumer = parameter.name == "blocks.1.linear.weight";
    if (!producer && !consumer) continue;
    auto* values = reinterpret_cast<float*>(parameter.weight.data);
    for (Size i = 0; i < parameter.count(); ++i) values[i] = producer ? values[i] * factor : values[i] / factor;
  }
}

constexpr Size drift_begins = 60;
constexpr Size drift_steps = 64;
constexpr double drift_binades = 4;

Config drifting_config(const std::string& recipe, Size every, const fs::path& folder) {
  Config config;
  config.model.family = Family::mlp;
  config.model.activation = MlpActivation::relu;
  config.model.layers = 2;
  config.model.width = 64;
  config.data.kind = DataKind::synthetic_images;
  config.data.synthetic_classes = 8;
  config.data.synthetic_pixels = 32;
  config.train.steps = 220;
  config.train.batch = 64;
  config.train.threads = 1;
  config.train.eval_every = 0;
  config.train.checkpoint_every = 0;
  config.optim.learning_rate = 3e-3;
  config.optim.learning_rate_of["blocks.1.linear.weight"] = 0.1;  // they become 16 times smaller on the way
  config.precision.recipe = recipe;
  config.precision.static_activation_scale = 32;
  config.precision.static_weight_scale = 256;
  config.precision.static_gradient_scale = 0x1p20;
  config.precision.recalibrate_every = static_cast<int>(every);
  config.guard.enabled = false;  // it would store the sites in BF16
  config.alerts.enabled = false;
  config.run.dir = folder.string();
  return config;
}

double loss_while_drifting(const Config& config) {
  Trainer* trainer = nullptr;
  RunOptions options;
  // The run shows its trainer to look at; the ranges move behind its back.
  options.observer.started = [&](const Trainer& own, Size) { trainer = const_cast<Trainer*>(&own); };
  options.observer.stepped = [&](const StepReport& report, std::optional<double>) {
    if (report.step < drift_begins || report.step >= drift_begins + drift_steps) return;
    shift_ranges(*trainer, static_cast<float>(std::exp2(drift_binades / drift_steps)));
  };
  return run_training(config, options).final_train_loss.value();
}

// One seed's loss moves by 0.4 % where other bits are rounded away, so the mean of several is compared.
double mean_loss_while_drifting(const std::string& recipe, Size every, const fs::path& folder) {
  constexpr int seeds = 5;
  double sum = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    Config config = drifting_config(recipe, every, folder / std::to_string(seed));
    config.train.seed = static_cast<std::uint64_t>(seed);
    sum += loss_while_drifting(config);
  }
  return sum / seeds;
}

TEST(Recalibration, KeepsTheLossOfCurrentScalingWhereActivationsDrift) {
  const TemporaryFolder folder;
  const double current = mean_loss_while_drifting("fp8-current", 0, folder.path() / "current");
  const double kept = mean_loss_while_drifting("fp8-static", 20, folder.path() / "kept");
  const double lost = mean_loss_while_drifting("fp8-static", 0, folder.path() / "lost");
  RecordProperty("losses", fmt::format("{} {} {}", current, kept, lost));
  EXPECT_LT(std::abs(kept / current - 1), 0.003);
  EXPECT_GT(lost / current, 2);
}

TEST(Recalibration, IsLoggedWithItsStepAndReason) {
  const TemporaryFolder folder;
  loss_while_drifting(drifting_config("fp8-static", 20, folder.path() / "run"));
  std::size_t followed = 0;
  for (const ScaleChangeRecord& change :
       StoreReader(folder.path() / store_file_name).changes(run_id(folder.path() / "run"))) {
    if (change.reason != "recalibrated") continue;
    EXPECT_EQ(change.step % 20, 0U) << change.site;
    followed += change.site == "blocks.1.linear/x" && change.scale_after < change.scale_before ? 1 : 0;
  }
  EXPECT_GE(followed, 2U) << "one drift of four binades";
}

TEST(Recalibration, GoesOnBitForBit) {
  const TemporaryFolder folder;
  expect_resumed_bytes(folder, [&](const std::string& name) {
    Config config = miniature_config("fp8-static", folder.path() / name);
    config.train.steps = 6;
    config.precision.recalibrate_every = 3;
    return config;
  });
}

}  // namespace
}  // namespace quaver::test
