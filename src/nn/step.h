// What one micro-step carries through the layers: the engine, its memory, the shape of the batch, and how casts behave.
#pragma once

#include "engine/engine.h"

namespace quaver {

// calibrate: as train, and unit-scaled branches set the constants that give their tensors unit variance.
enum class Pass : std::uint8_t { train, evaluate, calibrate };

struct Step {
  Engine& engine;
  Arena& arena;
  Size batch = 0;
  Size sequence = 0;
  Pass pass = Pass::train;
  Casting casting = {};
  Accumulator accumulator = Accumulator::fp32;
  float* max_logit = nullptr;

  Size tokens() const { return batch * sequence; }

  // A wide matrix that backward reads again, and one that ends with its scope.
  View saved(Size cols) { return arena.saved(tokens(), cols, Format::f32); }
  View scratch(Size cols) { return arena.scratch(tokens(), cols, Format::f32); }

  QuantizedTensor saved(Site& site, Size cols) {
    const Copies copies = pass == Pass::evaluate ? Copies::rows_only : Copies::both;
    return {site, tokens(), cols, copies, [this](std::size_t bytes) { return arena.take_saved(bytes); }};
  }
  QuantizedTensor scratch(Site& site, Size cols) {
    return {site, tokens(), cols, Copies::both, [this](std::size_t bytes) { return arena.take_scratch(bytes); }};
  }
};

// The factor that would have given the site's tensor unit variance, from what its cast has just seen with this one.
inline float factor_to_unit(float factor, Site& site) {
  const double deviation = site.seen.std();
  site.seen = {};
  return deviation > 0 ? static_cast<float>(factor / deviation) : factor;
}

}  // namespace quaver
