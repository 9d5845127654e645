// A model of training on many GPUs: what each rank sends in a step, how long that takes, and how much of it can hide
// behind the passes, for every stage of ZeRO. Pure arithmetic; docs/scaling.md has what it says and how far it is
// right.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "study/cluster.h"
#include "train/memory_plan.h"

namespace quaver {

inline constexpr std::array<ShardMode, 4> shard_modes = {ShardMode::none, ShardMode::optimizer, ShardMode::gradients,
                                                         ShardMode::weights};
std::string_view name_of(ShardMode stage);

struct ParameterSize {
  Size count = 0;         // of its gradient as it travels, with padding
  Size whole_bytes = 0;   // that its owner sends in the master format: of what passes read so
  Size codes_bytes = 0;   // that its owner sends as codes and scales
  Size section = 0;       // of the model; before_sections: of a vector
  Size code_section = 0;  // that reads the codes
  Size bucket = 0;        // of sections, whose gradients leave together
  bool late = false;      // its gradient leaves after the whole pass, in no bucket

  static constexpr Size before_sections = -1;
  Size sent_bytes() const { return whole_bytes + codes_bytes; }
};

// A parameter has one owner, who adds up its gradients and updates it; split: large ones are divided among owners.
enum class Ownership : std::uint8_t { whole_parameters, split };

// What the rank that owns the most has: elements, and bytes that it sends to each other rank.
struct LargestShare {
  double count = 0;
  double sent_bytes = 0;
};
// Parameters are dealt out from the largest on, each to the rank that has the fewest elements so far.
LargestShare largest_share(std::span<const ParameterSize> parameters, Size ranks, Ownership ownership);

// One purpose's bytes, sent at once. direct: every rank sends each other rank its part (NCCL's send and receive). ring:
// NCCL's all-gather, in which each byte enters a machine once.
enum class Route : std::uint8_t { direct, ring };
struct Transfer {
  Route route = Route::direct;
  double mean = 0;     // bytes that a rank sends
  double busiest = 0;  // sent, or received, by the rank with the most
  Size calls = 1;
};
double seconds_of(const Transfer& transfer, const Cluster& cluster);

struct ScalingInput {
  Cluster cluster;
  std::vector<ParameterSize> parameters;
  Size equal_shares = 0;               // gradients that ranks share out equally, with more padding; 0: as many
  Size micro_steps = 1;                // of a rank in a step
  Size rounds = 1;                     // of a step in which gradients are exchanged, unless they are sharded
  double gradient_bytes = 4;           // each, as it travels
  double overlap = 0.9;                // share of a pass during which links can be busy
  std::optional<double> rank_seconds;  // of a rank's part of the step by itself
  Size tokens_per_step = 0;            // of all ranks
};

// Seconds that an exchange adds to a step.
struct Exposed {
  double apart = 0;       // if nothing overlapped: it would follow the backward pass
  double overlapped = 0;  // with the passes, as far as they are long enough
};

struct StageScaling {
  ShardMode stage = ShardMode::none;
  double gradients_sent = 0;  // bytes per step, of a rank on average
  double weights_sent = 0;
  Exposed whole;  // parameters have one owner
  Exposed split;  // the same where large ones are divided among owners
};

StageScaling scale(const ScalingInput& input, ShardMode stage);

// Of the time without any exchange; at most 1.
double efficiency(double rank_seconds, double exposed);

struct StageEstimate {
  StageScaling scaling;
  MemoryPlan plan;
  Size needed = 0;  // of a rank's GPU
};

struct Advice {
  ShardMode stage = ShardMode::none;
  bool fits = true;
  std::string why;
};
// The fastest stage that fits; of those that are as fast within 1 %, the one that needs the least memory.
Advice advise(std::span<const StageEstimate> stages, const ScalingInput& input, std::optional<Size> available);

struct ScalingEstimate {
  ScalingInput input;
  std::vector<StageEstimate> stages;
  Advice advice;
  std::optional<Size> available;
  std::string time_how;  // where rank_seconds comes from
};

// Every assumption, a sentence each.
std::vector<std::string> assumptions(const ScalingEstimate& estimate);

// A table of the stages, the advice, the assumptions.
std::string scaling_text(const ScalingEstimate& estimate);

}  // namespace quaver
