// What the micro-steps of a step add up in engine memory: the summed loss, attention's largest logit, and the
// rows whose target was the likeliest.
#pragma once

#include <cstring>
#include <limits>
#include <memory>

#include "engine/engine.h"

namespace quaver {

class Tally {
 public:
  explicit Tally(Engine& engine) : engine_(engine), memory_(engine.device().allocate(sizeof(Sums))) {}

  void reset() {
    sums_ = {.max_logit = -std::numeric_limits<float>::infinity()};
    engine_.device().upload(&sums_, memory_.get(), sizeof(sums_));
  }
  // After the device's next synchronize() the sums are those of this moment.
  void read() {
    engine_.device().read(memory_.get(), sizeof(sums_),
                          [this](const std::byte* data) { std::memcpy(&sums_, data, sizeof(sums_)); });
  }

  // As last read.
  double loss_sum() const { return sums_.loss; }
  float max_logit() const { return sums_.max_logit; }
  std::uint64_t correct() const { return sums_.correct; }

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
  Sums* device() const { return reinterpret_cast<Sums*>(memory_.get()); }

  Engine& engine_;
  std::shared_ptr<std::byte> memory_;
  Sums sums_;  // on the host
};

}  // namespace quaver
