// A linear layer, y = x·wᵀ + b. It owns three sites; producers write its input and its output gradient into them, so
// nothing here depends on the precision. A pass goes: input, forward; output_gradient, input_gradient,
// requantized_input, weight_gradient, which ends it. Debug builds assert it (PassOperand).
#pragma once

#include <memory>

#include "nn/adapter.h"
#include "nn/pass_operand.h"
#include "nn/registry.h"
#include "nn/step.h"
#include "precision/unit_scaling.h"

namespace quaver {

struct LinearShape {
  std::string name;
  Size in = 0;
  Size out = 0;
  Size block = -1;              // number of its block, −1 outside the stack
  bool high_precision = false;  // unless the plan's patterns say otherwise
  bool bias = false;
  float init_std = 0.02F;
  float learning_rate_factor = 1;
  bool unit_scaled = false;
  bool can_recompute = false;          // its GEMM may be recomputed in backward
  Parameter* tied = nullptr;           // whose weight it shares; null: it has its own
  Size pixels = 1;                     // rows of its GEMMs for each row of the batch
  std::vector<Size> projections = {};  // outputs of each, where the layer is several side by side; empty: it is one
};

class Linear {
 public:
  // Registers the layer, its sites and its parameters.
  Linear(Registry& registry, const LinearShape& shape);

  // Where the producer puts x. Producer::can_requantize says that its backward pass can requantize x.
  enum class Producer : std::uint8_t { casts_once, can_requantize };
  QuantizedTensor& input(Step& step, Producer producer = Producer::casts_once);
  // x is factor · matrix, which backward finds unchanged: cast, or its own codes where the site asks for nothing else
  // and there is no factor. (One of unit scaling is still to be found while it is 1.)
  QuantizedTensor& input_from(Step& step, View matrix, float factor);
  // The same for dy, its columns summed.
  QuantizedTensor& output_gradient_from(Step& step, View matrix, float factor);
  // Where the producer's backward pass requantizes x; null where that is not needed.
  QuantizedTensor* requantized_input(Step& step);
  QuantizedTensor& output_gradient(Step& step);                 // where the producer puts dy
  QuantizedTensor& output_gradient(const QuantizedTensor& dy);  // the same in memory of the caller's choice

  void forward(Step& step, View y);
  // Whether y is not kept but recomputed in backward, before x is requantized.
  bool recomputes(const Step& step) const;
  void dgrad(Step& step, View dx);  // dx = dy·w; the bias gradient was summed by dy's producer
  void wgrad(Step& step);           // dw += dyᵀ·x, when x is there; nothing for a frozen weight

  // Given stored over true gradient at y, notes it for the parameters and returns it at x.
  double propagate_ratio(double ratio_at_output, Size tokens);

  OpFactors factors(Size tokens) const;
  const LinearShape& shape() const { return shape_; }
  const LayerSites& sites() const { return sites_; }
  Parameter& weight() const { return weight_; }

 private:
  QuantizedTensor& place_input(const QuantizedTensor& x, ColumnsCast columns);

  LinearShape shape_;
  LayerSites sites_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  PassOperand x_;
  PassOperand dy_;
  std::unique_ptr<Adapter> adapter_;  // null: it has none
};

}  // namespace quaver
