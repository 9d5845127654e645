// Optimizers over a model's parameters. What they share is here: learning rates and decay by pattern, norm and clipping
// of the gradients, memory, statistics of the updates. An optimizer says what state it keeps of a parameter as named
// slots; checkpoints and the memory plan follow from them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "nn/parameter.h"
#include "optim/optim_config.h"

namespace quaver {

struct OptimizerStep {
  Size step = 0;             // from 0
  double learning_rate = 0;  // peak times schedule
  double decay = 0;          // share of the weight taken away, before the pattern's multiplier
  float unscale = 1;         // undoes loss scale and accumulation
  const Casting* casting;    // of the weights into their sites
  Size micro_batches = 1;    // that moving averages have sums of
};

// State of one parameter, in its storage format.
struct OptimizerSlot {
  std::string name;  // of its tensor in checkpoints, behind the parameter's: "m"
  CodeMatrix values;

  Size scale_count() const;   // of blocks; 0: none
  Size stored_bytes() const;  // codes and block scales
};

// Slots and update statistics of one parameter.
struct OptimizerState {
  Parameter* parameter = nullptr;
  std::vector<OptimizerSlot> slots;
  double learning_rate_factor = 1;  // 0: the parameter is frozen, and has no slots
  double decay_factor = 1;
  UpdateStatistics update;  // of the last update, on the host
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // For the parameters that this rank keeps.
  void allocate(Engine& engine, Communicator& ranks = single_process());

  // Both enqueue and return. measure: the norm of the gradients, of all ranks, and the factors that clip them;
  // summary() has it after the device's next synchronize(). update: moves the weights and casts them, for which the
  // scales of their sites are ready on the device; where the summary there says so it does nothing, and the caller, who
  // learns of that later, takes the count of updates back.
  void measure(Engine& engine, float unscale);
  void update(Engine& engine, const OptimizerStep& step);
  void take_back_update() { --updates_; }

  const GradientSummary& summary() const { return summary_; }
  GradientSummary* device_summary() const { return reinterpret_cast<GradientSummary*>(statistics_.get()); }

  // What the owners found out about their updates, to every rank; after the device's synchronize().
  void share_updates();

  // The squared norm of each parameter's true gradient, as last measured, 0 for frozen ones: `use` is called as
  // Device::read calls it.
  using UseSquares = std::function<void(std::vector<double>)>;
  void read_squares(Engine& engine, const UseSquares& use) const;

  // The same of this rank's gradients by themselves, which need not all be there at once: note_squares() for each part
  // of the parameters, then read_noted(); forget_noted() where it does not come to that.
  void note_squares(Engine& engine, const std::function<bool(const Parameter&)>& part);
  void read_noted(Engine& engine, float unscale, const UseSquares& use);
  void forget_noted() { noted_.clear(); }

  std::vector<OptimizerState>& states() { return states_; }
  Size planned_bytes() const;  // of the slots in engine memory
  Size stored_bytes() const;   // of the slots in a checkpoint

  // Updates that took effect: Adam's bias correction counts these, not the skipped ones.
  Size updates() const { return updates_; }
  void restore_updates(Size updates) { updates_ = updates; }

 protected:
  using SlotsOf = std::function<std::vector<OptimizerSlot>(const Parameter&)>;
  // Freezes parameters as freeze() does. Throws Error where nothing is left to train.
  Optimizer(const OptimConfig& config, Parameters& parameters, const SlotsOf& slots_of);

  // What an update reads and fills beside the parameter and its slots. Pointers lie in engine memory.
  struct Update {
    const OptimizerStep& step;
    const float* gradient_factor;  // unscales and clips
    const GradientSummary* summary;
    float value_limit;  // clip by value after unscaling; 0: none
    UpdateStatistics* statistics;
  };
  // Moves the weight and casts it into its site; not called for frozen parameters.
  virtual void update_parameter(Engine& engine, OptimizerState& state, const Update& update) = 0;

  const OptimConfig& config() const { return config_; }

 private:
  OptimConfig config_;
  std::vector<OptimizerState> states_;
  GradientSummary summary_;  // as last read
  Size updates_ = 0;
  std::shared_ptr<std::byte> memory_;      // slots
  std::shared_ptr<std::byte> statistics_;  // the summary, then what device_…() point to
  Communicator* ranks_ = &single_process();
  Parameters* parameters_;
  std::vector<std::size_t> trained_;  // the states of parameters that are not frozen
  bool shared_ = false;               // each rank keeps some of the parameters
  std::vector<Size> places_;          // of their measures: those of a rank lie together
  Size rank_measures_ = 0;            // of each rank
  std::vector<std::size_t> noted_;    // parameters, in the order of their noted measures

  int measuring_ranks() const { return shared_ ? parameters_->place().ranks : 1; }
  void place_measures();
  void update_averages(Engine& engine, Size micro_batches);
  UpdateStatistics* device_updates() const;
  GradientMeasure* device_measures() const;
  GradientMeasure* device_noted() const;
  double* device_squares() const;
  float* device_factors() const;
};

// Marks the parameters whose learning rate the config's patterns make 0, and those that no gradient updates. Throws
// Error when a pattern matches no parameter.
void freeze(Parameters& parameters, const OptimConfig& config);

// The optimizer that the config describes.
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, Parameters& parameters);

}  // namespace quaver
