// A residual convolution network that classifies images (ResNet): a first convolution, the stem; stages of residual
// blocks; the mean over pixels; a head with the cross-entropy loss. Feature maps are NHWC, one pixel per row.
#pragma once

#include <memory>
#include <vector>

#include "models/model.h"
#include "models/model_config.h"
#include "nn/head.h"
#include "nn/residual_block.h"

namespace quaver {

class ConvNet final : public Model {
 public:
  // Takes a resolved config.
  explicit ConvNet(const ModelConfig& config, const ScaleRules& rules = {});

  Batch blank_batch(const Step& step, BatchStorage& storage) const override;

 protected:
  Size check(const Step& step, const Batch& batch) const override;
  void run(Step& step, const Batch& batch, const float* gradient_scale, double* loss_sum) override;

 private:
  // Sections of the parameters: the stem, each block, the head.
  Size head_section() const { return static_cast<Size>(blocks_.size()) + 1; }
  const MapShape& last_map() const { return blocks_.empty() ? stem_->out() : blocks_.back().out(); }
  void forward(Step& step, View pixels);
  void backward(Step& step, View pixels, View head_gradient);
  View gradient_map(Step& step) const;

  ModelConfig config_;
  std::unique_ptr<Convolution> stem_;
  std::unique_ptr<ChannelNorm> stem_norm_;
  std::vector<ResidualBlock> blocks_;
  std::unique_ptr<Head> head_;
};

}  // namespace quaver
