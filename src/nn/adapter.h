// A low-rank adapter (LoRA) of a frozen linear layer: y += (alpha / rank) · B·(A·x). It reads the codes that the
// layer's own GEMMs read, x and dy; A, B and what lies between them are in high precision. B begins as zeros.
#pragma once

#include <string>
#include <vector>

#include "nn/pass_operand.h"
#include "nn/registry.h"
#include "nn/step.h"

namespace quaver {

class Adapter {
 public:
  // Registers A and B as layers of their own, beside the one that is adapted.
  Adapter(Registry& registry, const LayerShape& adapted);

  void begin_pass() { hidden_ = {}; }
  void forward(Step& step, Operand x, View y);    // y += …; the first call of a pass computes A·x
  void dgrad(Step& step, Operand dy, View dx);    // dx += …
  void wgrad(Step& step, Operand dy, Operand x);  // columnwise; after dgrad

 private:
  // A weight with the sites of the layer that it is.
  struct Factor {
    LayerSites sites;
    Parameter& weight;
  };
  static Factor add_factor(Registry& registry, const LayerShape& shape, float init_std);

  Factor a_;  // [rank × in]
  Factor b_;  // [out × rank]
  float factor_;
  QuantizedTensor hidden_;           // A·x
  QuantizedTensor hidden_gradient_;  // with the factor
};

}  // namespace quaver
