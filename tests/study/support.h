// What several tests of studies need.
#pragma once

#include <string>
#include <vector>

#include "engine/sizing_engine.h"
#include "formats/quantize.h"
#include "study/localize.h"

namespace quaver::test {

// Takes every operation and computes nothing.
class IdleEngine : public SizingEngine {
 public:
  IdleEngine() : SizingEngine(Format::f32, Sharing::where_exact) {}

  void matmul(const Gemm&) override {}
  void quantize(View, QuantizedTensor&, const Casting&, float) override {}
  void add_norm(const AddNorm&) override {}
  void add_norm_backward(const AddNormBackward&) override {}
  void norm_add(const NormAdd&) override {}
  void norm_add_backward(const NormAddBackward&) override {}
  void attention(const Attention&) override {}
  void attention_backward(const AttentionBackward&) override {}
  void activation(const Activation&) override {}
  void activation_backward(const ActivationBackward&) override {}
  void cross_entropy(const CrossEntropy&) override {}
  void adamw(const AdamW&) override {}
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
  return precision;
}

}  // namespace quaver::test
