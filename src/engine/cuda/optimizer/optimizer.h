// The optimizer's operations: sums of gradients, the norm of all gradients with the factors that unscale and clip them,
// and the AdamW update of one parameter in the storage formats of its weight and moments.
#pragma once

#include <span>
#include <vector>

#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

void sum_in_order(Gpu& gpu, const SumInOrder& op);

// A piece of a gradient that one block sums.
struct GradientPart {
  const float* data = nullptr;
  Size count = 0;
  bool operator==(const GradientPart&) const = default;
};

// Which pieces belong to a gradient.
struct GradientSpan {
  Size first = 0;
  Size parts = 0;
  double ratio2 = 1;  // ratio², by which its square is divided
  bool operator==(const GradientSpan&) const = default;
};

// Measures gradients in one pass over a list of pieces, which stays on the device for as long as it does not change.
class GradientMeter {
 public:
  GradientMeter() = default;
  ~GradientMeter();
  GradientMeter(const GradientMeter&) = delete;
  GradientMeter& operator=(const GradientMeter&) = delete;

  void measure(Gpu& gpu, const MeasureGradients& op);
  void clip(Gpu& gpu, const ClipGradients& op);

 private:
  void update_lists(Gpu& gpu, const MeasureGradients& op);

  std::vector<GradientPart> parts_;
  std::vector<GradientSpan> spans_;
  std::vector<Size> places_;
  GradientPart* device_parts_ = nullptr;
  GradientSpan* device_spans_ = nullptr;
  Size* device_places_ = nullptr;
};

// All of the update but the cast into op.quantized.
void adamw(Gpu& gpu, const AdamW& op);

// The sum of what an update's blocks counted, unless it was skipped.
void sum_statistics(Gpu& gpu, std::span<const UpdateStatistics> parts, const GradientSummary* summary,
                    UpdateStatistics* out);

}  // namespace quaver::cuda
