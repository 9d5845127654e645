// What ranks that share out gradients or codes do while a pass runs: they get a section's weights before it is
// computed, and give its gradients to those who own them when they are complete.
#pragma once

#include <functional>

#include "nn/step.h"
#include "train/weight_gather.h"

namespace quaver {

class ShardedPass final : public SectionWork {
 public:
  // What is done with a section's gradients when they are complete.
  using Take = std::function<void(Size section)>;

  ShardedPass(Engine& engine, Parameters& parameters, WeightGather& weights)
      : engine_(engine), parameters_(parameters), weights_(weights) {}

  void take_gradients(Take take) { take_ = std::move(take); }

  void begin_pass() override { current_ = SharedPiece::before_sections; }
  void use(Size section) override {
    if (section == current_ || !parameters_.place().has(ShardMode::weights)) return;
    current_ = section;
    weights_.gather_section(section);
  }
  void begin_gradients(Size section) override { parameters_.clear_gradients(engine_, section); }
  void end_gradients(Size section) override { take_(section); }

 private:
  Engine& engine_;
  Parameters& parameters_;
  WeightGather& weights_;
  Take take_;
  Size current_ = SharedPiece::before_sections;
};

}  // namespace quaver
