// What a QuantizedMatrix holds: codes in memory of its own, or in the caller's on a device.
#pragma once

#include "api/layer_engine.h"

#include "formats/quantize.h"
#include "quaver/quantize.h"

namespace quaver {

struct QuantizedMatrix::State {
  State() = default;
  ~State() {
    if (site != nullptr) engine->give_back(std::move(site));
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  RandomKey random() const { return {settings.seed, settings.step, settings.stream}; }

  CastSettings settings;
  CodeMatrix matrix;
  mutable CastStatistics statistics;

  // In host memory.
  std::vector<std::byte> codes;
  std::vector<float> block_scales;
  float tensor_scale = 1;

  // On a device.
  std::shared_ptr<LayerEngine> engine;  // null: in host memory
  int gpu = 0;
  void* stream = nullptr;      // that it was cast on
  std::unique_ptr<Site> site;  // holds the statistics …
  mutable bool read = false;   // … until they are read
};

// Throws Error where a cast has no meaning.
void check_cast(const CastSettings& settings);

// … or a GEMM of the two.
void check_gemm(const QuantizedMatrix& a, const QuantizedMatrix& b);

}  // namespace quaver
