// A convolution of feature maps [images · pixels × channels]: a linear layer over the patches that a square window
// sees. In training the patches are the layer's x, so every recipe has a convolution. Windows of one pixel need none.
#pragma once

#include "nn/linear.h"

namespace quaver {

// A feature map of one image.
struct MapShape {
  Size height = 0;
  Size width = 0;
  Size channels = 0;

  Size pixels() const { return height * width; }
};

struct ConvolutionShape {
  std::string name;
  MapShape in;
  Size channels = 0;  // of the output
  Size kernel = 1;    // odd
  Size stride = 1;
  Size block = -1;
  bool high_precision = false;  // unless the plan's patterns say otherwise
  float init_std = 0.02F;
};

// The step of the images' pixels: its rows are theirs.
inline Step over_pixels(const Step& images, Size pixels) {
  Step step = images;
  step.sequence = pixels;
  return step;
}

class Convolution {
 public:
  Convolution(Registry& registry, const ConvolutionShape& shape);

  const MapShape& out() const { return out_; }

  // The step is that of the images. x, FP32 or in the engine's high precision, must be unchanged in backward.
  void forward(const Step& images, View x, View y);
  QuantizedTensor& output_gradient(const Step& images);  // where the producer puts dy
  // dx = next + the gradient of x; next may be empty or dx itself. No dx: only the weight's gradient is computed.
  void backward(const Step& images, View x, View next, View dx);

 private:
  PatchWindow window(Size images) const;
  bool has_patches() const { return shape_.kernel > 1 || shape_.stride > 1; }
  void dgrad(Step& step, const PatchWindow& over, View next, View dx);

  ConvolutionShape shape_;
  MapShape out_;
  Linear linear_;
};

}  // namespace quaver
