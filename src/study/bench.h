// A benchmark of a machine and a model: what each precision costs, layer by layer and as whole steps, and what follows
// from it. Every figure is a Measurement; tables, verdicts, reports and comparisons are made from the list of them.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "engine/engine.h"

namespace quaver {

// Seconds of one run, of as many as there were rounds.
struct RunTiming {
  double median = 0;
  double p95 = 0;
  double noise = 0;  // of the median, relative: half the width of its 95 % interval
  int rounds = 0;
};

RunTiming timing_of(std::vector<double> seconds);

// What is measured. peak: the machine by itself. layer: the GEMMs of a linear layer, and its operands' producers.
// vector: the same with one token or image. step: a whole optimizer step. phase: a part of one.
// cast: an activation into the codes of a recipe, and nothing else. block: forward and backward pass of one block.
// decode: a token more for each of some sequences.
enum class Workload : std::uint8_t { peak, layer, vector, step, phase, cast, block, decode };

struct Measurement {
  Workload workload = Workload::peak;
  std::string subject = {};  // "copy"; "blocks.*.mlp.up, 1024 → 4096, 65536 tokens"; "gpt-350m"
  std::string part = {};     // "fprop", "x"; "attention"
  std::string recipe = {};   // or format
  std::string support = {};  // "native", or how it is emulated
  RunTiming time = {};
  double flops = 0;                   // of one run
  double bytes = 0;                   // that one run has to move at least; 0: not counted
  double units = 0;                   // tokens or images of one run; 0: none
  std::optional<double> joules = {};  // of one run, where the machine says

  double rate(double work) const { return time.median > 0 ? work / time.median : 0; }
};

// One of a model's linear layers; those of other blocks like it are counted. A convolution is one of its patches.
struct BenchLayer {
  std::string name = {};  // "blocks.*.mlp.up"
  Size in = 0;
  Size out = 0;
  Size count = 0;
  Size tokens = 0;  // or images, at which it is judged: a micro-batch, or a part of it where that would be too much
  Size pixels = 1;  // rows of its GEMMs for each of them
  std::string unit = "tokens";
  PatchWindow window = {};  // over one image, which writes its x; none where it has no pixels
  Size rows(Size at) const { return at * pixels; }
  std::string text() const;  // "blocks.*.mlp.up, 1024 → 4096"; of a convolution with its pixels
  std::string subject(Size at) const;
};

// What a recipe does to a layer: seconds of its GEMMs and of producing their operands, beside bf16's.
struct LayerVerdict {
  BenchLayer layer = {};
  std::string recipe = {};
  double seconds = 0;
  double bf16_seconds = 0;
  double noise = 0;                     // of the ratio
  std::optional<Size> break_even = {};  // tokens from which on it is faster; none: never, of those measured
  double speedup() const { return seconds > 0 ? bf16_seconds / seconds : 0; }
  // By more than noise and than what changes from run to run.
  bool pays() const { return speedup() > 1 + std::max(noise, 0.05); }
};

struct StepVerdict {
  std::string recipe = {};
  double speedup = 0;  // of whole steps over bf16
  double noise = 0;
  Size peak_memory = 0;
  double loss_share = 0;  // of bf16's fall in the same steps
};

struct BenchMachine {
  std::string engine = {};  // with its libraries
  std::string host = {};    // processor
  std::string energy = {};  // where joules come from, or why there are none
};

struct Bench {
  std::string version = {};
  std::string date = {};  // ISO 8601, UTC
  BenchMachine machine = {};
  std::string model = {};
  Size tokens = 0;  // or images, of a micro-batch
  Size context = 0;
  double seconds = 0;  // that the benchmark took
  std::vector<BenchLayer> layers = {};
  std::vector<Measurement> measurements = {};
  std::vector<StepVerdict> steps = {};
  std::string unit = "tokens";  // or images: what `tokens` and a measurement's units count

  const Measurement* find(Workload workload, const std::string& subject, const std::string& part,
                          const std::string& recipe) const;
};

struct BenchPlan {
  Config config = {};                     // of the model
  std::vector<std::string> recipes = {};  // of layers; bf16 is added
  std::vector<std::string> step_recipes = {};
  double seconds = 45;     // to spend, about
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

std::string to_json(const Bench& bench);
Bench bench_from_json(const std::string& text);  // throws Error where it is not that of a benchmark
std::string to_csv(const Bench& bench);

// What differs between two benchmarks by more than both their noises.
struct BenchChange {
  Measurement before = {};
  Measurement after = {};
  double ratio() const { return after.time.median / before.time.median; }
};
struct BenchDifference {
  std::vector<BenchChange> changes = {};  // the largest first
  std::vector<std::string> verdicts = {};
  Size compared = 0;
  Size missing = 0;  // in one of the two
};
BenchDifference compare_benches(const Bench& before, const Bench& after);

std::string_view name_of(Workload workload);

}  // namespace quaver
