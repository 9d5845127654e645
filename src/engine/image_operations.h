// The operations of convolution networks. A feature map is a matrix [batch · height · width × channels], one pixel per
// row (NHWC). operations.h, which includes this, says what they share with the others.
#pragma once

#include "engine/casting.h"

namespace quaver {

// A square window of odd size that moves over the pixels of each image; around the image there are zeros.
struct PatchWindow {
  Size batch = 0;
  Size height = 0;  // of the image, in pixels
  Size width = 0;
  Size channels = 0;
  Size kernel = 1;
  Size stride = 1;

  Size padding() const { return kernel / 2; }
  Size out_height() const { return (height - 1) / stride + 1; }
  Size out_width() const { return (width - 1) / stride + 1; }
  Size pixels() const { return batch * height * width; }
  Size positions() const { return batch * out_height() * out_width(); }
  Size taps() const { return kernel * kernel * channels; }
};

// out[position] ← the pixels in the window there, row by row (im2col): a convolution is a GEMM over them. Columns of
// out beyond the taps are zero.
struct Patches {
  static constexpr OperationKind operation_kind = OperationKind::cast;
  PatchWindow window;
  View x;  // FP32, or the engine's high precision
  QuantizedTensor& out;
  const Casting& casting;
};
// gradient = next + the sum over each pixel's places in patches (col2im), in the order of the taps
struct PatchesBackward {
  static constexpr OperationKind operation_kind = OperationKind::copy;
  PatchWindow window;
  View patches_gradient;
  View next = {};  // gradient of the pixels from elsewhere; may be empty
  View gradient;   // may be `next`'s own memory
};

// Mean and variance of each channel, [1 × channels] in FP32.
struct ChannelMoments {
  View mean = {};
  View variance = {};
};

enum class Rectifier : std::uint8_t { none, relu };

// out = rectifier(γ · (x − mean) / √(variance + eps) + β + residual), with the moments of each channel over all rows
struct BatchNorm {
  static constexpr OperationKind operation_kind = OperationKind::norm;
  View x;
  View gain;   // γ, [1 × channels]
  View shift;  // β
  float eps = 1e-5F;
  ChannelMoments running = {};  // evaluation: read in place of the batch's; empty: those of the batch
  ChannelMoments sums = {};     // training: += those of the batch, the variance unbiased; empty: not wanted
  View residual = {};           // may be empty
  Rectifier rectifier = Rectifier::none;
  View stats;  // [2 × channels], FP32: means, then 1/std, kept for backward
  View out;
};
// With g the gradient before the rectifier: in_gradient ← (d norm(x)/d x)ᵀ · g; residual_gradient = g
struct BatchNormBackward {
  static constexpr OperationKind operation_kind = OperationKind::norm;
  View x;
  View gain;
  View stats;
  View out = {};  // of the forward pass, where the rectifier was relu; empty: there was none
  View out_gradient;
  View residual_gradient = {};  // may be out_gradient's own memory; empty: there was no residual
  QuantizedTensor& in_gradient;
  View gain_gradient;
  View shift_gradient;
  const Casting& casting;
};

// out[image] ← the mean of its pixels
struct AveragePool {
  static constexpr OperationKind operation_kind = OperationKind::copy;
  View x;
  QuantizedTensor& out;  // [batch × channels]
  const Casting& casting;
};
struct AveragePoolBackward {
  static constexpr OperationKind operation_kind = OperationKind::copy;
  View out_gradient;  // [batch × channels]
  View gradient;      // of every pixel
};

}  // namespace quaver
