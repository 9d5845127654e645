// A linear layer, y = x·wᵀ + b. It owns three sites; producers write its input and its output gradient into them, so
// nothing here depends on the precision.
#pragma once

#include "nn/parameter.h"
#include "nn/step.h"
#include "precision/scale_book.h"
#include "precision/unit_scaling.h"

namespace quaver {

struct LinearShape {
  std::string name;
  Size in = 0;
  Size out = 0;
  bool bias = false;
  float init_std = 0.02F;
  float learning_rate_factor = 1;
  bool unit_scaled = false;
};

class Linear {
 public:
  Linear(Parameters& parameters, ScaleBook& book, const Plan& plan, const LinearShape& shape);

  QuantizedTensor& input(Step& step);            // where the producer puts x
  QuantizedTensor& output_gradient(Step& step);  // where the producer puts dy

  void forward(Step& step, View y);
  void backward(Step& step, View dx);  // dx = dy·w and dw += dyᵀ·x; the bias gradient was summed by dy's producer

  // Given stored over true gradient at y, notes it for the parameters and returns it at x.
  double propagate_ratio(double ratio_at_output, Size tokens);

  OpFactors factors(Size tokens) const;
  const LinearShape& shape() const { return shape_; }

 private:
  LinearShape shape_;
  Site& x_site_;
  Site& dy_site_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  QuantizedTensor x_;
  QuantizedTensor dy_;
};

}  // namespace quaver
