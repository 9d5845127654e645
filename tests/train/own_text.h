// A trainer on the CPU over text that the test makes up, so that losses can be recomputed token by token.
#pragma once

#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "train/support.h"
#include "train/trainer.h"

namespace quaver::test {

// Every batch has tokens of its own, without pattern.
class OwnText : public TokenSource {
 public:
  OwnText(std::uint64_t seed, std::uint64_t windows) : seed_(seed), windows_(windows) {}

  std::int32_t token(std::uint64_t batch_index, std::int64_t row, std::int64_t position) const {
    std::uint64_t x = seed_ * 7919 + batch_index * 1000003 + static_cast<std::uint64_t>(row * 8191 + position * 131);
    x = (x ^ (x >> 13U)) * 0x9E3779B97F4A7C15ULL;
    return static_cast<std::int32_t>((x >> 33U) % 32);
  }
  void fill(std::uint64_t batch_index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
            std::int32_t* targets) const override {
    for (std::int64_t row = 0; row < batch; ++row) {
      for (std::int64_t t = 0; t < context; ++t) {
        inputs[row * context + t] = token(batch_index, row, t);
        targets[row * context + t] = token(batch_index, row, t + 1);
      }
    }
  }
  int vocab_size() const override { return 32; }
  std::uint64_t tokens() const override { return 0; }
  std::uint64_t windows(std::int64_t) const override { return windows_; }
  std::string describe() const override { return "made up"; }
  std::uint64_t content_hash() const override { return 0; }

 private:
  std::uint64_t seed_;
  std::uint64_t windows_;
};

struct OwnTrainer {
  // `windows` is what the validation text says it has; 0: endless.
  explicit OwnTrainer(const Config& config, std::uint64_t windows = 0)
      : data(text(windows)),
        trainer(config, data, *engine, [this](const std::string& note) { notices.push_back(note); }) {}

  static TrainingData text(std::uint64_t windows) {
    TrainingData data;
    data.train = std::make_unique<OwnText>(1, 0);
    data.valid = std::make_unique<OwnText>(2, windows);
    data.vocab = 32;
    return data;
  }

  // The loss of one batch by its definition: −log softmax of each next token given what comes before it, one prefix
  // at a time.
  double loss_of(const TokenSource& source, std::uint64_t batch_index) {
    const auto& train = trainer.config().train;
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(train.batch * train.context));
    std::vector<std::int32_t> targets(inputs.size());
    source.fill(batch_index, train.batch, train.context, inputs.data(), targets.data());
    double sum = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(train.context) * static_cast<std::size_t>(train.context);
      const std::vector<float> logits =
          trainer.next_token_logits(std::span<const std::int32_t>(inputs).subspan(row, i - row + 1));
      double exponentials = 0;
      for (const float logit : logits) exponentials += std::exp(static_cast<double>(logit));
      sum += std::log(exponentials) - logits[static_cast<std::size_t>(targets[i])];
    }
    return sum / static_cast<double>(inputs.size());
  }

  std::vector<std::string> notices;
  TrainingData data;
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  Trainer trainer;
};

}  // namespace quaver::test
