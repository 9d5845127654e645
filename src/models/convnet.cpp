#include "models/convnet.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "models/classifier_batch.h"

namespace quaver {

namespace {

ClassifierShape shape_of(const ModelConfig& config) { return {config.features, config.classes}; }

View pixels_of(const FeatureBatch& batch, Size channels) {
  const Size rows = static_cast<Size>(batch.features.size()) / channels;
  return {const_cast<float*>(batch.features.data()), Format::f32, rows, channels};  // a View does not tell who writes
}

Size size_of(const MapShape& map) { return map.pixels() * map.channels; }

}  // namespace

ConvNet::ConvNet(const ModelConfig& config, const ScaleRules& rules) : Model(rules), config_(config) {
  const std::vector<Stage> stages = stages_of(config);
  const MapShape image{config.image_height, config.image_width, config.image_channels};
  const auto eps = static_cast<float>(config.norm_eps);
  const auto norm = config.feature_norm == FeatureNorm::layer ? ChannelNormKind::layer : ChannelNormKind::batch;
  const Size width = stages.front().width;
  // A pixel of an image has few channels: the stem is a small part of the work, and stays in high precision.
  stem_ = std::make_unique<Convolution>(
      registry(), ConvolutionShape{.name = "stem",
                                   .in = image,
                                   .channels = width,
                                   .kernel = config.stem_kernel,
                                   .stride = config.stem_stride,
                                   .high_precision = true,
                                   .init_std = he_std(config.stem_kernel * config.stem_kernel * image.channels)});
  stem_norm_ = std::make_unique<ChannelNorm>(
      registry(), ChannelNormShape{.name = "stem_norm", .channels = width, .kind = norm, .eps = eps});
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    for (Size i = 0; i < stages[stage].blocks; ++i) {
      parameters().begin_section();
      const auto block = static_cast<Size>(blocks_.size());
      blocks_.emplace_back(registry(), ResidualBlockShape{.name = fmt::format("blocks.{}", block),
                                                          .in = last_map(),
                                                          .channels = stages[stage].width,
                                                          .stride = stage > 0 && i == 0 ? 2 : 1,
                                                          .block = block,
                                                          .norm = norm,
                                                          .eps = eps});
    }
  }
  parameters().begin_section();
  head_ = std::make_unique<Head>(
      registry(),
      HeadShape{.in = last_map().channels, .classes = config.classes, .init_std = static_cast<float>(config.init_std)});
}

Batch ConvNet::blank_batch(const Step& step, BatchStorage& storage) const {
  return blank_features(shape_of(config_), step, storage);
}

Size ConvNet::check(const Step& step, const Batch& batch) const { return check_batch(shape_of(config_), step, batch); }

void ConvNet::forward(Step& step, View pixels) {
  step.use(0);
  Step stem = over_pixels(step, stem_->out().pixels());
  const View before_norm = map_of(stem, stem_->out().channels);
  stem_->forward(step, pixels, before_norm);
  View map = stem.saved(stem_->out().channels);
  stem_norm_->forward(stem, {.x = before_norm, .rectifier = Rectifier::relu, .out = map});
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    step.use(static_cast<Size>(i) + 1);
    map = blocks_[i].forward(step, map);
  }
  step.engine.run(AveragePool{.x = map, .out = head_->input(step), .casting = step.casting});
}

// Room for the gradient of any block's input or output.
View ConvNet::gradient_map(Step& step) const {
  Size most = size_of(stem_->out());
  for (const ResidualBlock& block : blocks_) most = std::max(most, size_of(block.out()));
  return step.scratch(most);
}

void ConvNet::backward(Step& step, View pixels, View head_gradient) {
  std::array<View, 2> memory{gradient_map(step), gradient_map(step)};
  const auto as_map = [&](View& of, const MapShape& shape) {
    return View{of.data, of.format, step.batch * shape.pixels(), shape.channels};
  };
  View dy = as_map(memory[0], last_map());
  step.engine.run(AveragePoolBackward{.out_gradient = head_gradient, .gradient = dy});
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const auto section = static_cast<Size>(i) + 1;
    const MapShape& in = i > 0 ? blocks_[i - 1].out() : stem_->out();
    std::swap(memory[0], memory[1]);
    const View dx = as_map(memory[0], in);
    step.use(section);
    step.begin_gradients(section);
    blocks_[i].backward(step, dy, dx);
    step.end_gradients(section);
    dy = dx;
  }
  Step stem = over_pixels(step, stem_->out().pixels());
  step.begin_gradients(0);
  stem_norm_->backward(stem, dy, stem_->output_gradient(step));
  stem_->backward(step, pixels, {}, {});
  step.end_gradients(0);
}

void ConvNet::run(Step& step, const Batch& batch, const float* gradient_scale, double* loss_sum) {
  const auto& rows = std::get<FeatureBatch>(batch);
  const View pixels = pixels_of(rows, config_.image_channels);
  forward(step, pixels);
  const bool train = step.pass != Pass::evaluate;
  const View gradient = train ? step.scratch(last_map().channels) : View{};
  step.use(head_section());
  if (train) step.begin_gradients(head_section());
  head_->loss(step, rows.classes, gradient_scale, loss_sum, gradient);
  if (train) step.end_gradients(head_section());
  if (train) backward(step, pixels, gradient);
}

}  // namespace quaver
