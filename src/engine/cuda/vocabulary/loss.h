// The softmax between the GEMMs of the output head: losses of a chunk of rows of logits, which become their own
// gradient in place.
#pragma once

#include <cstdint>

#include "engine/cuda/runtime/gpu.h"
#include "tensor/view.h"

namespace quaver::cuda {

enum class LossGradient : std::uint8_t { none, in_place };

// With g = gradient_factor · *gradient_scale, for every row whose target is not negative:
//   loss_sum += L − logit[target] + z_loss · L²,  L = log Σ exp logits
//   dlogits = g · (1 + 2 · z_loss · L) · softmax(logits) − g · onehot(target)
// The gradient of other rows is zero, and so is what lies between rows.
struct LossChunk {
  View logits;  // [rows × vocab], high precision; from row to row logits_stride(vocab) elements
  const std::int32_t* targets = nullptr;
  LossGradient gradient = LossGradient::none;
  float gradient_factor = 1;
  const float* gradient_scale = nullptr;  // on the device; null: 1
  float z_loss = 0;
  double* loss_sum = nullptr;        // on the device
  double* row_losses = nullptr;      // on the device, one per row; null: not wanted
  std::uint64_t* correct = nullptr;  // on the device, += the rows whose target has the largest logit; null: not counted
};

void softmax_loss(Gpu& gpu, const LossChunk& chunk);

}  // namespace quaver::cuda
