// A dense classifier (multilayer perceptron): rows of features, such as the pixels of an image, through a stack of
// linear layers with an activation function behind each, and a head with the cross-entropy loss.
#pragma once

#include <memory>
#include <vector>

#include "models/model.h"
#include "models/model_config.h"
#include "nn/head.h"

namespace quaver {

class Mlp final : public Model {
 public:
  // Takes a resolved config.
  explicit Mlp(const ModelConfig& config, const ScaleRules& rules = {});

  Batch blank_batch(const Step& step, BatchStorage& storage) const override;
  bool is_unit_scaled() const override { return config_.parametrization != Parametrization::standard; }

 protected:
  Size check(const Step& step, const Batch& batch) const override;
  void prepare(Step& step) override;  // unit-scaled: notes stored over true gradient of each parameter
  void run(Step& step, const Batch& batch, const float* gradient_scale, double* loss_sum) override;

 private:
  OpFactors activation_factors() const;
  void forward(Step& step, View features);
  void backward(Step& step, View features, View gradient);
  void wgrad(Step& step, std::size_t layer);
  void activate(Step& step, View hidden, QuantizedTensor& out) const;

  ModelConfig config_;
  ActivationKind activation_;
  std::vector<std::unique_ptr<Linear>> layers_;
  std::unique_ptr<Head> head_;
  std::vector<View> hidden_;  // each layer's output, before the activation function
};

}  // namespace quaver
