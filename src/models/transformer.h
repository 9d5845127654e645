// GPT-2 and Llama style language models, in the standard and the unit-scaled parametrisations: an embedding, a stack of
// residual branches, a final norm, a head with its loss.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "models/model_config.h"
#include "nn/branch.h"
#include "nn/head.h"
#include "nn/norm.h"

namespace quaver {

// A batch of token sequences, [batch × sequence] each.
struct TokenBatch {
  std::span<const std::int32_t> inputs;
  std::span<const std::int32_t> targets;  // negative: no loss there
};

class Transformer {
 public:
  // Takes a resolved config. Parameters have no memory until parameters().allocate(), and sites no formats until a plan
  // is applied to the book.
  explicit Transformer(const ModelConfig& config, const ScaleRules& rules = {});

  const ModelConfig& config() const { return config_; }
  Parameters& parameters() { return registry_.parameters(); }
  const Parameters& parameters() const { return registry_.parameters(); }
  const std::vector<LayerShape>& layers() const { return registry_.layers(); }  // in the order they run
  ScaleBook& book() { return registry_.book(); }

  // Floating-point operations of one token's forward and backward pass at this sequence length.
  double flops_per_token(Size sequence) const;

  // Adds the summed loss of the batch to *loss_sum; with Pass::train also adds the gradients of loss_scale times the
  // mean loss (times each parameter's gradient_ratio) to the parameters' gradients.
  void loss(Step& step, const TokenBatch& batch, float loss_scale, double* loss_sum);

  // Logits of the token that follows the sequence, [1 × vocab]. step.batch must be 1.
  void next_token_logits(Step& step, std::span<const std::int32_t> tokens, View logits);

  // Unit-scaled models: measures, on random tokens, the constants that give attention's tensors, and gradients behind a
  // norm, unit variance. Part of
  // initialisation; the weights' gradients are overwritten. They belong to the model and are saved with it.
  void calibrate_unit_factors(Step& step);
  std::vector<float> unit_factors();
  void set_unit_factors(std::span<const float> factors);  // throws Error when the number is wrong

  // Sets every parameter's gradient_ratio for batches of this shape.
  void propagate_ratios(Step& step);

 private:
  bool unit_scaled() const { return config_.parametrization != Parametrization::standard; }
  bool norms_after_branches() const { return config_.parametrization == Parametrization::munit; }
  float embedding_factor() const;
  ResidualFactors residual(Size branch) const;
  float join_factor(std::size_t branch) const { return static_cast<float>(stream_ratio_ / input_ratios_[branch]); }

  class OutputGradients;

  void check_tokens(std::span<const std::int32_t> tokens) const;
  Size count_targets(std::span<const std::int32_t> targets) const;
  static std::span<const std::int32_t> upload(Step& step, std::span<const std::int32_t> tokens);
  static StepVariables* upload(Step& step, const StepVariables& variables);
  static std::uint64_t repetition_key(const Step& step);
  void run_loss(Step& step, const TokenBatch& batch, const StepVariables* variables, double* loss_sum);
  void forward(Step& step, std::span<const std::int32_t> tokens);
  void forward_norms_before(Step& step);
  void forward_norms_after(Step& step);
  void backward(Step& step, std::span<const std::int32_t> tokens, View head_gradient);
  void backward_branch(std::size_t i, Step& step, View dx);
  void backward_norms_before(Step& step, View gradient, View dx);
  void backward_norms_after(Step& step, View gradient, View dx);

  ModelConfig config_;
  Registry registry_;
  Parameter& table_;
  Parameter* positions_ = nullptr;
  std::vector<std::unique_ptr<Branch>> branches_;
  std::vector<std::unique_ptr<Norm>> norms_;
  std::unique_ptr<Norm> final_norm_;
  std::unique_ptr<Head> head_;
  std::vector<View> streams_;         // the residual stream before each branch, and at the end
  std::vector<View> branch_outputs_;  // kept only where norms come after branches
  std::vector<float> entry_factors_;  // on the gradient that enters each branch, where norms come after branches
  double stream_ratio_ = 1;           // stored over true gradient of the residual stream
  std::vector<double> input_ratios_;  // … and at each branch's input
};

}  // namespace quaver
