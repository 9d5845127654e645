#include "nn/convolution.h"

namespace quaver {

namespace {

// Rows of patches are whole vectors of what tensor cores read; columns beyond the taps are zero.
constexpr Size patch_multiple = 16;

Size patch_width(const ConvolutionShape& shape) {
  const Size taps = shape.kernel * shape.kernel * shape.in.channels;
  return (taps + patch_multiple - 1) / patch_multiple * patch_multiple;
}

MapShape out_of(const ConvolutionShape& shape) {
  const PatchWindow one{
      .height = shape.in.height, .width = shape.in.width, .kernel = shape.kernel, .stride = shape.stride};
  return {one.out_height(), one.out_width(), shape.channels};
}

}  // namespace

Convolution::Convolution(Registry& registry, const ConvolutionShape& shape)
    : shape_(shape),
      out_(out_of(shape)),
      linear_(registry, {.name = shape.name,
                         .in = has_patches() ? patch_width(shape) : shape.in.channels,
                         .out = shape.channels,
                         .block = shape.block,
                         .high_precision = shape.high_precision,
                         .init_std = shape.init_std,
                         .pixels = out_.pixels()}) {
  if (has_patches()) registry.add_window(shape.name, window(1));
}

PatchWindow Convolution::window(Size images) const {
  return {.batch = images,
          .height = shape_.in.height,
          .width = shape_.in.width,
          .channels = shape_.in.channels,
          .kernel = shape_.kernel,
          .stride = shape_.stride};
}

void Convolution::forward(const Step& images, View x, View y) {
  Step step = over_pixels(images, out_.pixels());
  const Arena::Scope scope(step.arena);
  if (has_patches()) {
    QuantizedTensor& patches = linear_.input(step, Linear::Producer::can_requantize);
    step.engine.run(Patches{window(images.batch), x, patches, step.casting});
  } else {
    linear_.input_from(step, x, 1);
  }
  linear_.forward(step, y);
}

QuantizedTensor& Convolution::output_gradient(const Step& images) {
  Step step = over_pixels(images, out_.pixels());
  return linear_.output_gradient(step);
}

void Convolution::dgrad(Step& step, const PatchWindow& over, View next, View dx) {
  const Arena::Scope scope(step.arena);
  if (has_patches()) {
    const View patches = step.scratch(linear_.shape().in);
    linear_.dgrad(step, patches);
    step.engine.run(PatchesBackward{.window = over, .patches_gradient = patches, .next = next, .gradient = dx});
    return;
  }
  if (next.empty()) return linear_.dgrad(step, dx);
  const View own = step.scratch(linear_.shape().in);
  linear_.dgrad(step, own);
  step.engine.run(Combine{.x = next, .y = own, .out = dx});
}

void Convolution::backward(const Step& images, View x, View next, View dx) {
  Step step = over_pixels(images, out_.pixels());
  const PatchWindow over = window(images.batch);
  if (!dx.empty()) dgrad(step, over, next, dx);
  const Arena::Scope scope(step.arena);
  if (QuantizedTensor* requantized = linear_.requantized_input(step)) {
    const Casting unobserved = step.casting.unobserved();
    if (has_patches()) {
      step.engine.run(Patches{over, x, *requantized, unobserved});
    } else {
      step.engine.run(Quantize{x, *requantized, unobserved});
    }
  }
  linear_.wgrad(step);
}

}  // namespace quaver
