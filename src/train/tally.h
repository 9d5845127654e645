// What micro-steps add up in engine memory: the summed loss, attention's largest logit, and the rows whose target was
// the likeliest. Losses are added up group by group, as gradients are.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/engine.h"

namespace quaver {

class Tally {
 public:
  explicit Tally(Engine& engine) : engine_(engine), memory_(engine.device().allocate(sizeof(Sums))) {}

  // Forgets all groups, and begins the first one.
  void reset() {
    losses_.clear();
    max_logit_ = nothing.max_logit;
    correct_ = 0;
    begin_group();
  }
  void begin_group() { engine_.device().upload(&nothing, memory_.get(), sizeof(nothing)); }

  // After the device's next synchronize() the group's sums are known here.
  void end_group() {
    engine_.device().read(memory_.get(), sizeof(Sums), [this](const std::byte* data) {
      Sums sums;
      std::memcpy(&sums, data, sizeof(sums));
      losses_.push_back(sums.loss);
      max_logit_ = std::max(max_logit_, sums.max_logit);
      correct_ += sums.correct;
    });
  }

  // Of the groups that have ended, in their order.
  const std::vector<double>& losses() const { return losses_; }
  float max_logit() const { return max_logit_; }
  std::uint64_t correct() const { return correct_; }
  double loss_sum() const { return std::accumulate(losses_.begin(), losses_.end(), 0.0); }

  // What all ranks have found, in place of what this one has.
  void take(std::vector<double> losses, float max_logit) {
    losses_ = std::move(losses);
    max_logit_ = max_logit;
  }

  // In engine memory.
  double* device_loss_sum() const { return &device()->loss; }
  float* device_max_logit() const { return &device()->max_logit; }
  std::uint64_t* device_correct() const { return &device()->correct; }

 private:
  struct Sums {
    double loss = 0;
    float max_logit = 0;
    std::uint64_t correct = 0;
  };
  static constexpr Sums nothing{0, -std::numeric_limits<float>::infinity(), 0};

  Sums* device() const { return reinterpret_cast<Sums*>(memory_.get()); }

  Engine& engine_;
  std::shared_ptr<std::byte> memory_;
  std::vector<double> losses_;
  float max_logit_ = nothing.max_logit;
  std::uint64_t correct_ = 0;
};

}  // namespace quaver
