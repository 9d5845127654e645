// The norm of a feature map's channels, with what follows it: a residual addition and ReLU. A batch norm has the mean
// and variance of each channel over the pixels of a micro-batch, and in evaluation moving averages of them; a layer
// norm those of each pixel over its channels.
#pragma once

#include "nn/registry.h"
#include "nn/step.h"

namespace quaver {

enum class ChannelNormKind : std::uint8_t { batch, layer };

struct ChannelNormShape {
  std::string name;
  Size channels = 0;
  ChannelNormKind kind = ChannelNormKind::batch;
  float eps = 1e-5F;
};

class ChannelNorm {
 public:
  ChannelNorm(Registry& registry, const ChannelNormShape& shape);

  struct Maps {
    View x;  // must be unchanged in backward, and so must `out` where it is rectified
    View residual = {};
    Rectifier rectifier = Rectifier::none;
    View out;
  };
  void forward(Step& step, const Maps& maps);

  // Given dy, of forward's out, writes dx. dy becomes the gradient of the residual, where there was one, and is
  // overwritten in any case.
  void backward(Step& step, View dy, QuantizedTensor& dx);

 private:
  void batch_forward(Step& step);
  void layer_forward(Step& step);
  void layer_backward(Step& step, View dy, QuantizedTensor& dx);
  NormParameters layer_norm() const { return {NormKind::layer, gain_.weight, shift_.weight, eps_}; }
  QuantizedTensor uncast(Step& step, View matrix);

  ChannelNormKind kind_;
  float eps_;
  Parameter& gain_;
  Parameter& shift_;
  Parameter* mean_ = nullptr;  // of a batch norm
  Parameter* variance_ = nullptr;
  Maps maps_;   // of the last pass
  View stats_;  // the same
  Site site_;   // of results that are stored as they are
};

}  // namespace quaver
