#include "models/transformer.h"

#include <cmath>
#include <fmt/format.h>

#include "quaver/error.h"

namespace quaver {

namespace {

constexpr float root_half = 0.70710678F;

// Learning rates relative to optim.learning_rate. Standard models use 1 everywhere.
struct LearningRates {
  explicit LearningRates(const ModelConfig& config) {
    if (config.parametrization == Parametrization::standard) return;
    const auto width = static_cast<double>(config.width);
    const double depth = 1 / std::sqrt(static_cast<double>(config.layers));
    embedding = static_cast<float>(1 / std::sqrt(width));
    vectors = static_cast<float>(depth / std::sqrt(width));
    if (config.parametrization == Parametrization::munit) {
      const auto base = static_cast<double>(config.base_width);
      hidden_constant = static_cast<float>(std::sqrt(base / width) / 32);
    } else {
      hidden_root = static_cast<float>(depth);
    }
  }

  float hidden(Size fan_in) const {
    return hidden_root > 0 ? hidden_root / std::sqrt(static_cast<float>(fan_in)) : hidden_constant;
  }

  float embedding = 1;
  float vectors = 1;
  float hidden_root = 0;      // u-µP: factor before fan_in^-½
  float hidden_constant = 1;  // otherwise
};

float init_std(const ModelConfig& config) {
  return config.init == Init::unit ? 1.0F : static_cast<float>(config.init_std);
}

float projection_std(const ModelConfig& config) {
  const float depth = config.init == Init::depth ? 1.0F / std::sqrt(2.0F * static_cast<float>(config.layers)) : 1.0F;
  return init_std(config) * depth;
}

RotaryScaling rotary_scaling(const ModelConfig& config) {
  return {.factor = static_cast<float>(config.rope_factor),
          .low_frequency = static_cast<float>(config.rope_low_frequency),
          .high_frequency = static_cast<float>(config.rope_high_frequency),
          .original_context = config.rope_original_context};
}

AttentionShape attention_shape(const ModelConfig& config, Size block, const LearningRates& rates) {
  const bool unit = config.parametrization != Parametrization::standard;
  return {.name = fmt::format("blocks.{}.attn", block),
          .block = block,
          .width = config.width,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = config.head_size,
          .logit_scale = static_cast<float>(config.attention_scale),
          .rope_theta = config.family == Family::llama ? static_cast<float>(config.rope_theta) : 0.0F,
          .rope_scaling = rotary_scaling(config),
          .bias = config.family == Family::gpt && !unit,
          .qkv_bias = config.qkv_bias,
          .qk_norm = config.qk_norm,
          .norm_eps = static_cast<float>(config.norm_eps),
          .init_std = init_std(config),
          .out_init_std = projection_std(config),
          .qkv_learning_rate = rates.hidden(config.width),
          .out_learning_rate = rates.hidden(config.heads * config.head_size),
          .unit_scaled = unit};
}

LoraShape lora_shape(const ModelConfig& config) {
  LoraShape lora{.rank = config.lora_rank, .alpha = config.lora_alpha, .targets = patterns_in(config.lora_targets)};
  if (lora.rank > 0 && lora.targets.empty()) {
    throw Error("lora.targets is empty", "name the layers to adapt: \"*\" is all of them");
  }
  return lora;
}

ActivationKind activation_of(const ModelConfig& config) {
  if (config.family == Family::llama) return ActivationKind::swiglu;
  return config.activation == MlpActivation::relu ? ActivationKind::relu : ActivationKind::gelu;
}

MlpShape mlp_shape(const ModelConfig& config, Size block, const LearningRates& rates) {
  const bool unit = config.parametrization != Parametrization::standard;
  return {.name = fmt::format("blocks.{}.mlp", block),
          .block = block,
          .width = config.width,
          .hidden = config.ffn,
          .activation = activation_of(config),
          .activation_scale = static_cast<float>(config.activation_scale),
          .activation_clip = static_cast<float>(config.activation_clip),
          .bias = config.family == Family::gpt && !unit,
          .init_std = init_std(config),
          .out_init_std = projection_std(config),
          .up_learning_rate = rates.hidden(config.width),
          .down_learning_rate = rates.hidden(config.ffn),
          .unit_scaled = unit};
}

NormShape norm_shape(const ModelConfig& config, const std::string& name, const LearningRates& rates) {
  return {.name = name,
          .width = config.width,
          .kind = config.family == Family::llama ? NormKind::rms : NormKind::layer,
          .eps = static_cast<float>(config.norm_eps),
          .learning_rate_factor = rates.vectors,
          .unit_scaled = config.parametrization != Parametrization::standard};
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, const ScaleRules& rules)
    : LanguageModel(rules),
      config_(config),
      table_(parameters().add({.name = "embed.weight",
                               .kind = ParameterKind::embedding,
                               .rows = config.vocab,
                               .cols = config.width,
                               .init_std = init_std(config),
                               .learning_rate_factor = LearningRates(config).embedding})) {
  registry().adapt(lora_shape(config));
  const LearningRates rates(config);
  if (config.family == Family::gpt) {
    positions_ = &parameters().add({.name = "positions.weight",
                                    .kind = ParameterKind::embedding,
                                    .rows = config.context,
                                    .cols = config.width,
                                    .init_std = init_std(config),
                                    .learning_rate_factor = rates.embedding});
  }
  for (Size block = 0; block < config.layers; ++block) {
    const std::string prefix = fmt::format("blocks.{}.", block);
    parameters().begin_section();
    norms_.push_back(std::make_unique<Norm>(registry(), norm_shape(config, prefix + "norm1", rates)));
    branches_.push_back(std::make_unique<AttentionBranch>(registry(), attention_shape(config, block, rates)));
    parameters().begin_section();
    norms_.push_back(std::make_unique<Norm>(registry(), norm_shape(config, prefix + "norm2", rates)));
    branches_.push_back(std::make_unique<MlpBranch>(registry(), mlp_shape(config, block, rates)));
  }
  parameters().begin_section();
  final_norm_ = std::make_unique<Norm>(registry(), norm_shape(config, "norm", rates));
  head_ = std::make_unique<Head>(registry(), HeadShape{.in = config.width,
                                                       .classes = config.vocab,
                                                       .init_std = init_std(config),
                                                       .unit_scaled = is_unit_scaled(),
                                                       .tied = config.tie_head == TieHead::no ? nullptr : &table_});
  registry().check_targets();
  input_ratios_.assign(branches_.size(), 1.0);
  entry_factors_.assign(branches_.size(), 1.0F);
  streams_.resize(branches_.size() + 1);
  branch_outputs_.resize(branches_.size());
}

float Transformer::embedding_factor() const { return is_unit_scaled() && positions_ != nullptr ? root_half : 1.0F; }

double Transformer::flops_per_token(Size sequence) const {
  const double attention = static_cast<double>(config_.layers * config_.heads * config_.head_size * sequence);
  return Model::flops_per_token(sequence) + 6 * attention;  // causal: half of 12
}

ResidualFactors Transformer::residual(Size branch) const {
  switch (config_.parametrization) {
    case Parametrization::umup:
      return umup_residual(branch, config_.layers, config_.residual_alpha, config_.attention_ratio);
    case Parametrization::munit:
      return munit_residual(config_.layers, config_.residual_tau);
    case Parametrization::standard:
    case Parametrization::automatic:
      break;
  }
  return {};
}

void Transformer::propagate_ratios(Step& step) {
  const Size tokens = step.tokens();
  stream_ratio_ = head_->propagate_ratio(tokens);
  final_norm_->propagate_ratio(stream_ratio_, tokens);
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    const double joined = stream_ratio_ / residual(static_cast<Size>(i)).add;
    input_ratios_[i] = branches_[i]->propagate_ratio(joined * entry_factors_[i], step);
    norms_[i]->propagate_ratio(norms_after_branches() ? joined : input_ratios_[i], tokens);
  }
  const float embedding = is_unit_scaled() ? unit_embedding_gradient(config_.vocab, tokens) : 1.0F;
  table_.gradient_ratio = static_cast<float>(stream_ratio_ * embedding / embedding_factor());
  if (positions_ != nullptr) positions_->gradient_ratio = table_.gradient_ratio;
}

void Transformer::check_tokens(std::span<const std::int32_t> tokens) const {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config_.vocab) {
      throw Error(fmt::format("token {} at position {} of the batch lies outside the model's vocabulary of {}",
                              tokens[i], i, config_.vocab),
                  "the data was made with another tokenizer: prepare it again, or set model.vocab");
    }
  }
}

void Transformer::check_length(Size sequence) const {
  if (sequence <= config_.context) return;
  throw Error(
      fmt::format("a sequence of {} tokens is longer than the model's context of {}", sequence, config_.context),
      "lower train.context or raise model.context");
}

// Engines take them as they are: a document begins at its first token, and the tokens that follow say the same.
void Transformer::check_documents(const Step& step, std::span<const std::int32_t> starts) const {
  if (starts.empty()) return;
  const auto tokens = static_cast<std::size_t>(step.tokens());
  const auto row = static_cast<std::size_t>(step.sequence);
  bool valid = starts.size() == tokens;
  for (std::size_t i = 0; valid && i < tokens; ++i) {
    const std::size_t position = i % row;
    valid = starts[i] == static_cast<std::int32_t>(position) || (position > 0 && starts[i] == starts[i - 1]);
  }
  if (valid) return;
  throw Error("the batch's document starts do not fit its rows",
              "give each token the position, within its row, of its document's first token");
}

void Transformer::forward(Step& step, std::span<const std::int32_t> tokens) {
  streams_[0] = step.saved(config_.width);
  step.use(embedding_section);
  step.engine.run(Embed{.tokens = tokens,
                        .document_starts = step.document_starts,
                        .sequence = step.sequence,
                        .table = table_.weight,
                        .positions = positions_ != nullptr ? positions_->weight : View{},
                        .factor = embedding_factor(),
                        .out = streams_[0],
                        .first = step.decoding != nullptr ? step.decoding->at.first : std::span<const std::int32_t>()});
  if (norms_after_branches()) {
    forward_norms_after(step);
  } else {
    forward_norms_before(step);
  }
}

void Transformer::forward_norms_before(Step& step) {
  View branch_out;
  ResidualFactors joined;
  const auto add_norm = [&](std::size_t i, Norm& norm, QuantizedTensor& out) {
    const View before = streams_[i > 0 ? i - 1 : 0];
    if (i > 0) streams_[i] = step.saved(config_.width);
    step.engine.run(AddNorm{.norm = norm.parameters(),
                            .residual = before,
                            .branch = branch_out,
                            .keep = joined.keep,
                            .add = joined.add,
                            .sum = streams_[i],
                            .stats = norm.stats(step),
                            .out = out,
                            .casting = step.casting});
  };
  const Arena::Scope scope(step.arena);
  const View out = step.scratch(config_.width);
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    const Arena::Scope branch_scope(step.arena);
    add_norm(i, *norms_[i], branches_[i]->first().input(step, Linear::Producer::can_requantize));
    step.use(section_of(i));
    branches_[i]->forward(step, out);
    branch_out = out;
    joined = residual(static_cast<Size>(i));
  }
  add_norm(branches_.size(), *final_norm_, head_->input(step));
}

void Transformer::forward_norms_after(Step& step) {
  View stream = streams_[0];
  step.engine.run(Quantize{stream, branches_[0]->first().input(step), step.casting});
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    branch_outputs_[i] = step.saved(config_.width);
    step.use(section_of(i));
    branches_[i]->forward(step, branch_outputs_[i]);
    const ResidualFactors joined = residual(static_cast<Size>(i));
    const bool last = i + 1 == branches_.size();
    step.engine.run(NormAdd{.norm = norms_[i]->parameters(),
                            .residual = stream,
                            .branch = branch_outputs_[i],
                            .keep = joined.keep,
                            .add = joined.add,
                            .sum = stream,
                            .stats = norms_[i]->stats(step),
                            .out = last ? nullptr : &branches_[i + 1]->first().input(step),
                            .casting = step.casting});
  }
  streams_.back() = stream;
  step.engine.run(AddNorm{.norm = final_norm_->parameters(),
                          .residual = stream,
                          .sum = stream,
                          .stats = final_norm_->stats(step),
                          .out = head_->input(step),
                          .casting = step.casting});
}

Size Transformer::count_targets(std::span<const std::int32_t> targets) const {
  Size counted = 0;
  for (const std::int32_t target : targets) {
    if (target >= config_.vocab) check_tokens(targets);
    counted += target >= 0 ? 1 : 0;
  }
  return counted;
}

Size Transformer::check(const Step& step, const Batch& batch) const {
  const auto* tokens = std::get_if<TokenBatch>(&batch);
  if (tokens == nullptr) throw Error("a language model was given rows of features", "give it sequences of tokens");
  check_length(step.sequence);
  check_tokens(tokens->inputs);
  check_documents(step, tokens->document_starts);
  return count_targets(tokens->targets);
}

Batch Transformer::blank_batch(const Step& step, BatchStorage& storage) const {
  storage.inputs.assign(static_cast<std::size_t>(step.tokens()), 0);
  storage.document_starts.assign(step.documents == Documents::packed ? storage.inputs.size() : 0, 0);
  return TokenBatch{storage.inputs, storage.inputs, storage.document_starts};
}

void Transformer::run(Step& step, const Batch& batch, const float* gradient_scale, double* loss_sum) {
  const auto& tokens = std::get<TokenBatch>(batch);
  step.document_starts = tokens.document_starts;
  forward(step, tokens.inputs);
  if (step.pass == Pass::calibrate) propagate_ratios(step);
  const bool train = step.pass != Pass::evaluate;
  const View dx = train ? step.scratch(config_.width) : View{};
  step.use(head_section());
  if (train) step.begin_gradients(head_section());
  head_->loss(step, tokens.targets, gradient_scale, loss_sum, dx);
  if (train) backward(step, tokens.inputs, dx);
}

void Transformer::calibrate_unit_factors(Step& step) {
  step.pass = Pass::calibrate;
  step.casting.detail = Detail::full;
  step.casting.observe = true;
  const auto count = static_cast<std::size_t>(step.tokens());
  std::vector<std::uint32_t> words(count + 1);
  random_words({step.casting.seed, 0, stream_of("unit factors")}, 0, words.data(), step.tokens() + 1);
  std::vector<std::int32_t> tokens(count + 1);
  for (std::size_t i = 0; i <= count; ++i) {
    tokens[i] = static_cast<std::int32_t>(words[i] % static_cast<std::uint32_t>(config_.vocab));
  }
  const auto loss_sum = step.engine.device().allocate(sizeof(double));
  loss(step, TokenBatch{std::span(tokens).first(count), std::span(tokens).last(count)}, 1,
       reinterpret_cast<double*>(loss_sum.get()));
  parameters().clear_gradients(step.engine);
}

std::vector<float> Transformer::unit_factors() {
  std::vector<float> all;
  if (!is_unit_scaled()) return all;
  for (const auto& branch : branches_) {
    for (const float factor : branch->unit_factors()) all.push_back(factor);
  }
  all.insert(all.end(), entry_factors_.begin(), entry_factors_.end());
  return all;
}

void Transformer::set_unit_factors(std::span<const float> factors) {
  if (factors.size() != unit_factors().size()) {
    throw Error(
        fmt::format("{} unit-scaling factors were given, and this model has {}", factors.size(), unit_factors().size()),
        "the checkpoint belongs to a model of another shape");
  }
  std::size_t next = 0;
  for (const auto& branch : branches_) {
    for (float& factor : branch->unit_factors()) factor = factors[next++];
  }
  if (is_unit_scaled())
    std::copy(factors.begin() + static_cast<std::ptrdiff_t>(next), factors.end(), entry_factors_.begin());
}

}  // namespace quaver
