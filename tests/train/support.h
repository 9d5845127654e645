// A run small enough to repeat many times.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

#include "train/run.h"

namespace quaver::test {

// A 2-layer GPT of width 32 on synthetic text.
inline Config small_config(const std::string& recipe, const std::filesystem::path& directory) {
  Config config;
  config.model.layers = 2;
  config.model.width = 32;
  config.model.heads = 2;
  config.model.context = 32;
  config.data.kind = DataKind::synthetic;
  config.data.synthetic_vocab = 32;
  config.train.steps = 6;
  config.train.batch = 4;
  config.train.accumulation = 2;
  config.train.eval_every = 2;
  config.train.eval_batches = 1;
  config.train.checkpoint_every = 1;
  config.train.keep = 100;
  config.train.threads = 1;
  config.optim.learning_rate = 3e-3;
  config.precision.recipe = recipe;
  config.run.dir = directory.string();
  return config;
}

// The same with steps that take a millisecond.
inline Config miniature_config(const std::string& recipe, const std::filesystem::path& directory = "unused") {
  Config config = small_config(recipe, directory);
  config.model.context = 8;
  config.train.batch = 2;
  config.train.accumulation = 1;
  return config;
}

// A run whose learning rate grows until the loss diverges.
inline Config diverging_config(const std::filesystem::path& directory) {
  Config config = small_config("fp32", directory);
  config.train.steps = 60;
  config.train.checkpoint_every = 1;
  config.train.eval_every = 0;
  config.train.statistics_every = 0;
  config.optim.clip = ClipMode::none;
  config.optim.schedule = ScheduleShape::constant;
  config.optim.warmup = 0.6;
  config.optim.learning_rate = 30;
  config.guard.patience = 3;
  config.guard.divergence = 1.2;
  config.guard.max_rewinds = 1;
  return config;
}

// Of every parameter, by its name.
using MasterBytes = std::map<std::string, std::vector<std::byte>>;
inline MasterBytes master_bytes(Trainer& trainer) {
  MasterBytes weights;
  for (const Parameter& parameter : trainer.model().parameters().all()) {
    const auto* data = static_cast<const std::byte*>(parameter.master.data);
    weights[parameter.name].assign(data, data + parameter.master.bytes());
  }
  return weights;
}

// No two metrics are alike.
inline StepReport made_up_report(Size step) {
  StepReport report;
  report.step = step;
  report.loss = 2.5;
  report.learning_rate = 0.125;
  report.gradient_norm = 3;
  report.seconds = 4;
  report.tokens = 100;
  report.saturated = 5;
  report.underflowed = 6;
  report.overflows = 7;
  report.update_ratio = 0.5;
  report.unmoved_percent = 8;
  report.max_logit = 9;
  report.data_seconds = 0.25;
  report.micro_steps_seconds = 2;
  report.optimizer_seconds = 1;
  return report;
}

// What the newest checkpoint of a run keeps of its guard and alarms, as it is written.
inline std::map<std::string, double> watch_numbers(const std::filesystem::path& run) {
  const CheckpointStore store = CheckpointStore::read_only(run);
  const Checkpoint checkpoint = store.load(store.steps().back());
  return nlohmann::json::parse(checkpoint.state()).at("notes").get<std::map<std::string, double>>();
}

}  // namespace quaver::test
