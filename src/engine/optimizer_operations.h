// The operations of an optimizer step: sums of gradients, their norm and the factors that clip them, and the updates of
// weights. operations.h, which includes this, says what they share with the others.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "engine/casting.h"
#include "tensor/view.h"

namespace quaver {

// sum (=|+=) parts[0] + parts[1] + …, each element by itself and strictly in that order, so that it does not matter how
// many ranks the parts came from. FP32.
struct SumInOrder {
  static constexpr OperationKind operation_kind = OperationKind::copy;
  View parts;  // [parts × count]
  View sum;    // [1 × count]
  bool accumulate = false;
};

enum class Clip : std::uint8_t { none, global_norm, group_norm, value };

struct GradientSummary {
  double norm = 0;  // of all gradients together, unscaled, before clipping
  std::uint64_t nonfinite = 0;
  std::uint64_t skip = 0;  // not 0: the optimizer must not update anything in this step
};

// Of one gradient.
struct GradientMeasure {
  double square = 0;  // its norm, squared, before it is unscaled
  std::uint64_t nonfinite = 0;
};

struct MeasureGradients {
  static constexpr OperationKind operation_kind = OperationKind::optimizer;
  std::span<const View> gradients;
  std::span<const float> ratios;  // stored gradient over true gradient: unit-scaled models differ from 1
  GradientMeasure* measures;      // one per gradient
};

// The norm of all gradients together, and for each the factor that unscales and clips it. Ranks have measured them:
// gradient i at places[i], so that the sum does not depend on who did.
struct ClipGradients {
  static constexpr OperationKind operation_kind = OperationKind::optimizer;
  const GradientMeasure* measures;
  std::span<const Size> places;
  float unscale = 1;
  Clip clip = Clip::global_norm;
  float limit = 1;
  float* factors;   // one per gradient
  double* squares;  // one per gradient: its unscaled norm, squared
  GradientSummary* summary;
};

// What an update did to a weight.
struct UpdateStatistics {
  double weight2 = 0;         // Σ w²
  double update2 = 0;         // Σ Δw²
  std::uint64_t unmoved = 0;  // weights whose stored value did not change though the update was not zero
  std::uint64_t count = 0;
};

// AdamW on one parameter: update, round, store, and cast the new weight into its site. Where summary->skip is set,
// weight and moments stay as they are. √v is stored in place of v.
struct AdamW {
  static constexpr OperationKind operation_kind = OperationKind::optimizer;
  View weight;
  View gradient;
  CodeMatrix moment1;
  CodeMatrix moment2_root;
  const float* gradient_factor;
  const GradientSummary* summary;
  float value_limit = 0;  // clip by value after unscaling; 0: none
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon;
  float decay;             // weight −= decay · weight, already multiplied by the learning rate where it should be
  float bias_correction1;  // 1 − β₁ᵗ
  float bias_correction2;
  Rounding rounding = Rounding::nearest_even;  // of the stored weight
  RandomKey random;
  UpdateStatistics* statistics = nullptr;
  QuantizedTensor* quantized = nullptr;  // the weight as GEMMs read it; null where none does
  const Casting* casting = nullptr;
};

// x ← factor · U·Vᵀ, about, where x = U·Σ·Vᵀ: Newton–Schulz iterations bring its singular values near 1, into
// [0.6, 1.25] or so after five, unless they are thousands of times smaller than the largest. X = x / ‖x‖, by the
// Frobenius norm; then X ← a·X + (b·A + c·A²)·X, with A = X·Xᵀ (in a tall matrix on its other side). What GEMMs read is
// rounded to BF16: X, A and b·A + c·A²; sums and the result are FP32. Zeros stay zeros.
struct Orthogonalize {
  static constexpr OperationKind operation_kind = OperationKind::optimizer;
  static constexpr float a = 3.4445F;
  static constexpr float b = -4.7750F;
  static constexpr float c = 2.0315F;
  View x;  // FP32, rows behind each other
  Size steps = 5;
  float factor = 1;

  Size gram_size() const { return x.rows < x.cols ? x.rows : x.cols; }
};

// Muon on one matrix, stored and cast as AdamW's: m ← β·m + (1 − β)·g; the update is (1 − β)·g + β·m (Nesterov), each
// projection orthogonalized by itself, times update_rms · √max(rows, cols), so that the root mean square of its
// elements is that of AdamW's updates, about.
struct Muon {
  static constexpr OperationKind operation_kind = OperationKind::optimizer;
  static constexpr float update_rms = 0.2F;
  View weight;
  View gradient;
  std::span<const Size> projections;  // rows of each; together those of the weight
  CodeMatrix momentum;
  const float* gradient_factor;
  const GradientSummary* summary;
  float value_limit = 0;  // clip by value after unscaling; 0: none
  float learning_rate;
  float beta;
  Size steps;                                  // of Newton–Schulz
  float decay;                                 // as AdamW's
  Rounding rounding = Rounding::nearest_even;  // of the stored weight
  RandomKey random;
  UpdateStatistics* statistics = nullptr;
  QuantizedTensor* quantized = nullptr;  // the weight as GEMMs read it; null where none does
  const Casting* casting = nullptr;
};

// The projections of a Muon update, which is stored as the weight is shaped.
template <class Use>
void for_each_projection(const Muon& op, const View& update, const Use& use) {
  Size first = 0;
  for (const Size rows : op.projections) {
    const float longer = static_cast<float>(rows > update.cols ? rows : update.cols);
    use(Orthogonalize{update.row_range(first, rows), op.steps, Muon::update_rms * std::sqrt(longer)});
    first += rows;
  }
}

// average += momentum · (share · sum − average), but where summary->skip is set. FP32.
struct MovingAverage {
  static constexpr OperationKind operation_kind = OperationKind::optimizer;
  View average;
  View sum;
  float share = 1;
  float momentum = 0.1F;
  const GradientSummary* summary;
};

}  // namespace quaver
