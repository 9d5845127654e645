// What a trainer does beside training: evaluation, logits, statistics of the step that it has done.
#include <cmath>
#include <unordered_map>

#include "quaver/error.h"
#include "train/rank_agreement.h"
#include "train/trainer.h"

namespace quaver {

// Where ranks share codes out, they run the same number of passes: one more, of no consequence, where this one has
// fewer.
void Trainer::join_last_pass(Size batches) {
  const bool fewer = batches % ranks_.size() != 0 && ranks_.rank() >= batches % ranks_.size();
  if (!fewer || !model_->parameters().place().has(ShardMode::weights)) return;
  BatchStorage storage;
  const Step step = make_step(Pass::evaluate);
  enqueue_evaluation(step, model_->blank_batch(step, storage), 0);
  engine_.device().synchronize();
}

// The ranks take the batches in turn; their losses are added in the order of the batches.
std::optional<Validation> Trainer::validate(Size batches, Communicator& among) {
  settle_weights();
  const BatchShape shape = context_.batch_shape();
  batches = batches_->validation_batches(batches, shape);
  if (batches == 0) return std::nullopt;
  BatchStorage storage;
  Validation result;
  tally_.reset();
  for (Size i = among.rank(); i < batches; i += among.size()) {
    const Batch batch = read_or_blank(
        [&] { return batches_->validation_batch(static_cast<std::uint64_t>(i), shape, storage); }, storage);
    enqueue_evaluation(make_step(Pass::evaluate), batch, i);
    result.rows += rows_with_loss(batch);
  }
  engine_.device().synchronize();
  std::vector<double> losses = tally_.losses();
  const auto correct_here = static_cast<Size>(tally_.correct());
  join_last_pass(batches);
  rethrow_failed_read();
  tally_.take(interleaved(among, std::move(losses), batches), tally_.max_logit());
  result.rows = sum_of_ranks(among, result.rows);
  const Size correct = sum_of_ranks(among, correct_here);
  result.loss = tally_.loss_sum() / static_cast<double>(result.rows);
  if (dynamic_cast<const LanguageModel*>(model_.get()) == nullptr) {
    result.accuracy = static_cast<double>(correct) / static_cast<double>(result.rows);
  }
  return result;
}

std::optional<double> Trainer::evaluate(Size batches) {
  const std::optional<Validation> result = validate(batches);
  return result ? std::optional(result->loss) : std::nullopt;
}

std::vector<double> Trainer::row_losses(const Batch& batch, const BatchShape& shape, Size index) {
  Step step = evaluation_step();
  step.batch = shape.batch;
  step.sequence = shape.sequence;
  if (row_losses_ == nullptr) {
    const auto most = static_cast<std::size_t>(config_.train.batch * config_.train.context);
    row_losses_ = engine_.device().allocate(most * sizeof(double));
  }
  step.row_losses = reinterpret_cast<double*>(row_losses_.get());
  tally_.reset();
  enqueue_evaluation(step, batch, index);
  std::vector<double> losses(static_cast<std::size_t>(step.tokens()));
  engine_.device().download(row_losses_.get(), losses.data(), losses.size() * sizeof(double));
  return losses;
}

void Trainer::enqueue_evaluation(Step step, const Batch& batch, Size index) {
  step.micro_step = static_cast<std::uint32_t>(step_ * config_.train.accumulation + index);
  step.correct = tally_.device_correct();
  tally_.begin_group();
  model_->loss(step, batch, 1, tally_.device_loss_sum());
  tally_.end_group();
}

Step Trainer::evaluation_step() {
  settle_weights();
  return context_.make_step(Pass::evaluate);
}

LanguageModel& Trainer::language_model() {
  auto* language = dynamic_cast<LanguageModel*>(model_.get());
  if (language == nullptr) throw Error("this model predicts no tokens", "sample from a language model");
  return *language;
}

std::vector<float> Trainer::next_token_logits(std::span<const std::int32_t> tokens) {
  LanguageModel& language = language_model();
  const auto context = static_cast<std::size_t>(config_.train.context);
  if (tokens.size() > context) tokens = tokens.last(context);
  std::vector<float> logits(static_cast<std::size_t>(language.vocab()));
  Step step = evaluation_step();
  step.batch = 1;
  step.sequence = static_cast<Size>(tokens.size());
  const auto memory = engine_.device().allocate(logits.size() * sizeof(float));
  language.next_token_logits(step, tokens, {memory.get(), Format::f32, 1, language.vocab()});
  engine_.device().download(memory.get(), logits.data(), logits.size() * sizeof(float));
  return logits;
}

double Trainer::embedding_rms() const {
  for (const OptimizerState& state : optimizer_->states()) {
    if (state.parameter->kind != ParameterKind::embedding || state.update.count == 0) continue;
    return std::sqrt(state.update.weight2 / static_cast<double>(state.update.count));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

NumericsSample Trainer::numerics() const {
  NumericsSample sample = sample_of(book_, static_cast<std::uint64_t>(step_));
  std::unordered_map<const Site*, std::size_t> places;
  for (std::size_t i = 0; i < sites_.size(); ++i) places[sites_[i]] = i;
  const auto& states = optimizer_->states();
  for (std::size_t i = 0; i < states.size(); ++i) {
    const OptimizerState& state = states[i];
    if (state.parameter->site == nullptr) continue;
    SiteSample& figures = sample.sites[places.at(state.parameter->site)];
    const UpdateStatistics& update = state.update;
    if (update.weight2 > 0) {
      figures[Statistic::update_ratio] = static_cast<float>(std::sqrt(update.update2 / update.weight2));
    }
    if (update.count > 0) {
      figures[Statistic::unmoved_percent] =
          static_cast<float>(100.0 * static_cast<double>(update.unmoved) / static_cast<double>(update.count));
    }
    if (state.parameter->frozen) continue;
    if (noise_.knows(i)) figures[Statistic::gradient_snr] = static_cast<float>(noise_.of(i));
    if (const GradientAgreement* const shadow = probes_.shadow_of(i)) {
      figures[Statistic::shadow_cosine] = static_cast<float>(shadow->cosine);
      figures[Statistic::shadow_error] = static_cast<float>(shadow->error);
    }
  }
  return sample;
}

}  // namespace quaver
