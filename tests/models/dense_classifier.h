// A dense classifier behind the Model interface: rows of features, two linear layers with a ReLU between them, a head
// with the cross-entropy loss. It shows what a second family of models has to bring, and is trained in tests.
#pragma once

#include <fmt/format.h>

#include "models/model.h"
#include "nn/head.h"
#include "quaver/error.h"

namespace quaver::test {

struct DenseShape {
  Size features = 0;
  Size hidden = 0;
  Size classes = 0;
};

class DenseClassifier final : public Model {
 public:
  explicit DenseClassifier(const DenseShape& shape, const ScaleRules& rules = {})
      : Model(rules),
        shape_(shape),
        up_(registry(), {.name = "dense.0", .in = shape.features, .out = shape.hidden, .bias = true, .init_std = 0.3F}),
        down_(registry(), {.name = "dense.1", .in = shape.hidden, .out = shape.hidden, .bias = true, .init_std = 0.2F}),
        head_(registry(), {.in = shape.hidden, .classes = shape.classes, .init_std = 0.1F}) {}

  Batch blank_batch(const Step& step, BatchStorage& storage) const override {
    storage.features.assign(static_cast<std::size_t>(step.batch * shape_.features), 0);
    storage.targets.assign(static_cast<std::size_t>(step.batch), 0);
    return FeatureBatch{storage.features, storage.targets};
  }

 protected:
  Size check(const Step& step, const Batch& batch) const override {
    const auto* rows = std::get_if<FeatureBatch>(&batch);
    if (rows == nullptr || rows->features.size() != static_cast<std::size_t>(step.batch * shape_.features)) {
      throw Error("the batch has no rows of this model's features", "give it a feature matrix");
    }
    return static_cast<Size>(rows->classes.size());
  }

  void run(Step& step, const Batch& batch, const float* gradient_scale, double* loss_sum) override {
    const auto& rows = std::get<FeatureBatch>(batch);
    const View features{const_cast<float*>(rows.features.data()), Format::f32, step.batch, shape_.features};
    step.engine.run(Quantize{features, up_.input(step), step.casting});
    const View first = dense(step, up_, down_.input(step));
    const View second = dense(step, down_, head_.input(step));
    const bool train = step.pass != Pass::evaluate;
    const View gradient = train ? step.scratch(shape_.hidden) : View{};
    head_.loss(step, rows.classes, gradient_scale, loss_sum, gradient);
    if (!train) return;
    dense_backward(step, down_, second, gradient);
    down_.dgrad(step, gradient);
    down_.wgrad(step);
    dense_backward(step, up_, first, gradient);
    up_.wgrad(step);
  }

 private:
  static constexpr ActivationKind relu = ActivationKind::relu;

  View dense(Step& step, Linear& layer, QuantizedTensor& out) const {
    const View y = step.saved(shape_.hidden);
    layer.forward(step, y);
    step.engine.run(Activation{.kind = relu, .x = y, .out = out, .casting = step.casting});
    return y;
  }

  static void dense_backward(Step& step, Linear& layer, View y, View gradient) {
    step.engine.run(ActivationBackward{.kind = relu,
                                       .x = y,
                                       .out_gradient = gradient,
                                       .in_gradient = layer.output_gradient(step),
                                       .casting = step.casting});
  }

  DenseShape shape_;
  Linear up_;
  Linear down_;
  Head head_;
};

}  // namespace quaver::test
