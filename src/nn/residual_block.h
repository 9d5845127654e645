// A residual block of a convolution network: two 3×3 convolutions with norms, added to the block's input, and
// ReLU. Where the block changes the shape of the map, its input goes through a 1×1 convolution and a norm first.
#pragma once

#include <optional>

#include "nn/channel_norm.h"
#include "nn/convolution.h"

namespace quaver {

struct ResidualBlockShape {
  std::string name;
  MapShape in;
  Size channels = 0;
  Size stride = 1;
  Size block = 0;
  ChannelNormKind norm = ChannelNormKind::batch;
  float eps = 1e-5F;
};

class ResidualBlock {
 public:
  ResidualBlock(Registry& registry, const ResidualBlockShape& shape);

  const MapShape& out() const { return second_.out(); }

  // The steps are those of the images. Returns the block's output, which its backward pass reads too, as it does x.
  View forward(const Step& images, View x);
  // Writes dx, the gradient of x; overwrites dy.
  void backward(const Step& images, View dy, View dx);

 private:
  struct Shortcut {
    Convolution convolution;
    ChannelNorm norm;
  };
  static std::optional<Shortcut> make_shortcut(Registry& registry, const ResidualBlockShape& shape);
  View shortcut_of(Step& step, View x);
  void shortcut_backward(Step& step, View dy, View dx);

  Convolution first_;
  ChannelNorm first_norm_;
  Convolution second_;
  ChannelNorm second_norm_;
  std::optional<Shortcut> shortcut_;  // none: x itself is added
  View x_;                            // of the last pass
  View hidden_;                       // between the convolutions
};

// A feature map of a pass: kept for backward where there is one.
inline View map_of(Step& step, Size channels) {
  return step.pass == Pass::evaluate ? step.scratch(channels) : step.saved(channels);
}

// He's initialization: the variance of what a ReLU follows stays the same.
float he_std(Size fan_in);

}  // namespace quaver
