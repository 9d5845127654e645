// GPT-2 and Llama style language models, in the standard and the unit-scaled parametrizations: an embedding, a stack of
// residual branches, a final norm, a head with its loss.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "models/model.h"
#include "models/model_config.h"
#include "nn/branch.h"
#include "nn/head.h"
#include "nn/norm.h"

namespace quaver {

class Transformer final : public LanguageModel {
 public:
  // Takes a resolved config.
  explicit Transformer(const ModelConfig& config, const ScaleRules& rules = {});

  const ModelConfig& config() const { return config_; }
  Size vocab() const override { return config_.vocab; }
  Batch blank_batch(const Step& step, BatchStorage& storage) const override;
  double flops_per_token(Size sequence) const override;
  void next_token_logits(Step& step, std::span<const std::int32_t> tokens, View logits) override;
  KeyValueCache make_cache(Engine& engine, Size sequences, Size capacity) const override;
  void decode(Step& step, const KeyValueCache& cache, const NewTokens& next, View logits) override;

  // Measured on random tokens: the constants that give attention's tensors, and gradients behind a norm, unit variance.
  bool is_unit_scaled() const override { return config_.parametrization != Parametrization::standard; }
  void calibrate_unit_factors(Step& step) override;
  std::vector<float> unit_factors() override;
  void set_unit_factors(std::span<const float> factors) override;

  // Sets every parameter's gradient_ratio for batches of this shape.
  void propagate_ratios(Step& step);

 protected:
  Size check(const Step& step, const Batch& batch) const override;
  void prepare(Step& step) override { propagate_ratios(step); }
  void run(Step& step, const Batch& batch, const float* gradient_scale, double* loss_sum) override;

 private:
  bool norms_after_branches() const { return config_.parametrization == Parametrization::munit; }
  float embedding_factor() const;
  ResidualFactors residual(Size branch) const;
  float join_factor(std::size_t branch) const { return static_cast<float>(stream_ratio_ / input_ratios_[branch]); }

  void check_length(Size sequence) const;
  void check_tokens(std::span<const std::int32_t> tokens) const;
  void check_documents(const Step& step, std::span<const std::int32_t> starts) const;
  void check_new_tokens(const Step& step, const KeyValueCache& cache, const NewTokens& next) const;
  Size count_targets(std::span<const std::int32_t> targets) const;
  void forward(Step& step, std::span<const std::int32_t> tokens);
  void forward_to_logits(Step& step, std::span<const std::int32_t> tokens, View logits);
  void forward_norms_before(Step& step);
  void forward_norms_after(Step& step);
  // Sections of the parameters: the embedding, each branch with its norm, the head with the final norm.
  static constexpr Size embedding_section = 0;
  static Size section_of(std::size_t branch) { return static_cast<Size>(branch) + 1; }
  Size head_section() const { return section_of(branches_.size()); }

  void backward(Step& step, std::span<const std::int32_t> tokens, View head_gradient);
  void backward_branch(std::size_t i, Step& step, View dx);
  void backward_norms_before(Step& step, View gradient, View dx);
  void backward_norms_after(Step& step, View gradient, View dx);

  ModelConfig config_;
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
