#include "nn/channel_norm.h"

namespace quaver {

namespace {

enum class Kept : std::uint8_t { trained, averaged };

Parameter& add_vector(Registry& registry, const ChannelNormShape& shape, const char* name, float value, Kept kept) {
  return registry.parameters().add({.name = shape.name + name,
                                    .kind = ParameterKind::vector,
                                    .rows = 1,
                                    .cols = shape.channels,
                                    .init_mean = value,
                                    .averages = kept == Kept::averaged});
}

}  // namespace

ChannelNorm::ChannelNorm(Registry& registry, const ChannelNormShape& shape)
    : kind_(shape.kind),
      eps_(shape.eps),
      gain_(add_vector(registry, shape, ".weight", 1, Kept::trained)),
      shift_(add_vector(registry, shape, ".bias", 0, Kept::trained)) {
  if (kind_ == ChannelNormKind::layer) return;
  mean_ = &add_vector(registry, shape, ".running_mean", 0, Kept::averaged);
  variance_ = &add_vector(registry, shape, ".running_var", 1, Kept::averaged);
}

void ChannelNorm::forward(Step& step, const Maps& maps) {
  maps_ = maps;
  const bool by_channel = kind_ == ChannelNormKind::batch;
  const Size rows = by_channel ? 2 : maps.x.rows;
  const Size cols = by_channel ? maps.x.cols : 2;
  stats_ = step.pass == Pass::evaluate ? step.arena.scratch(rows, cols, Format::f32)
                                       : step.arena.saved(rows, cols, Format::f32);
  by_channel ? batch_forward(step) : layer_forward(step);
}

void ChannelNorm::batch_forward(Step& step) {
  const bool evaluates = step.pass == Pass::evaluate;
  step.engine.run(BatchNorm{.x = maps_.x,
                            .gain = gain_.weight,
                            .shift = shift_.weight,
                            .eps = eps_,
                            .running = evaluates ? ChannelMoments{mean_->weight, variance_->weight} : ChannelMoments{},
                            .sums = evaluates ? ChannelMoments{} : ChannelMoments{mean_->gradient, variance_->gradient},
                            .residual = maps_.residual,
                            .rectifier = maps_.rectifier,
                            .stats = stats_,
                            .out = maps_.out});
}

// A matrix as operations write it that cast their results: into itself.
QuantizedTensor ChannelNorm::uncast(Step& step, View matrix) {
  const QuantSpec spec{.format = matrix.format};
  site_.spec = {spec, spec};
  return {site_, matrix, step.one};
}

void ChannelNorm::layer_forward(Step& step) {
  const bool adds = !maps_.residual.empty();
  step.engine.run(NormAdd{.norm = layer_norm(),
                          .residual = adds ? maps_.residual : maps_.x,
                          .branch = maps_.x,
                          .keep = adds ? 1.0F : 0.0F,
                          .sum = maps_.out,
                          .stats = stats_,
                          .casting = step.casting});
  if (maps_.rectifier == Rectifier::none) return;
  QuantizedTensor out = uncast(step, maps_.out);
  const Casting unobserved = step.casting.unobserved();
  step.engine.run(Activation{.kind = ActivationKind::relu, .x = maps_.out, .out = out, .casting = unobserved});
}

void ChannelNorm::backward(Step& step, View dy, QuantizedTensor& dx) {
  if (kind_ == ChannelNormKind::layer) return layer_backward(step, dy, dx);
  step.engine.run(BatchNormBackward{.x = maps_.x,
                                    .gain = gain_.weight,
                                    .stats = stats_,
                                    .out = maps_.rectifier == Rectifier::relu ? maps_.out : View{},
                                    .out_gradient = dy,
                                    .residual_gradient = maps_.residual.empty() ? View{} : dy,
                                    .in_gradient = dx,
                                    .gain_gradient = gain_.gradient,
                                    .shift_gradient = shift_.gradient,
                                    .casting = step.casting});
}

void ChannelNorm::layer_backward(Step& step, View dy, QuantizedTensor& dx) {
  if (maps_.rectifier == Rectifier::relu) {
    QuantizedTensor rectified = uncast(step, dy);
    const Casting unobserved = step.casting.unobserved();
    step.engine.run(ActivationBackward{.kind = ActivationKind::relu,
                                       .x = maps_.out,
                                       .out_gradient = dy,
                                       .in_gradient = rectified,
                                       .casting = unobserved});
  }
  step.engine.run(NormAddBackward{.norm = layer_norm(),
                                  .branch = maps_.x,
                                  .stats = stats_,
                                  .input_gradient = dy,
                                  .gradient = dy,
                                  .branch_gradient = dx,
                                  .gradients = {gain_.gradient, shift_.gradient},
                                  .casting = step.casting});
}

}  // namespace quaver
