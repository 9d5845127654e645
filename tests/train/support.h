// A run small enough to repeat many times, and a folder that goes away with the test.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "train/run.h"

namespace quaver::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> next{0};
    path_ = std::filesystem::temp_directory_path() /
            ("quaver-test-" + std::to_string(getpid()) + "-" + std::to_string(next++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

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

// No two figures are alike.
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

inline std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace quaver::test
