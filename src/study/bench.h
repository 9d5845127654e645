// A benchmark of a machine and a model: what each precision costs, layer by layer and as whole steps, and what follows
// from it. Tables, verdicts, reports and comparisons are made from the list of its measurements.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "engine/engine.h"
#include "train/benchmark.h"

namespace quaver {

RunTiming timing_of(std::vector<double> seconds);

// Whether a recipe makes a layer faster than bf16, as far as the measurement tells.
enum class Payoff : std::uint8_t { pays, uncertain, does_not_pay };

// What a recipe does to a layer: seconds of its GEMMs and of producing their operands, beside bf16's.
struct LayerVerdict {
  BenchLayer layer = {};
  std::string recipe = {};
  double seconds = 0;
  double bf16_seconds = 0;
  double noise = 0;                     // of the ratio, from turns in the same sweeps
  std::optional<Size> break_even = {};  // tokens from which on it is faster; none: never, of those measured
  double speedup() const { return seconds > 0 ? bf16_seconds / seconds : 0; }
  // By more than noise and than what changes from run to run, to either side.
  Payoff payoff() const;
};

struct BenchPlan {
  Config config = {};                     // of the model
  std::vector<std::string> recipes = {};  // of layers; bf16 is added
  std::vector<std::string> step_recipes = {};
  double seconds = 45;     // to spend, about
  int sweeps = 1;          // over all layers and casts, one after the other
  int step_sweeps = 1;     // of them with whole steps, in which recipes take turns
  double layer_flops = 0;  // most of a layer's GEMM, which is judged at a part of the micro-batch beyond it; 0: any
};

// What `quaver bench` measures on this machine where nothing is asked for.
BenchPlan default_bench_plan(const Config& config, HardwareKind hardware);

// done: share of the whole; what: is measured now.
using BenchProgress = std::function<void(double done, const std::string& what)>;
Bench run_bench(const BenchPlan& plan, const BenchProgress& progress);

// From the measurements of layers. Recipes in their order.
std::vector<LayerVerdict> layer_verdicts(const Bench& bench);

// Whether a share of 0.8 of bf16's fall is reached, as `bench step` asks: others are not recommended.
std::optional<StepVerdict> recommended(const Bench& bench);

}  // namespace quaver
