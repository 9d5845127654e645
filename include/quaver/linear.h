// A linear layer y = x·wᵀ + b with a recipe's casts and GEMMs, on float arrays: the layer that quaver's models are made
// of, for use in another program's model.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quaver/quant_spec.h"
#include "quaver/statistics.h"

namespace quaver {

// automatic: a GPU where there is one that the CUDA engine can use, else the CPU.
enum class LinearDevice : std::uint8_t { automatic, cpu, cuda };

struct LinearSettings {
  Size in = 0;
  Size out = 0;
  bool bias = false;
  std::string recipe = "fp8-current";
  std::vector<std::string> settings = {};  // of the section precision: "precision.history=32"
  std::uint64_t seed = 1;                  // of stochastic rounding
  LinearDevice device = LinearDevice::cpu;
  int threads = 0;  // of the CPU; 0: all cores
};

// evaluate: nothing is kept for backward, and no statistics are collected.
enum class LinearPass : std::uint8_t { train, evaluate };

class LinearLayer {
 public:
  explicit LinearLayer(const LinearSettings& settings);
  ~LinearLayer();
  LinearLayer(LinearLayer&&) noexcept;
  LinearLayer& operator=(LinearLayer&&) noexcept;

  void set_weight(std::span<const float> weight);  // [out × in]: zeros until then
  void set_bias(std::span<const float> bias);      // [out]

  // y [tokens × out] from x [tokens × in]. The number of tokens is x's.
  void forward(std::span<const float> x, std::span<float> y, LinearPass pass = LinearPass::train);

  // dx [tokens × in] from dy [tokens × out], of the latest forward in training; adds to the gradients. Once per
  // forward.
  void backward(std::span<const float> dy, std::span<float> dx);

  std::vector<float> weight_gradient() const;  // [out × in]: the sum since the last end_step
  std::vector<float> bias_gradient() const;    // [out]

  void clear_gradients();

  // Sets the next step's delayed scales from what this one's casts saw, and clears the gradients.
  void end_step();

  CastStatistics statistics(Role role) const;  // of the step that end_step ended last
  void collect(Detail detail);                 // what the casts from now on collect
  float scale(Role role) const;                // of delayed and static scaling; 0: not known yet
  std::string scales_json() const;
  std::vector<std::string> load_scales(const std::string& json);  // returns the sites that the text lacks

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quaver
