// The linear layers of a model under each recipe: their GEMMs, and what producing the operands costs.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "nn/registry.h"
#include "study/bench.h"

namespace quaver {

// Engines by what they keep high-precision matrices in, as recipes ask for it.
class BenchEngines {
 public:
  explicit BenchEngines(const Config& config) : config_(config) {}
  Engine& of(const std::string& recipe);
  Recipe recipe(const std::string& name) const;  // under the defaults, whatever else the config says

 private:
  Config config_;
  std::map<Format, std::unique_ptr<Engine>> engines_;
};

// All parts of a layer under the recipes at a number of tokens or images. With one row fprop alone: a matrix times a
// vector.
struct LayerRace {
  BenchLayer layer;
  Size tokens = 0;
  std::vector<std::string> recipes;
  double seconds = 1;
};
std::vector<Measurement> measure_layer(BenchEngines& engines, const LayerRace& race);

// A square GEMM in a recipe. Its operands live as long as the function, and need the engines.
std::function<void()> square_product(BenchEngines& engines, const std::string& recipe, Size extent);

// The machine: copies, and square GEMMs in each format that it multiplies natively.
std::vector<Measurement> measure_peaks(BenchEngines& engines, double seconds);

}  // namespace quaver
