// The factors that give every tensor of a unit-scaled model unit variance at initialization, so that 8 bits need no
// scale. Sources: Unit Scaling (Blake et al. 2023), u-µP (Blake et al. 2024), µnit Scaling (Narayan et al. 2025).
//
// Inside a residual branch the forward and backward factors differ, each chosen for unit variance; where the branch
// joins the stream again the gradient is multiplied by the quotient of their products, so that the stream's gradient is
// the true one up to one constant. (Constrained unit scaling uses the forward factors for both, and lets the gradients
// of a 4× wider layer drift by a factor of two.)
//
// Attention's factors are measured once at initialization, not computed: the closed form assumes independent tokens,
// and from the second block on they share what the first attention mixed (standard deviations of 2 to 4 were seen).
#pragma once

#include "formats/quant_spec.h"

namespace quaver {

struct OpFactors {
  float output = 1;
  float input_gradient = 1;
  float weight_gradient = 1;
};

struct ResidualFactors {
  float keep = 1;
  float add = 1;
};

OpFactors unit_linear(Size fan_in, Size fan_out, Size tokens);
OpFactors unit_head(Size fan_in, Size vocab, Size tokens);
OpFactors unit_gelu();
OpFactors unit_relu();
OpFactors unit_swiglu();

// The gradient of the summed loss with respect to the logits.
float unit_loss_gradient(Size vocab);
float unit_embedding_gradient(Size vocab, Size tokens);
float unit_norm_gradient(Size tokens);

// u-µP's branch i of 2·layers (even: attention): y = (τ·f(x) + x)/√(1 + τ²).
ResidualFactors umup_residual(Size branch, Size layers, double residual_alpha, double attention_ratio);

// µnit: y = √τ·norm(f(x)) + √(1−τ)·x. tau = 0 picks 0.4 at 4 layers falling to 0.1 at 40.
ResidualFactors munit_residual(Size layers, double tau);

}  // namespace quaver
