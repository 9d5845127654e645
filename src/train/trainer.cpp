#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>

#include "io/file_io.h"
#include "optim/schedule.h"
#include "quaver/error.h"
#include "train/resolved_config.h"

namespace quaver {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Config resolve(Config config, int data_vocab) {
  config = resolve_shape(std::move(config), data_vocab);
  // A run is looked at from other folders than the one it was started in.
  for (std::string* path :
       {&config.data.path, &config.data.valid_path, &config.precision.scales, &config.precision.localization}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  }
  if (config.data.tokenizer.find('/') != std::string::npos) {
    config.data.tokenizer = std::filesystem::absolute(config.data.tokenizer).lexically_normal().string();
  }
  return config;
}

LossScale make_loss_scale(const PrecisionConfig& precision) {
  LossScaling mode = precision.loss_scaling;
  if (mode == LossScaling::automatic) mode = precision.recipe == "fp16" ? LossScaling::adaptive : LossScaling::off;
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

Trainer::Trainer(const Config& config, const TrainingData& data, Engine& engine, Notice notice)
    : Trainer(resolve(config, data.vocab), model_of, std::make_unique<TokenBatches>(data), engine, std::move(notice)) {}

Trainer::Trainer(Config config, ModelFactory make_model, std::unique_ptr<BatchSource> batches, Engine& engine,
                 Notice notice)
    : config_(std::move(config)),
      make_model_(std::move(make_model)),
      batches_(std::move(batches)),
      engine_(engine),
      notice_(std::move(notice)),
      model_(make_model_(config_)),
      plan_(make_plan(config_.precision, model_->layers())),
      book_(model_->book()),
      loss_scale_(make_loss_scale(config_.precision)),
      tally_(engine),
      noise_(config_.train.accumulation) {
  book_.apply(plan_);
  optimizer_ = make_optimizer(config_.optim, model_->parameters());
  for (const auto& entry : book_.entries()) sites_.push_back(&entry->site);
  load_scales();
  engine_.upload_scales(sites_);
  check_memory();
  plan_memory();
  model_->parameters().allocate(engine_, master_format(config_));
  model_->parameters().initialize(engine_, config_.train.seed);
  optimizer_->allocate(engine_);
  model_->parameters().quantize_all(engine_, weight_casting(is_sampled(0) ? Detail::full : Detail::counts));
  if (model_->is_unit_scaled()) {
    Step step = make_step(Pass::train);
    model_->calibrate_unit_factors(step);
    abandon_step();
  }
  restart_loader();
}

Trainer::~Trainer() = default;

std::vector<std::string> Trainer::import_scales() {
  const std::string& path = config_.precision.scales;
  try {
    return book_.from_json(read_file(path, largest_scale_file), ScaleBook::Import::scales_only, 0);
  } catch (const Error& error) {
    throw Error(fmt::format("precision.scales = {}: {}", path, error.what()), error.remedy());
  }
}

// fp8-static and warm starts take their scales from a file, or from the config.
void Trainer::load_scales() {
  if (!config_.precision.scales.empty()) {
    const auto missing = import_scales();
    if (!missing.empty()) {
      notice_(fmt::format("{}: no scale for {} of the sites, the first {}; they start without one",
                          config_.precision.scales, missing.size(), missing.front()));
    }
  }
  for (const auto& entry : book_.entries()) {
    Site& site = entry->site;
    if (site.spec.rows.policy != ScalePolicy::fixed || site.scale != 0) continue;
    const PrecisionConfig& precision = config_.precision;
    const double scale = site.role == Role::x   ? precision.static_activation_scale
                         : site.role == Role::w ? precision.static_weight_scale
                                                : precision.static_gradient_scale;
    book_.set_scale(site.name, static_cast<float>(scale), 0, "from the config");
  }
}

void Trainer::check_memory() const {
  const Size limit = config_.train.memory_limit_mb > 0 ? config_.train.memory_limit_mb * 1024 * 1024
                                                       : static_cast<Size>(engine_.device().free_memory());
  const Hardware hardware = engine_.device().hardware();
  const MemoryPlan plan = quaver::plan_memory(config_, hardware, make_model_);
  const auto needed_by = [&](const MemoryPlan& some) {  // what the engine has taken already is not free any more
    return some.engine_total() - static_cast<Size>(engine_.device().workspace_bytes());
  };
  const Size needed = needed_by(plan);
  if (limit == 0 || needed <= limit) return;
  Config smaller = config_;
  do {
    smaller.train.batch /= 2;
  } while (smaller.train.batch > 0 && needed_by(quaver::plan_memory(smaller, hardware, make_model_)) > limit);
  const auto gib = [](Size bytes) { return static_cast<double>(bytes) / (1024 * 1024 * 1024); };
  throw Error(
      fmt::format("the run needs {:.2f} GiB ({:.2f} of weights, gradients and optimiser, {:.2f} of activations, {:.2f} "
                  "of working memory) and {:.2f} GiB are free: {:.2f} GiB too much",
                  gib(needed), gib(plan.fixed()), gib(plan.arena()), gib(plan.workspace + plan.passing), gib(limit),
                  gib(needed - limit)),
      smaller.train.batch > 0
          ? fmt::format("train.batch = {} fits; raise train.accumulation to keep the tokens a step. `quaver estimate` "
                        "tries other changes",
                        smaller.train.batch)
          : "choose a smaller model, or optim.moments = \"fp8\" and optim.master = \"bf16-stochastic\": `quaver "
            "estimate` tries what fits");
}

Step Trainer::make_step(Pass pass) {
  Step step{engine_, memory_.arena(), config_.train.batch, config_.train.context, pass};
  step.memory = config_.train.memory;
  step.casting.seed = config_.train.seed;
  step.casting.observe = pass != Pass::evaluate;
  step.accumulators = accumulators_for(config_.precision.accumulator, engine_);
  step.generation = memory_.generation();
  return step;
}

// Weights are cast once a step; their streams are those of the step that cast them.
Casting Trainer::weight_casting(Detail detail) const {
  return {.seed = config_.train.seed, .step = last_weight_cast_, .detail = detail};
}

bool Trainer::is_sampled(Size step) const {
  const auto due = [step](Size every) { return every > 0 && step % every == 0; };
  return due(config_.train.statistics_every) || due(config_.train.shadow_every);
}

void Trainer::restart_loader() { batches_->start(static_cast<std::uint64_t>(batch_index()), batch_shape()); }

void Trainer::skip_batches(Size count) {
  skipped_batches_ += count;
  restart_loader();
}

double Trainer::read_loss_sum() {
  tally_.read();
  engine_.device().synchronize();
  return tally_.loss_sum();
}

// Enqueues them; the device may still be busy with all of it when they return.
void Trainer::micro_steps(StepReport& report) {
  tally_.reset();
  model_->parameters().clear_gradients(engine_);
  engine_.upload_scales(sites_);
  memory_.note_scales(sites_);
  for (Size micro = 0; micro < config_.train.accumulation; ++micro) {
    const auto asked = Clock::now();
    const Batch batch = batches_->next();
    report.data_seconds += seconds_since(asked);
    const bool sampled = report.sampled && micro == 0;  // one micro-batch tells as much as all of them
    Step step = make_step(Pass::train);
    step.casting.detail = sampled ? Detail::full : Detail::counts;
    step.micro_step = static_cast<std::uint32_t>(step_ * config_.train.accumulation + micro);
    step.max_logit = tally_.device_max_logit();
    model_->loss(step, batch, loss_scale_.value(), tally_.device_loss_sum());
    if (sampled) look_closely();
  }
}

// Forgets what the casts of some micro-batches saw, so that a checkpoint of this moment is one of the step before.
// Weights are cast between steps: what was seen of them stays.
void Trainer::abandon_step() {
  engine_.wait_for_statistics(sites_);
  for (Site* site : sites_) {
    if (site->role != Role::w) site->seen = {};
  }
}

// After the first micro-batch of a sampled step: what its casts saw in full, and its gradients' norms.
void Trainer::look_closely() {
  engine_.peek_statistics(sites_, [this] { book_.take_samples(); });
  noise_.take_first({});
  if (config_.train.accumulation < 2) return;
  optimizer_->measure(engine_, 1.0F / loss_scale_.value());
  optimizer_->read_squares(engine_, [this](std::vector<double> squares) { noise_.take_first(std::move(squares)); });
}

// The whole step is enqueued and waited for once, where the engine computes the next scales itself: whether the
// gradients are finite is then found out after the update, which does nothing on the device where they are not.
StepReport Trainer::step() {
  const auto start = Clock::now();
  switch_recipe_when_due();
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
  tally_.read();
  const double decay = decay_of(config_.optim, *model_, report.learning_rate, schedule);
  const std::uint32_t last_cast = last_weight_cast_;
  if (ahead) update_weights(report.learning_rate, decay);
  engine_.device().synchronize();
  finish_step(report);
  if (ahead && report.skipped) take_back_update(last_cast);
  if (!ahead && !report.skipped) {
    engine_.upload_scales(sites_);
    update_weights(report.learning_rate, decay);
    engine_.device().synchronize();
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
  optimizer_->update(engine_, {.step = step_, .learning_rate = learning_rate, .decay = decay, .casting = &weights});
}

// The weights did not move, but were cast: once more as they were before, and nobody saw it.
void Trainer::take_back_update(std::uint32_t last_cast) {
  optimizer_->take_back_update();
  last_weight_cast_ = last_cast;
  engine_.wait_for_statistics(sites_);
  for (Site* site : sites_) site->seen = {};
  model_->parameters().quantize_all(engine_, weight_casting().unobserved());
}

// What the device found out about the step.
void Trainer::finish_step(StepReport& report) {
  const TrainConfig& train = config_.train;
  report.loss = tally_.loss_sum() / static_cast<double>(train.accumulation * train.batch * train.context);
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
    report.overflows += entry->overflow_streak > 0 && is_narrow(entry->site.spec.rows.format) ? 1 : 0;
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

void Trainer::set_spec(const std::string& site, const SiteSpec& spec, const std::string& reason) {
  if (book_.entry(site).site.spec == spec) return;
  book_.set_spec(site, spec, static_cast<std::uint64_t>(step_), reason);
  engine_.upload_scales(sites_);
  cast_weight_of(site);
}

void Trainer::cast_weight_of(const std::string& site) {
  for (Parameter& parameter : model_->parameters().all()) {
    if (parameter.site != nullptr && parameter.site->name == site) {
      model_->parameters().quantize(parameter, engine_, weight_casting());
    }
  }
}

void Trainer::change_site(const std::string& site, const SiteSpec& spec, const std::string& reason) {
  set_spec(site, spec, reason);
  // What meets it in a product may have been rotated to match.
  const std::string layer = site.substr(0, site.rfind('/'));
  const auto name = [&](Role role) { return site_name(layer, role); };
  SiteSpec x = book_.entry(name(Role::x)).site.spec;
  SiteSpec w = book_.entry(name(Role::w)).site.spec;
  SiteSpec dy = book_.entry(name(Role::dy)).site.spec;
  agree_on_rotation(x, w, dy);
  const std::string why = "no longer rotated: " + site + " is not";
  set_spec(name(Role::x), x, why);
  set_spec(name(Role::w), w, why);
  set_spec(name(Role::dy), dy, why);
  plan_memory();
}

std::vector<std::string> Trainer::take_back(const std::string& pattern) {
  std::vector<std::string> done;
  for (const auto& entry : book_.entries()) {
    const Site& site = entry->site;
    if (!matches(pattern, site.name) || !book_.can_roll_back(site.name)) continue;
    const std::string reason = book_.roll_back(site.name, static_cast<std::uint64_t>(step_));
    engine_.upload_scales(sites_);
    cast_weight_of(site.name);
    done.push_back(
        fmt::format("{}: took back \"{}\"; stored as {} again", site.name, reason, describe(site.spec.rows)));
  }
  if (done.empty()) {
    throw Error("no site that matches '" + pattern + "' has a change to take back",
                "`quaver inspect` lists a run's sites and their changes");
  }
  plan_memory();
  return done;
}

void Trainer::apply_plan(const Plan& plan, const std::string& reason) {
  for (const PlanRow& row : plan.rows) set_spec(row.site, row.spec, reason);
  plan_memory();
}

bool Trainer::change_plan_from(const Config& trained, const std::string& reason) {
  const Plan then = make_plan(trained.precision, model_->layers());
  const bool same = std::equal(then.rows.begin(), then.rows.end(), plan_.rows.begin(), plan_.rows.end(),
                               [](const PlanRow& a, const PlanRow& b) { return a.spec == b.spec; });
  if (!same) apply_plan(plan_, reason + config_.precision.recipe);
  return !same;
}

void Trainer::switch_recipe_when_due() {
  const PrecisionConfig& precision = config_.precision;
  const auto due = static_cast<Size>(precision.switch_at * static_cast<double>(config_.train.steps));
  if (switched_ || precision.switch_to.empty() || step_ < due) return;
  switched_ = true;
  PrecisionConfig later = precision;
  later.recipe = precision.switch_to;
  apply_plan(make_plan(later, model_->layers()), "switch to " + precision.switch_to);
  notice_(fmt::format("step {}: the rest of the run uses {}", step_, precision.switch_to));
}

std::optional<double> Trainer::evaluate(Size batches) {
  const BatchShape shape = batch_shape();
  batches = batches_->validation_batches(batches, shape);
  if (batches == 0) return std::nullopt;
  BatchStorage storage;
  tally_.reset();
  for (Size i = 0; i < batches; ++i) {
    add_evaluation_loss(batches_->validation_batch(static_cast<std::uint64_t>(i), shape, storage), i);
  }
  return read_loss_sum() / static_cast<double>(batches * shape.batch * shape.sequence);
}

double Trainer::loss_sum(const Batch& batch, Size index) {
  tally_.reset();
  add_evaluation_loss(batch, index);
  return read_loss_sum();
}

void Trainer::add_evaluation_loss(const Batch& batch, Size index) {
  Step step = make_step(Pass::evaluate);
  step.micro_step = static_cast<std::uint32_t>(step_ * config_.train.accumulation + index);
  model_->loss(step, batch, 1, tally_.device_loss_sum());
}

std::vector<float> Trainer::next_token_logits(std::span<const std::int32_t> tokens) {
  auto* language = dynamic_cast<LanguageModel*>(model_.get());
  if (language == nullptr) throw Error("this model predicts no tokens", "sample from a language model");
  const auto context = static_cast<std::size_t>(config_.train.context);
  if (tokens.size() > context) tokens = tokens.last(context);
  std::vector<float> logits(static_cast<std::size_t>(language->vocab()));
  Step step = make_step(Pass::evaluate);
  step.batch = 1;
  step.sequence = static_cast<Size>(tokens.size());
  const auto memory = engine_.device().allocate(logits.size() * sizeof(float));
  language->next_token_logits(step, tokens, {memory.get(), Format::f32, 1, language->vocab()});
  engine_.device().download(memory.get(), logits.data(), logits.size() * sizeof(float));
  return logits;
}

MemoryUse Trainer::memory() const {
  MemoryUse use;
  const Parameters& parameters = model_->parameters();
  use.weights = parameters.weight_bytes();
  use.quantized_weights = parameters.quantized_bytes();
  use.gradients = parameters.count() * 4;
  use.optimizer = optimizer_->planned_bytes();
  use.activations = memory_.saved();
  use.scratch = memory_.capacity() - memory_.saved();
  return use;
}

std::map<std::string, double> Trainer::format_shares() const {
  Plan now = plan_;
  for (std::size_t i = 0; i < sites_.size(); ++i) now.rows[i].spec = sites_[i]->spec;
  return flops_by_format(now, model_->layers());
}

}  // namespace quaver
