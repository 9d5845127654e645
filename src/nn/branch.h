// A residual branch (attention or MLP): what is between the residual stream's split and its join. A model is a list of
// these; norms and additions belong to the model.
#pragma once

#include <array>
#include <span>

#include "nn/linear.h"

namespace quaver {

class Branch {
 public:
  virtual ~Branch() = default;

  // The layers that read the branch's input and write its output: the model casts the input and the output's gradient
  // into their sites.
  virtual Linear& first() = 0;
  virtual Linear& last() = 0;

  virtual void forward(Step& step, View out) = 0;
  // Everything but the first layer's wgrad, which is deferred until that layer's x is requantized.
  virtual void backward(Step& step, View dx) = 0;

  // The constants that a calibrating pass set: none where there are none.
  virtual std::span<float> unit_factors() { return {}; }

  // Sets gradient_ratio (stored over true gradient) of the branch's parameters from the ratio at the output; returns
  // the ratio at the input.
  virtual double propagate_ratio(double ratio_at_output, Step& step) = 0;
};

struct AttentionShape {
  std::string name;
  Size block = -1;
  Size width = 0;
  Size heads = 0;
  Size kv_heads = 0;
  Size head_size = 0;
  float logit_scale = 1;  // factor on q·k
  float rope_theta = 0;   // 0: no rotary embedding
  RotaryScaling rope_scaling = {};
  bool bias = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  float norm_eps = 1e-5F;
  float init_std = 0.02F;
  float out_init_std = 0.02F;
  float qkv_learning_rate = 1;
  float out_learning_rate = 1;
  bool unit_scaled = false;
};

class AttentionBranch final : public Branch {
 public:
  AttentionBranch(Registry& registry, const AttentionShape& shape);

  Linear& first() override { return qkv_; }
  Linear& last() override { return out_; }
  void forward(Step& step, View out) override;
  void backward(Step& step, View dx) override;
  std::span<float> unit_factors() override {
    return shape_.unit_scaled ? std::span<float>(factors_) : std::span<float>();
  }
  double propagate_ratio(double ratio_at_output, Step& step) override;

 private:
  HeadLayout layout(const Step& step) const;
  bool prepares_heads() const { return shape_.rope_theta > 0 || shape_.qk_norm; }
  PrepareHeads preparation(const Step& step) const;
  void attend(Step& step) const;

  AttentionShape shape_;
  std::array<float, 2> factors_{1, 1};  // on the result, and on the gradient of qkv
  Linear qkv_;
  Linear out_;
  Parameter* query_gain_ = nullptr;
  Parameter* key_gain_ = nullptr;
  View raw_;     // q, k, v as the projection gave them
  View ready_;   // after QK-norm and rotary embedding: raw_ itself where that can be done in place
  View result_;  // attention's output, high precision
  View log_sum_;
};

struct MlpShape {
  std::string name;
  Size block = -1;
  Size width = 0;
  Size hidden = 0;
  ActivationKind activation = ActivationKind::gelu;
  float activation_scale = 1;
  float activation_clip = 0;
  bool bias = false;
  float init_std = 0.02F;
  float out_init_std = 0.02F;
  float up_learning_rate = 1;
  float down_learning_rate = 1;
  bool unit_scaled = false;
};

class MlpBranch final : public Branch {
 public:
  MlpBranch(Registry& registry, const MlpShape& shape);

  Linear& first() override { return up_; }
  Linear& last() override { return down_; }
  void forward(Step& step, View out) override;
  void backward(Step& step, View dx) override;
  double propagate_ratio(double ratio_at_output, Step& step) override;

 private:
  OpFactors factors() const;

  MlpShape shape_;
  Linear up_;
  Linear down_;
  View hidden_;  // before the activation
};

}  // namespace quaver
