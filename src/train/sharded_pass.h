// What ranks do beside a pass: the weights that its next section reads arrive while it computes another, and the
// gradients of a bucket leave for those who own them when they are complete.
#pragma once

#include <array>
#include <functional>

#include "nn/step.h"
#include "train/weight_gather.h"

namespace quaver {

class ShardedPass final : public SectionWork {
 public:
  // What is done with a bucket's gradients when they are complete, and what their memory has to wait for then.
  using Take = std::function<Device::Place(Size bucket)>;

  ShardedPass(Engine& engine, Parameters& parameters, WeightGather& weights)
      : engine_(engine), parameters_(parameters), weights_(weights) {}

  // The next pass, during which weights arrive that are due, and those after it, until the next plan. `key` identifies
  // what `take` does, which is not called where a pass is replayed; null: the gradients stay where they are.
  void plan(std::uint64_t key, Take take);

  std::uint64_t key() const override { return key_; }
  void begin_pass() override;
  void use(Size section) override;
  void begin_gradients(Size section) override;
  void end_gradients(Size section) override;
  void end_pass() override;

 private:
  void move(Size section);
  void fetch(Size section);

  static constexpr Size none = -1;

  Engine& engine_;
  Parameters& parameters_;
  WeightGather& weights_;
  Take take_;
  std::uint64_t key_ = 0;
  bool gathers_ = false;                 // the weights of the latest update arrive during the pass
  std::vector<Device::Place> arrivals_;  // of the buckets' weights, then

  // Where weights are moved for each section.
  struct Slot {
    Size section = none;  // whose weights it has
    Device::Place arrival = Device::nowhere;
  };
  std::array<Slot, Parameters::slots> slots_;
  std::vector<Size> order_;  // in which passes use sections, as far as known
  std::size_t used_ = 0;     // of it in this pass
  Size current_ = none;

  std::array<Device::Place, Parameters::slots> departures_{};  // of gradients from memory that sections share
};

}  // namespace quaver
