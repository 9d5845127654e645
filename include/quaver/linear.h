// A linear layer y = x·wᵀ + b with a recipe's casts and GEMMs, for use in another program's model: on float arrays of
// the host, or in place on arrays in the memory of its device, where a GPU's work goes onto the caller's stream.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quaver/device.h"
#include "quaver/quant_spec.h"
#include "quaver/statistics.h"

namespace quaver {

using LinearDevice = DeviceKind;

struct LinearSettings {
  Size in = 0;
  Size out = 0;
  bool bias = false;
  std::string recipe = "fp8-current";
  std::vector<std::string> settings = {};  // of the section precision: "precision.history=32"
  std::uint64_t seed = 1;                  // of stochastic rounding
  LinearDevice device = LinearDevice::cpu;
  int threads = 0;  // of the CPU; 0: all cores
  int gpu = 0;      // its number among CUDA's devices. Layers of one GPU share an engine
};

// evaluate: nothing is kept for backward, and no statistics are collected.
enum class LinearPass : std::uint8_t { train, evaluate };

// What a pass in device memory needs of it beside its arrays, in bytes. kept: from forward until its backward has run;
// 0 where backward reads x itself. scratch: until the stream has passed the call's work.
struct LinearMemory {
  std::size_t kept = 0;
  std::size_t forward_scratch = 0;
  std::size_t backward_scratch = 0;
};

// Arrays in the memory of the layer's device, contiguous and row-major; on a GPU they begin at multiples of 16 bytes.
// Formats are f32, or bf16 on a GPU. The stream is a cudaStream_t (null: CUDA's default stream); a CPU has none.
struct LinearForward {
  Size tokens = 0;
  Format format = Format::f32;  // of x and y
  LinearPass pass = LinearPass::train;
  const void* x = nullptr;      // [tokens × in]
  const float* bias = nullptr;  // [out]; null: none
  void* y = nullptr;            // [tokens × out]
  std::span<std::byte> kept = {};
  std::span<std::byte> scratch = {};
  void* stream = nullptr;
};

// add: to what is there, as micro-batches of one optimizer step do.
enum class LinearGradient : std::uint8_t { replace, add };

struct LinearBackward {
  Size tokens = 0;
  Format format = Format::f32;  // of dy and dx
  Format weight_format = Format::f32;
  const void* x = nullptr;          // of forward, where nothing else was kept
  const void* dy = nullptr;         // [tokens × out]
  void* dx = nullptr;               // [tokens × in]; null: not wanted
  void* weight_gradient = nullptr;  // [out × in]; null: not wanted
  LinearGradient store = LinearGradient::replace;
  float* bias_gradient = nullptr;  // [out], added to; null: not wanted
  std::span<std::byte> kept = {};
  std::span<std::byte> scratch = {};
  void* stream = nullptr;
};

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

  // The same in the memory of the layer's device. On a GPU nothing waits for the work but the first calls of a shape,
  // which measure GEMMs. Any number of passes may be between forward and backward; the codes of the weight are those of
  // the latest set_weight, which casts [out × in] values, or refers to them where the recipe casts nothing.
  LinearMemory memory(Size tokens, Format format) const;
  void set_weight(const void* weight, Format format, void* stream);
  void forward(const LinearForward& pass);
  void backward(const LinearBackward& pass);

  std::vector<float> weight_gradient() const;  // [out × in]: the sum since the last end_step
  std::vector<float> bias_gradient() const;    // [out]

  void clear_gradients();

  // Sets the next step's delayed scales from what this one's casts saw, and clears the gradients.
  void end_step();
  // The same for many layers, with one wait per GPU.
  static void end_step(std::span<LinearLayer* const> layers);

  CastStatistics statistics(Role role) const;  // of the step that end_step ended last
  void collect(Detail detail);                 // what the casts from now on collect
  float scale(Role role) const;                // of delayed and static scaling; 0: not known yet
  std::string scales_json() const;
  // Returns the sites that the text lacks. A weight in device memory is to be set again.
  std::vector<std::string> load_scales(const std::string& json);

  // All that a layer is beside its weight and bias, as text: one that is given them and the text goes on as this one
  // would, bit for bit, from the end of a step. load_state throws Error, and changes nothing, where the text is that of
  // a layer with another recipe, or of none.
  std::string state() const;
  void load_state(const std::string& text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quaver
