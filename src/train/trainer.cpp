#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <utility>

#include "comm/agreement.h"
#include "interop/hf_weights.h"
#include "optim/schedule.h"
#include "quaver/error.h"
#include "train/faster_layers.h"
#include "train/rank_agreement.h"
#include "train/resolved_config.h"
#include "train/trainer_state.h"

namespace quaver {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Config resolve(Config config, const DataShape& data, Engine& engine) {
  config = resolve_layer_speeds(resolve_shape(std::move(config), data), &engine);
  // A run is looked at from other folders than the one it was started in.
  for (std::string* path : {&config.model.from, &config.data.path, &config.data.valid_path, &config.precision.scales,
                            &config.precision.localization, &config.precision.only_where_faster}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  }
  if (config.data.tokenizer.find('/') != std::string::npos) {
    config.data.tokenizer = std::filesystem::absolute(config.data.tokenizer).lexically_normal().string();
  }
  return config;
}

Config for_ranks(Config config, int ranks) {
  config.train = resolve_groups(std::move(config.train), ranks);
  return config;
}

LossScale make_loss_scale(const PrecisionConfig& precision) {
  LossScaling mode = precision.loss_scaling;
  if (mode == LossScaling::automatic) {
    const SiteSpec gradient = make_recipe(precision.recipe, precision).dy;
    const bool narrow = gradient.rows.format == Format::f16 || gradient.columns.format == Format::f16;
    mode = narrow ? LossScaling::adaptive : LossScaling::off;
  }
  return {mode, precision.loss_scale_log2, precision.loss_scale_window};
}

// Unit-scaled weights have unit variance whatever the learning rate, so their decay does not follow it.
double decay_of(const OptimConfig& optim, const Model& model, double learning_rate, double schedule) {
  return model.is_unit_scaled() ? schedule * optim.weight_decay / 1024 : learning_rate * optim.weight_decay;
}

double peak_learning_rate(const OptimConfig& optim, const Model& model) {
  return model.is_unit_scaled() ? optim.unit_learning_rate : optim.learning_rate;
}

}  // namespace

Trainer::Trainer(const Config& config, const TrainingData& data, Engine& engine, Notice notice, Communicator& ranks)
    : Trainer(resolve(config, data.shape(), engine), model_of, make_batches(data), engine, std::move(notice), ranks) {}

Trainer::Trainer(Config config, const ModelFactory& make_model, std::unique_ptr<BatchSource> batches, Engine& engine,
                 Notice notice, Communicator& ranks)
    : config_(for_ranks(std::move(config), ranks.size())),
      batches_(std::move(batches)),
      engine_(engine),
      ranks_(ranks),
      micro_batches_(config_.train, ranks.rank(), ranks.size()),
      model_(make_model(config_)),
      book_(model_->book()),
      loss_scale_(make_loss_scale(config_.precision)),
      weights_(engine_, ranks_, model_->parameters()),
      sections_(engine_, model_->parameters(), weights_),
      tally_(engine),
      noise_(config_.train.accumulation),
      context_{config_, engine_, *model_, sites_, memory_, weights_, sections_, step_, last_weight_cast_},
      precision_(context_, std::move(notice)),
      probes_(context_, *batches_, loss_scale_, tally_) {
  optimizer_ = make_optimizer(config_.optim, model_->parameters());
  for (const auto& entry : book_.entries()) sites_.push_back(&entry->site);
  engine_.upload_scales(sites_);
  const ShardPlace place{config_.train.shard, ranks.rank(), ranks.size()};
  require_memory(config_, engine_, make_model, place);
  context_.plan_memory();
  model_->parameters().deal_out(place);
  model_->parameters().allocate(engine_, master_format(config_));
  exchange_.emplace(engine_, ranks, model_->parameters(), micro_batches_.rounds());
  model_->parameters().initialize(engine_, config_.train.seed);
  optimizer_->allocate(engine_, ranks);
  weights_.cast(weight_casting(is_sampled(0) ? Detail::full : Detail::counts));
  if (ranks.is_alone()) settle_weights();
  restart_loader();
}

Trainer::~Trainer() = default;

// Before a step: what was cast or loaded since the last pass gets to where passes read it.
void Trainer::settle_casts() {
  weights_.gather_casts();
  if (!std::exchange(calibrated_, true) && model_->is_unit_scaled()) calibrate();
}

// Before anything else that reads weights: those of the latest update too, which a step gathers as it goes.
void Trainer::settle_weights() {
  settle_casts();
  weights_.gather();
  sections_.plan(0, nullptr);
}

void Trainer::calibrate() {
  sections_.plan(0, nullptr);
  Step step = make_step(Pass::train);
  model_->calibrate_unit_factors(step);
  abandon_step();
}

bool Trainer::is_sampled(Size step) const {
  const auto due = [step](Size every) { return every > 0 && step % every == 0; };
  return due(config_.train.statistics_every) || due(config_.train.shadow_every);
}

void Trainer::restart_loader() { batches_->start(micro_batches_.order(batch_index()), context_.batch_shape()); }

void Trainer::skip_batches(Size count) {
  skipped_batches_ += count;
  restart_loader();
}

// So that the mean over the step does not depend on how its rows are divided into micro-batches and among ranks.
Size Trainer::rows_of_step() const {
  Size rows = 0;
  for (Size micro = 0; micro < config_.train.accumulation; ++micro) {
    rows +=
        batches_->training_rows_with_loss(static_cast<std::uint64_t>(batch_index() + micro), context_.batch_shape());
  }
  return std::max<Size>(1, rows);
}

// Enqueues them, and the sum of all ranks' gradients; the device may still be busy with all of it when they return.
void Trainer::micro_steps(StepReport& report) {
  tally_.reset();
  rows_with_loss_ = static_cast<double>(rows_of_step());
  engine_.upload_scales(sites_);
  memory_.note_scales(sites_);
  for (Size round = 0; round < micro_batches_.rounds(); ++round) {
    if (round > 0) tally_.begin_group();
    model_->parameters().clear_gradients(engine_);
    run_group(round, report);
    tally_.end_group();
    ranks_.is_alone() ? exchange_->add_all(round) : exchange_->add_rest(round);
  }
  rethrow_failed_read();
}

// Data that cannot be read on one rank must not keep the others waiting: it goes on with a blank batch until all of
// them can throw.
Batch Trainer::read_or_blank(const std::function<Batch()>& read, BatchStorage& blank) {
  if (ranks_.is_alone()) return read();
  try {
    if (failed_read_ == nullptr) return read();
  } catch (const Error&) {
    failed_read_ = std::current_exception();
  }
  return model_->blank_batch(make_step(Pass::evaluate), blank);
}

void Trainer::rethrow_failed_read() {
  if (ranks_.is_alone()) return;
  on_all_ranks(ranks_, [this] {
    if (failed_read_ != nullptr) std::rethrow_exception(std::exchange(failed_read_, nullptr));
  });
}

void Trainer::run_group(Size round, StepReport& report) {
  BatchStorage blank;
  for (Size i = 0; i < micro_batches_.per_group(); ++i) {
    const Size micro = micro_batches_.first(round) + i;
    const auto asked = Clock::now();
    const Batch batch = read_or_blank([this] { return batches_->next(); }, blank);
    report.data_seconds += seconds_since(asked);
    const bool sampled = report.sampled && micro == 0;  // one micro-batch tells as much as all of them
    Step step = make_step(Pass::train);
    step.casting.detail = sampled ? Detail::full : Detail::counts;
    step.micro_step = static_cast<std::uint32_t>(step_ * config_.train.accumulation + micro);
    step.max_logit = tally_.device_max_logit();
    step.mean_rows = rows_with_loss_ / static_cast<double>(config_.train.accumulation);
    const bool leave = !ranks_.is_alone() && i + 1 == micro_batches_.per_group();
    plan_pass(round, leave, sampled);
    model_->loss(step, batch, loss_scale_.value(), tally_.device_loss_sum());
    if (sampled) look_closely(leave);
  }
}

// The group's last pass sends its gradients to their owners while it runs.
void Trainer::plan_pass(Size round, bool leave, bool sampled) {
  if (!leave) return sections_.plan(0, nullptr);
  const bool last = round + 1 == micro_batches_.rounds();
  sections_.plan(1 + (round == 0 ? 1 : 0) + (last ? 2 : 0), [this, round, sampled](Size bucket) {
    if (sampled) note_squares(bucket);
    return exchange_->add_bucket(bucket, round);
  });
}

// Forgets what the casts of some micro-batches saw, so that a checkpoint of this moment is one of the step before.
// Weights are cast between steps: what was seen of them stays.
void Trainer::abandon_step() {
  optimizer_->forget_noted();
  engine_.wait_for_statistics(sites_);
  for (Site* site : sites_) {
    if (site->role != Role::w) site->seen = {};
  }
}

// After the first micro-batch of a sampled step: full statistics of its casts, and its gradients' norms. Those of
// buckets were noted before they left.
void Trainer::look_closely(bool left) {
  engine_.peek_statistics(sites_, [this] { book_.take_samples(); });
  noise_.take_first({});
  if (config_.train.accumulation < 2) return;
  const auto& rest = model_->parameters().rest().parameters;
  optimizer_->note_squares(
      engine_, [&](const Parameter& parameter) { return !left || std::ranges::find(rest, &parameter) != rest.end(); });
  optimizer_->read_noted(engine_, 1.0F / loss_scale_.value(),
                         [this](std::vector<double> squares) { noise_.take_first(std::move(squares)); });
}

// Of a bucket's gradients, which may not be there any more when the micro-batch is done.
void Trainer::note_squares(Size bucket) {
  if (config_.train.accumulation < 2) return;
  const auto& noted = model_->parameters().buckets()[static_cast<std::size_t>(bucket)].parameters;
  optimizer_->note_squares(
      engine_, [&](const Parameter& parameter) { return std::ranges::find(noted, &parameter) != noted.end(); });
}

// The whole step is enqueued and waited for once, where the engine computes the next scales itself: whether the
// gradients are finite is then found out after the update, which does nothing on the device where they are not.
StepReport Trainer::step() {
  const auto start = Clock::now();
  precision_.switch_recipe_when_due();
  precision_.recalibrate_when_due();
  settle_casts();
  StepReport report;
  report.sampled = is_sampled(step_);
  report.loss_scale = loss_scale_.value();
  try {
    engine_.device().time([&] { micro_steps(report); }, [this](double seconds) { micro_steps_seconds_ = seconds; });
  } catch (...) {
    abandon_step();
    throw;
  }
  const double schedule = schedule_share(config_.optim, step_, config_.train.steps);
  report.learning_rate = peak_learning_rate(config_.optim, *model_) * schedule;
  optimizer_->measure(engine_, 1.0F / (loss_scale_.value() * static_cast<float>(config_.train.accumulation)));
  if (report.sampled) {
    optimizer_->read_squares(engine_, [this](std::vector<double> squares) { noise_.take_mean(std::move(squares)); });
  }
  const bool ahead = advance_scales();
  engine_.fetch_statistics(sites_, [] {});
  const double decay = decay_of(config_.optim, *model_, report.learning_rate, schedule);
  const std::uint32_t last_cast = last_weight_cast_;
  if (ahead) update_weights(report.learning_rate, decay);
  const double communicated = communication_seconds_;
  ranks_.read_seconds([this](double seconds) { communication_seconds_ = seconds; });
  engine_.device().synchronize();
  share_findings(report, communicated);
  finish_step(report);
  if (ahead && report.skipped) take_back_update(last_cast);
  if (!ahead && !report.skipped) {
    engine_.upload_scales(sites_);
    update_weights(report.learning_rate, decay);
    engine_.device().synchronize();
    optimizer_->share_updates();
    weights_.share_statistics();
  }
  loss_scale_.after_step(!report.skipped);
  ++step_;
  fill_report(report);
  report.seconds = seconds_since(start);
  report.micro_steps_seconds = std::max(0.0, micro_steps_seconds_ - report.data_seconds);
  report.optimizer_seconds = std::max(0.0, report.seconds - report.data_seconds - report.micro_steps_seconds);
  return report;
}

// Asks the engine for the next step's scales. It cannot have them where the host must look first: a weight has no scale
// yet, or statistics that belong to the step have been fetched already.
bool Trainer::advance_scales() {
  if (!ranks_.is_alone() || micro_batches_.rounds() > 1) return false;  // the device has not seen all micro-batches
  for (const Site* site : sites_) {
    if (!has_given_scale(site->spec.rows)) continue;
    if (site->seen.count > 0 || (site->role == Role::w && site->scale == 0)) return false;
  }
  const std::vector<DelayedScale> delayed = book_.delayed_scales();
  const std::vector<const Site*> watched = sites_of_loss_scale();
  return engine_.advance_scales({.delayed = delayed,
                                 .must_not_saturate = watched,
                                 .loss_sum = tally_.device_loss_sum(),
                                 .summary = optimizer_->device_summary()});
}

void Trainer::update_weights(double learning_rate, double decay) {
  last_weight_cast_ = static_cast<std::uint32_t>(step_ + 1);
  const Casting weights = weight_casting(is_sampled(step_ + 1) ? Detail::full : Detail::counts);
  optimizer_->update(engine_, {.step = step_,
                               .learning_rate = learning_rate,
                               .decay = decay,
                               .casting = &weights,
                               .micro_batches = config_.train.accumulation});
  weights_.note_update();
}

// The weights did not move, but were cast: once more as they were before, and nobody saw it.
void Trainer::take_back_update(std::uint32_t last_cast) {
  optimizer_->take_back_update();
  last_weight_cast_ = last_cast;
  engine_.wait_for_statistics(sites_);
  for (Site* site : sites_) site->seen = {};
  weights_.cast(weight_casting().unobserved());
}

// What the devices of all ranks found out about the step.
void Trainer::share_findings(StepReport& report, double communicated_before) {
  share_tally(ranks_, tally_);
  share_statistics(ranks_, sites_);
  if (report.sampled) share_samples(ranks_, book_, noise_);
  if (ranks_.is_alone()) return;
  const std::vector<double> times = gathered(ranks_, communication_seconds_ - communicated_before);
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  report.communication = {*least, *most, static_cast<int>(least - times.begin())};
}

void Trainer::finish_step(StepReport& report) {
  report.loss = tally_.loss_sum() / rows_with_loss_;
  if (report.sampled) report.gradient_snr = noise_.overall();
  report.skipped = optimizer_->summary().nonfinite > 0 || !std::isfinite(report.loss) || loss_scale_overflowed();
  if (report.skipped) {
    book_.discard_step();
  } else {
    book_.end_step(static_cast<std::uint64_t>(step_ + 1));
  }
}

// FP16 gradients beyond the format saturate, they do not become infinite: to an adaptive loss scale both mean the same.
std::vector<const Site*> Trainer::sites_of_loss_scale() const {
  std::vector<const Site*> sites;
  if (loss_scale_.mode() != LossScaling::adaptive) return sites;
  for (const Site* site : sites_) {
    if (site->role == Role::dy && site->spec.rows.format == Format::f16) sites.push_back(site);
  }
  return sites;
}

bool Trainer::loss_scale_overflowed() const {
  const std::vector<const Site*> sites = sites_of_loss_scale();
  return std::any_of(sites.begin(), sites.end(), [](const Site* site) { return site->seen.saturated > 0; });
}

void Trainer::fill_report(StepReport& report) {
  report.step = step_;
  report.gradient_norm = optimizer_->summary().norm;
  report.tokens = config_.train.accumulation * config_.train.batch * config_.train.context;
  report.max_logit = tally_.max_logit();
  for (const auto& entry : book_.entries()) {
    report.saturated += entry->last_step.saturated;
    report.underflowed += entry->last_step.underflowed;
    report.overflows += entry->overflow_streak > 0 && is_low_precision(entry->site.spec.rows.format) ? 1 : 0;
  }
  double weight2 = 0;
  double update2 = 0;
  std::uint64_t unmoved = 0;
  std::uint64_t count = 0;
  for (const OptimizerState& state : optimizer_->states()) {
    if (state.parameter->kind == ParameterKind::vector) continue;
    weight2 += state.update.weight2;
    update2 += state.update.update2;
    unmoved += state.update.unmoved;
    count += state.update.count;
  }
  report.update_ratio = weight2 > 0 ? std::sqrt(update2 / weight2) : 0;
  report.unmoved_percent = count > 0 ? 100.0 * static_cast<double>(unmoved) / static_cast<double>(count) : 0;
}

MemoryUse Trainer::memory() const {
  MemoryUse use;
  const Parameters& parameters = model_->parameters();
  use.weights = parameters.weight_bytes();
  use.quantized_weights = parameters.quantized_bytes();
  use.gradients = parameters.gradient_bytes() + GradientExchange::planned_bytes(parameters, micro_batches_.rounds());
  use.optimizer = optimizer_->planned_bytes();
  use.activations = memory_.saved();
  use.scratch = memory_.capacity() - memory_.saved();
  return use;
}

void Trainer::agree_on_kernels() {
  if (ranks_.is_alone() || engine_.device().hardware().kind == HardwareKind::cpu) return;
  const bool together = model_->parameters().place().has(ShardMode::weights);
  if (together || ranks_.is_first()) probe(specs(), batch_index(), ProbeWhat::gradients);
  engine_.fix_tuning(gathered(ranks_, engine_.tuning()).front());
}

void Trainer::require_same_weights() {
  if (ranks_.is_alone()) return;
  settle_weights();
  require_same(ranks_, {"checksum of the weights", fmt::format("{:08x}", weights_.checksum()),
                        "its device or memory may be faulty: resume from the last checkpoint, without that machine"});
}

GradientAgreement Trainer::shadow_check() {
  settle_weights();
  return probes_.shadow_check({precision_.specs(), precision_.high_precision_specs()}, batch_index());
}

CheckpointContent Trainer::snapshot(const WatchState& watch) {
  settle_weights();
  engine_.wait_for_statistics(sites_);
  CheckpointContent content;
  tensors_.copy_from(engine_, model_->parameters(), *optimizer_, content);
  content.state = to_json(TrainerState{.step = step_,
                                       .updates = optimizer_->updates(),
                                       .skipped_batches = skipped_batches_,
                                       .last_weight_cast = last_weight_cast_,
                                       .switched = precision_.switched(),
                                       .loss_scale_log2 = loss_scale_.log2(),
                                       .loss_scale_clean_steps = loss_scale_.clean_steps(),
                                       .watch = watch,
                                       .unit_factors = model_->unit_factors(),
                                       .scale_book = book_.to_json()});
  content.metadata = {{"quaver.step", std::to_string(step_)}, {"quaver.recipe", config_.precision.recipe}};
  return content;
}

WatchState Trainer::restore(const Checkpoint& checkpoint) {
  TrainerState state = parse_state(checkpoint.state(), checkpoint.step(), (checkpoint.path() / "state.json").string());
  upload_tensors(checkpoint, engine_, model_->parameters(), *optimizer_);
  step_ = state.step;
  optimizer_->restore_updates(state.updates);
  skipped_batches_ = state.skipped_batches;
  last_weight_cast_ = state.last_weight_cast;
  precision_.restore(state.switched);
  loss_scale_.restore(state.loss_scale_log2, state.loss_scale_clean_steps);
  model_->set_unit_factors(state.unit_factors);
  calibrated_ = true;
  engine_.wait_for_statistics(sites_);  // what was seen before belongs to another run
  const auto missing =
      book_.from_json(state.scale_book, ScaleBook::Import::everything, static_cast<std::uint64_t>(step_));
  if (!missing.empty()) {
    throw Error(fmt::format("{}: the scale book has no entry for {}", checkpoint.path().string(), missing.front()),
                "the checkpoint belongs to another model: resume with that run's own config");
  }
  engine_.upload_scales(sites_);
  context_.plan_memory();
  // Requantizing with the stored scales and random streams gives the same codes; what the casts saw is already in the
  // book, so it must not be counted twice.
  weights_.cast(weight_casting().unobserved());
  if (is_sampled(step_)) gather_weight_statistics();
  restart_loader();
  return std::move(state.watch);
}

void Trainer::load_pretrained() {
  load_hf_weights(config_.model.from, config_.model, engine_, model_->parameters());
  engine_.wait_for_statistics(sites_);  // what was seen of the initial weights
  for (Site* site : sites_) site->seen = {};
  weights_.cast(weight_casting(is_sampled(0) ? Detail::full : Detail::counts));
}

// The step to come is sampled: its statistics of the weights are those of their last cast, which checkpoints keep the
// counts of only.
void Trainer::gather_weight_statistics() {
  std::vector<CastStatistics> before;
  for (const Site* site : sites_) before.push_back(site->seen);
  for (Site* site : sites_) site->seen = {};
  weights_.cast(weight_casting(Detail::full));
  engine_.wait_for_statistics(sites_);
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    if (before[i].count == 0) sites_[i]->seen = {};  // after a skipped step the weights were not cast
  }
}

}  // namespace quaver
