// A benchmark as `quaver bench` writes it: what each precision costs a model's layers and whole steps on a machine.
// Every figure is a Measurement. Runs read it for precision.only_where_faster, `quaver estimate` for times.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/image_operations.h"
#include "quaver/plan.h"

namespace quaver {

// Seconds of one run, of as many as there were rounds.
struct RunTiming {
  double median = 0;
  double p95 = 0;    // of several sweeps the largest
  double noise = 0;  // of the median, relative: half the width of its 95 % interval
  int rounds = 0;
  std::vector<double> sweeps = {};  // the median of each sweep over all that is measured; empty where there was one
};

// What is measured. peak: the machine by itself. layer: the GEMMs of a linear layer, and its operands' producers.
// vector: the same with one token or image. step: a whole optimizer step. phase: a part of one.
// cast: an activation into the codes of a recipe, and nothing else. block: forward and backward pass of one block.
// decode: a token more for each of some sequences. yardstick: what the machine did meanwhile, whatever was measured.
enum class Workload : std::uint8_t { peak, layer, vector, step, phase, cast, block, decode, yardstick };

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

// Bytes that a run keeps for one purpose.
struct MemoryPart {
  std::string purpose = {};
  Size bytes = 0;
};

struct StepVerdict {
  std::string recipe = {};
  double speedup = 0;  // of whole steps over bf16
  double noise = 0;
  Size peak_memory = 0;
  double loss_share = 0;                // of bf16's fall in the same steps
  std::vector<MemoryPart> memory = {};  // empty in files of older versions
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
  std::string settings = {};    // TOML of the config that was measured; empty in files of older versions

  const Measurement* find(Workload workload, const std::string& subject, const std::string& part,
                          const std::string& recipe) const;
};

// Of a micro-batch.
struct BenchScope {
  Size tokens = 0;  // or images
  std::string unit = "tokens";
  double most_flops = 0;                            // of a layer's GEMM, which is judged at a part beyond it; 0: any
  std::map<std::string, PatchWindow> windows = {};  // of convolutions, by layer
};

// The layers of a model, those that differ by their block's number alone taken together.
std::vector<BenchLayer> bench_layers(const std::vector<LayerShape>& layers, const BenchScope& scope);

// The name under which bench_layers counts it: "blocks.*.mlp.up".
std::string group_name(const LayerShape& layer);

// A layer's seconds: the GEMMs and the producers of x and dy in each micro-step, the cast of w in each step.
struct LayerTime {
  double micro_step = 0;
  double weight = 0;
  double noise = 0;                 // of the sum, relative
  std::vector<double> sweeps = {};  // of the sum with one micro-step
  double seconds(Size micro_steps = 1) const { return static_cast<double>(micro_steps) * micro_step + weight; }
};

// Nothing where a part was not measured.
std::optional<LayerTime> layer_time(const Bench& bench, const std::string& subject, const std::string& recipe);

// Half the width of the 95 % interval of what sweeps measured, relative. Repetitions that follow each other at once
// agree with each other even while another program slows all of them; those of other sweeps do not. `usual`: the
// variance that logarithms of such measurements have, because a few sweeps may agree by chance; negative: not known.
double noise_of_sweeps(const std::vector<double>& sweeps, double usual = -1);
// The variance of their logarithms; of fewer than two 0.
double variance_of_logarithms(const std::vector<double>& values);

// The numbers of tokens at which a layer was measured, ascending.
std::vector<Size> measured_tokens(const Bench& bench, const BenchLayer& layer);

std::string to_json(const Bench& bench);
Bench bench_from_json(const std::string& text);  // throws Error where it is not that of a benchmark
Bench read_benchmark(const std::filesystem::path& path);
std::string to_csv(const Bench& bench);

std::string_view name_of(Workload workload);

}  // namespace quaver
