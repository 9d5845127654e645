// What several tests of studies need.
#pragma once

#include <string>
#include <vector>

#include "engine/sizing_engine.h"
#include "formats/quantize.h"
#include "study/localize.h"

namespace quaver::test {

// Takes every operation and computes nothing.
class IdleEngine : public RunsEach<IdleEngine, SizingEngine> {
 public:
  IdleEngine() : RunsEach({}, Format::f32, Sharing::where_exact) {}

  template <class Operation>
  void each(const Operation& op) {
    if constexpr (std::is_same_v<Operation, Gemm>) on_gemm(op);
  }
  virtual void on_gemm(const Gemm&) {}
};

inline void ignore(const std::string&) {}

// Of a row of numbers that stays as wide as it is.
inline CastStatistics statistics_of(const std::vector<float>& values) {
  std::vector<std::byte> codes(values.size() * sizeof(float));
  float one = 1;
  const CodeMatrix out{{}, 1, static_cast<Size>(values.size()), codes.data(), nullptr, &one};
  return quantize({values.data(), 1, static_cast<Size>(values.size())},
                  {.side = Side::rows, .given_scale = 1, .random = {}, .detail = Detail::full}, out);
}

// A config with the plan that a localization proposes.
inline PrecisionConfig with_plan(PrecisionConfig precision, const Localization& localization) {
  precision.recipe = localization.recipe;
  precision.layers = localization.layers;
  precision.recipes.insert(localization.recipes.begin(), localization.recipes.end());
  return precision;
}

}  // namespace quaver::test
