// What a run will take before it is started: memory by purpose against what is free, the mildest change that makes it
// fit, and the time, from a few steps of a shallower model or, for a GPU that is not here, from its published peak; and
// what many GPUs make of it (scaling.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "study/scaling.h"
#include "train/memory_plan.h"

namespace quaver {

// A GPU model as its maker describes it: dense peaks, without sparsity.
struct GpuModel {
  std::string_view name;  // as --gpu takes it
  int architecture;
  double memory_gib;
  double bf16_tflops;
  double fp8_tflops;  // 0: no FP8 arithmetic
};
const std::vector<GpuModel>& gpu_models();
// Throws Error with the known names.
const GpuModel& find_gpu_model(std::string_view name);

enum class Timing : std::uint8_t { measure, leave_out };

struct EstimateOptions {
  std::string gpu;                 // a model of the table to plan for, here or not; empty: what the config says
  std::optional<Size> gpu_memory;  // bytes; plans for a GPU with this much free
  Timing timing = Timing::measure;
  double tokens_per_second = 0;  // that one GPU was seen to train; 0: estimated
  // File of `quaver bench --json` to take times from; empty: that of precision.only_where_faster, or none.
  std::string bench = {};

  std::optional<Cluster> cluster = {};  // many GPUs, which divide the micro-batches of a step
  double gradient_bytes = 4;            // of one gradient that travels between them
  double overlap = 0.9;                 // share of a pass during which links can be busy
};

// Measured on this machine, taken from a table and a stated assumption, or told by the user.
enum class Origin : std::uint8_t { measured, assumed, given };

struct TimeEstimate {
  double seconds_per_step = 0;
  double optimizer_seconds = 0;  // of them, whatever the number of micro-batches; 0 where it is not known
  Origin origin = Origin::measured;
  std::string how;  // in words: what was measured, or what was assumed
};

// "8 × 1024"; of images, which are no sequences, "8".
std::string batch_text(Size batch, Size context);

// A change of settings, and what the run would need with it.
struct FittingChange {
  std::vector<std::string> settings;  // "train.batch=8", as flags take them
  std::string cost;                   // in words: what is given up
  MemoryPlan plan;
  Size needed = 0;
};

struct Estimate {
  Config config;       // as resolved
  std::string device;  // in words
  HardwareKind kind = HardwareKind::cpu;
  MemoryPlan plan;
  Size overhead = 0;  // program and libraries on the host; CUDA's context and libraries on a GPU
  Origin overhead_origin = Origin::measured;
  Size needed = 0;                      // of the device's memory
  std::optional<Size> available;        // empty: not known
  std::string available_how;            // where that number comes from
  Size host_needed = 0;                 // of the machine's memory; on the CPU the same as needed
  std::optional<FittingChange> change;  // the mildest that fits, where the config does not and one does

  Size parameters = 0;
  Size tokens_per_step = 0;
  double flops_per_token = 0;
  double low_precision_share = 0;  // of the matrix products' operations, in 8 bits or fewer
  std::optional<TimeEstimate> time;
  std::string time_missing;  // why there is none
  std::optional<ScalingEstimate> scaling;
  std::vector<std::string> notes;

  bool fits() const { return !available || needed <= *available; }
  double total_flops() const;
};

// Throws Error where the config makes no sense, or asks for a GPU that is not known.
Estimate estimate(const Config& config, const EstimateOptions& options);

std::string estimate_text(const Estimate& estimate);
std::string estimate_json(const Estimate& estimate);

// "80GiB", "24 GB", "40960 MiB" or bytes. Throws Error.
Size parse_bytes(std::string_view text);

// What this process holds now, and has held at most, in bytes.
struct ProcessMemory {
  Size now = 0;
  Size peak = 0;
};
ProcessMemory process_memory();

}  // namespace quaver
