// Frequencies of rotary embedding, which every engine takes from here: those of the base theta, or as Llama 3.1 scales
// them for a context longer than the one that the model was trained with at first.
#pragma once

#include <cmath>
#include <compare>
#include <numbers>

#include "formats/quant_spec.h"

namespace quaver {

// What turns more than high_frequency times within the original context keeps its frequency; what turns less than
// low_frequency times has it divided by the factor; between them it is interpolated. A factor of 1 scales nothing.
struct RotaryScaling {
  float factor = 1;
  float low_frequency = 1;
  float high_frequency = 4;
  Size original_context = 8192;

  auto operator<=>(const RotaryScaling&) const = default;
};

// Radians per position of the i-th of `half` pairs.
inline double rotary_frequency(float theta, const RotaryScaling& scaling, Size i, Size half) {
  const double frequency = std::pow(static_cast<double>(theta), -static_cast<double>(i) / static_cast<double>(half));
  if (scaling.factor == 1) return frequency;
  const double turns = static_cast<double>(scaling.original_context) * frequency / (2 * std::numbers::pi);
  const double low = scaling.low_frequency;
  const double high = scaling.high_frequency;
  const double divided = frequency / scaling.factor;
  if (turns > high) return frequency;
  if (turns < low) return divided;
  const double share = (turns - low) / (high - low);
  return (1 - share) * divided + share * frequency;
}

}  // namespace quaver
