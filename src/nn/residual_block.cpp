#include "nn/residual_block.h"

#include <cmath>

namespace quaver {

namespace {

ConvolutionShape three_by_three(const ResidualBlockShape& shape, const char* name, const MapShape& in, Size stride) {
  return {.name = shape.name + name,
          .in = in,
          .channels = shape.channels,
          .kernel = 3,
          .stride = stride,
          .block = shape.block,
          .init_std = he_std(9 * in.channels)};
}

ChannelNormShape norm_of(const ResidualBlockShape& shape, const char* name) {
  return {.name = shape.name + name, .channels = shape.channels, .kind = shape.norm, .eps = shape.eps};
}

}  // namespace

float he_std(Size fan_in) { return std::sqrt(2.0F / static_cast<float>(fan_in)); }

ResidualBlock::ResidualBlock(Registry& registry, const ResidualBlockShape& shape)
    : first_(registry, three_by_three(shape, ".conv1", shape.in, shape.stride)),
      first_norm_(registry, norm_of(shape, ".norm1")),
      second_(registry, three_by_three(shape, ".conv2", first_.out(), 1)),
      second_norm_(registry, norm_of(shape, ".norm2")),
      shortcut_(make_shortcut(registry, shape)) {}

std::optional<ResidualBlock::Shortcut> ResidualBlock::make_shortcut(Registry& registry,
                                                                    const ResidualBlockShape& shape) {
  if (shape.stride == 1 && shape.in.channels == shape.channels) return std::nullopt;
  Convolution convolution(registry, {.name = shape.name + ".shortcut",
                                     .in = shape.in,
                                     .channels = shape.channels,
                                     .stride = shape.stride,
                                     .block = shape.block,
                                     .init_std = he_std(shape.in.channels)});
  return Shortcut{std::move(convolution), ChannelNorm(registry, norm_of(shape, ".shortcut_norm"))};
}

View ResidualBlock::shortcut_of(Step& step, View x) {
  if (!shortcut_) return x;
  const View y = map_of(step, out().channels);
  shortcut_->convolution.forward(over_pixels(step, 1), x, y);
  const View added = step.scratch(out().channels);
  shortcut_->norm.forward(step, {.x = y, .out = added});
  return added;
}

View ResidualBlock::forward(const Step& images, View x) {
  x_ = x;
  Step step = over_pixels(images, out().pixels());
  const View result = step.saved(out().channels);
  const Arena::Scope scope(step.arena);
  const View first = map_of(step, out().channels);
  first_.forward(images, x, first);
  hidden_ = map_of(step, out().channels);
  first_norm_.forward(step, {.x = first, .rectifier = Rectifier::relu, .out = hidden_});
  const View second = map_of(step, out().channels);
  second_.forward(images, hidden_, second);
  const View added = shortcut_of(step, x);
  second_norm_.forward(step, {.x = second, .residual = added, .rectifier = Rectifier::relu, .out = result});
  return result;
}

void ResidualBlock::shortcut_backward(Step& step, View dy, View dx) {
  const Arena::Scope scope(step.arena);
  const Step images = over_pixels(step, 1);
  shortcut_->norm.backward(step, dy, shortcut_->convolution.output_gradient(images));
  shortcut_->convolution.backward(images, x_, {}, dx);
}

void ResidualBlock::backward(const Step& images, View dy, View dx) {
  Step step = over_pixels(images, out().pixels());
  const Arena::Scope scope(step.arena);
  const View hidden_gradient = step.scratch(out().channels);
  {
    const Arena::Scope second_scope(step.arena);
    second_norm_.backward(step, dy, second_.output_gradient(images));
    second_.backward(images, hidden_, {}, hidden_gradient);
  }
  if (shortcut_) shortcut_backward(step, dy, dx);
  first_norm_.backward(step, hidden_gradient, first_.output_gradient(images));
  first_.backward(images, x_, shortcut_ ? dx : dy, dx);
}

}  // namespace quaver
