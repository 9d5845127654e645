#include "train/run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <thread>

#include "config/check.h"
#include "config/dump.h"
#include "data/verifier.h"
#include "io/file_io.h"
#include "quaver/error.h"
#include "train/engine_choice.h"
#include "train/environment.h"
#include "train/guard.h"
#include "train/localization_map.h"
#include "train/metrics.h"
#include "train/run_history.h"
#include "train/run_record.h"
#include "train/sampling.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

void tell(const std::function<void(const std::string&)>& listener, const std::string& text) {
  if (listener) listener(text);
}

std::map<std::string, double> notes_of(const Guard::State& state) {
  return {{"guard.mean", state.mean},
          {"guard.bad_steps", state.bad_steps},
          {"guard.skipped_steps", state.skipped_steps},
          {"guard.rewinds", state.rewinds},
          {"guard.seen", static_cast<double>(state.seen)}};
}

Guard::State guard_state(const std::map<std::string, double>& notes) {
  const auto at = [&](const char* key) {
    const auto found = notes.find(key);
    return found == notes.end() ? 0.0 : found->second;
  };
  return {at("guard.mean"), static_cast<int>(at("guard.bad_steps")), static_cast<int>(at("guard.skipped_steps")),
          static_cast<int>(at("guard.rewinds")), static_cast<std::int64_t>(at("guard.seen"))};
}

template <class Work>
double timed(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr std::chrono::seconds verification_wait{5};
constexpr std::chrono::seconds between_tries{2};  // of a last checkpoint that no folder takes

bool is_due(Size every, Size step) { return every > 0 && step % every == 0; }

void refuse_existing(const fs::path& directory) {
  if (!fs::exists(directory / "config.toml")) return;
  throw Error(directory.string() + " already holds a run",
              "add --resume to continue it, or choose another run.name or run.dir");
}

// One run from its start to its end.
class Run {
 public:
  Run(const Config& config, const RunOptions& options)
      : options_(options),
        directory_(run_directory(config)),
        data_(open_training_data(config.data, config.train.seed,
                                 config.train.context > 0 ? config.train.context : config.model.context)),
        engine_(make_engine(config, [this](const std::string& text) { note("notice", text); })),
        trainer_(config, data_, *engine_, [this](const std::string& text) { note("notice", text); }),
        store_(make_store(config)),
        guard_(config.guard),
        alarms_(config.alerts) {}

  RunResult execute() {
    if (options_.start == RunStart::resume) resume();  // before anything is written: it may be refused
    if (trainer_.finished() && !changes_.empty()) return leave_as_it_is();
    begin();
    try {
      while (!trainer_.finished()) {
        if (options_.stop != nullptr && *options_.stop) return interrupt();
        one_step();
      }
      return finish();
    } catch (...) {
      record_->status(RunStatus::failed);
      throw;
    }
  }

 private:
  CheckpointStore make_store(const Config& config) {
    make_folder(directory_);
    return {directory_, static_cast<int>(std::max<Size>(1, config.train.keep))};
  }

  // The run's id lies in a file of its own and in every checkpoint: damage to the file does not make it another run.
  std::string known_id() {
    try {
      const fs::path path = directory_ / "run_id";
      if (provenance_.id.empty() || (fs::exists(path) && parse_run_id(read_file(path, 4096)) == provenance_.id)) {
        return run_id(directory_);
      }
    } catch (const Error&) {  // not a file any more
    }
    tell(options_.observer.warning, fmt::format("{} does not hold the run's id {}: it is written again",
                                                (directory_ / "run_id").string(), provenance_.id));
    return provenance_.id;
  }

  void begin() {
    provenance_.id = known_id();
    provenance_.config = trainer_.config();
    provenance_.data = data_.identity;
    files_ = {.config = to_toml(trainer_.config()),
              .plan = to_toml(trainer_.plan()),
              .environment = environment_json(*engine_),
              .id = provenance_.id};
    // A checkpoint of these settings first: killed in between, the run is one that config.toml is an older copy of.
    if (!changes_.empty()) save();
    write_run_files(directory_, files_);
    open_metrics();
    history_.continue_from(trainer_.steps_done(), metrics_->take_earlier_losses());
    record_.emplace(trainer_, directory_, files_.environment,
                    [this](const std::string& text) { tell(options_.observer.warning, text); });
    record_localization();
    record_->document("settings", changes_json(provenance_.changes));
    for (const SettingChange& change : changes_) {
      note("setting", fmt::format("step {}: {}: {} → {}", change.step, change.key, change.before, change.after));
    }
    for (const std::string& line : taken_back_)
      note("taken back", fmt::format("step {}: {}", trainer_.steps_done(), line));
    record_->changes(trainer_.book());
    if (trainer_.steps_done() == 0) save();  // proves that the directory can hold one, and is there to rewind to
    verifier_.emplace(std::array<const TokenSource*, 2>{data_.train.get(), data_.valid.get()});
    if (options_.observer.started) options_.observer.started(trainer_, trainer_.steps_done());
  }

  void open_metrics() {
    metrics_.reset();
    metrics_.emplace(directory_ / "metrics.jsonl", trainer_.steps_done(),
                     [this](const std::string& text) { tell(options_.observer.warning, text); });
  }

  void resume() {
    const auto warn = [this](const std::string& text) { tell(options_.observer.warning, text); };
    const auto checkpoint = newest_usable(store_, warn);
    if (!checkpoint) return start_over();
    provenance_ = provenance_of(*checkpoint, directory_, trainer_.config());
    const auto step = static_cast<Size>(checkpoint->step());
    refuse_to_go_back(step);
    find_changes(step);
    trainer_.restore(*checkpoint);
    guard_.restore(guard_state(trainer_.notes()));
    alarms_.restore(trainer_.notes());
    if (trainer_.finished() && !changes_.empty()) return;
    for (const fs::path& aside : store_.set_aside_after(checkpoint->step())) {
      warn(fmt::format("the run goes on from step {}; what could not be used is kept as {}", step, aside.string()));
    }
    if (trainer_.change_plan_from(provenance_.config, "resumed with ")) {
      note("plan", fmt::format("step {}: the plan changed to {}", step, trainer_.config().precision.recipe));
    }
    for (const std::string& pattern : options_.take_back) {
      for (std::string& line : trainer_.take_back(pattern)) taken_back_.push_back(std::move(line));
    }
    tell(options_.observer.message,
         trainer_.finished() ? fmt::format("the run is complete at step {}: raise train.steps to go on", step)
                             : fmt::format("resumed at step {}", step));
  }

  // Nothing was saved yet, or somebody moved it away to begin anew. What is there of an earlier training stays.
  void start_over() {
    const std::vector<std::uint64_t> steps = store_.steps();
    if (!steps.empty()) {
      throw Error(fmt::format("{} holds {} checkpoint{}, the newest of step {}, and none can be used",
                              store_.directory().string(), steps.size(), steps.size() == 1 ? "" : "s", steps.back()),
                  fmt::format("restore them from a copy, or check their permissions; to start over on purpose, move {} "
                              "away and resume again",
                              store_.directory().string()));
    }
    tell(options_.observer.warning, directory_.string() + " has no checkpoint: the run starts over");
    if (!has_trained(directory_ / "metrics.jsonl")) return;
    keep_earlier("metrics.jsonl");
    keep_earlier("run_id");  // the store keeps what it recorded under the earlier one
  }

  void keep_earlier(const std::string& name) {
    const fs::path path = directory_ / name;
    if (!fs::exists(path)) return;
    fs::path kept;
    for (int i = 1; kept.empty() || fs::exists(kept); ++i) kept = directory_ / fmt::format("{}.before-{}", name, i);
    fs::rename(path, kept);
    tell(options_.observer.warning, fmt::format("{} of the earlier start is kept as {}", name, kept.string()));
  }

  void refuse_to_go_back(Size step) const {
    const Size steps = trainer_.config().train.steps;
    if (steps >= step) return;
    throw Error(fmt::format("the run has reached step {}: train.steps = {} lies behind it", step, steps),
                fmt::format("choose {} or more; `quaver eval --step` and `quaver sample --step` look at earlier "
                            "checkpoints",
                            step));
  }

  // What is asked for now and was not trained with. Data of another content is refused unless asked for.
  void find_changes(Size step) {
    changes_ = setting_changes(provenance_.config, trainer_.config(), step);
    const bool known = !provenance_.data.train_hash.empty();
    const std::string difference = known ? describe_difference(provenance_.data, data_.identity) : "";
    if (!difference.empty()) {
      if (options_.other_data == OtherData::refuse) {
        throw Error(fmt::format("{} was trained on other data: {}", directory_.string(), difference),
                    "set data.path to the data it was trained on, or add --allow-other-data to go on with this; the "
                    "run will record it");
      }
      changes_.push_back({step, "data", provenance_.data.train_hash, data_.identity.train_hash});
      changes_.back().after += fmt::format(" ({})", difference);
    }
    provenance_.changes.insert(provenance_.changes.end(), changes_.begin(), changes_.end());
  }

  // A finished run trains nothing more, so what is asked for changes nothing.
  RunResult leave_as_it_is() {
    std::string keys;
    for (const SettingChange& change : changes_) keys += (keys.empty() ? "" : ", ") + change.key;
    tell(options_.observer.warning,
         fmt::format("the run is complete at step {} and stays as it is, without {}: raise train.steps to go on",
                     trainer_.steps_done(), keys));
    return result(RunEnd::finished);
  }

  // The map that the plan came from is shown beside it.
  void record_localization() {
    const std::string& path = trainer_.config().precision.localization;
    if (path.empty()) return;
    try {
      record_->document("localization", read_localization_map(path));
    } catch (const Error& error) {
      note("notice",
           fmt::format("the dashboard will not show the map of sensitivities: {}; {}", error.what(), error.remedy()));
    }
  }

  // What reads data may fail for good: a checkpoint first, then the error.
  template <class Work>
  auto saving_on_failure(Work work) {
    try {
      return work();
    } catch (const Error& error) {
      note("failed", fmt::format("step {}: {}; {}", trainer_.steps_done(), error.what(), error.remedy()));
      save_surely();
      throw;
    }
  }

  void one_step() {
    StepExtras extras;
    const StepReport report = saving_on_failure([&] {
      verifier_->rethrow_if_failed();
      if (is_due(trainer_.config().train.shadow_every, trainer_.steps_done())) check_shadow(extras);
      return trainer_.step();
    });
    history_.add(report);
    const Config& config = trainer_.config();
    look_at(report, extras);
    switch (guard_.judge(report.loss, report.skipped)) {
      case Guard::Verdict::rewind:
        return rewind(report);
      case Guard::Verdict::give_up:
        return give_up(report);
      case Guard::Verdict::carry_on:
        break;
    }
    widen_overflowing_sites();
    const bool last = trainer_.finished();
    if (last || is_due(config.train.eval_every, report.step)) {
      try {
        extras.evaluation_seconds = timed([&] { extras.validation_loss = evaluate(report.step); });
      } catch (const Error&) {  // the step itself is done
        write_down(report, extras);
        throw;
      }
    }
    write_down(report, extras);
    if (options_.observer.stepped) options_.observer.stepped(report, extras.validation_loss);
    if (is_due(config.train.sample_every, report.step)) write_sample(report.step);
    if (!last && is_due(config.train.checkpoint_every, report.step)) {
      record_->checkpoint_time(report.step, timed([&] { save_or_warn(); }));
    }
  }

  // Before the step's checkpoint: what a checkpoint covers is on disk when it appears.
  void write_down(const StepReport& report, const StepExtras& extras) {
    metrics_->step(report, extras.validation_loss);
    record_->step(report, extras);
  }

  void check_shadow(StepExtras& extras) {
    extras.shadow_seconds = timed([&] { extras.shadow = trainer_.shadow_check(); });
  }

  // Figures of the sites into the store, and what the alarms say to them.
  void look_at(const StepReport& report, StepExtras& extras) {
    if (!report.sampled) {
      usual_seconds_ = usual_seconds_ == 0 ? report.seconds : 0.9 * usual_seconds_ + 0.1 * report.seconds;
      watch(report, nullptr);
      return record_->changes(trainer_.book());
    }
    const double looking = timed([&] {
      const NumericsSample sample = trainer_.numerics();
      record_->numerics(sample);
      watch(report, &sample);
    });
    record_->changes(trainer_.book());
    if (usual_seconds_ > 0) extras.statistics_seconds = std::max(0.0, report.seconds - usual_seconds_) + looking;
  }

  void watch(const StepReport& report, const NumericsSample* sample) {
    const StepMetrics figures{.step = static_cast<std::uint64_t>(report.step),
                              .loss = report.loss,
                              .gradient_norm = report.gradient_norm,
                              .learning_rate = report.learning_rate,
                              .loss_scale = report.loss_scale,
                              .max_logit = report.max_logit,
                              .embedding_rms = trainer_.embedding_rms(),
                              .skipped = report.skipped};
    const std::vector<Alert> raised = alarms_.watch(figures, trainer_.book(), sample);
    tell_of(raised, report.step);
    for (const Alert& alert : raised) record_->alert(alert, act_on(alert));
    for (const Alert& alert : alarms_.cleared()) record_->alert(alert, std::nullopt);
    if (sample == nullptr) return;
    for (const Alert& alert : alarms_.active()) record_->alert(alert, std::nullopt);
  }

  // What befalls many sites at once is told once: the dashboard lists them all.
  void tell_of(const std::vector<Alert>& raised, Size step) {
    std::map<AlertRule, std::vector<const Alert*>> by_rule;
    for (const Alert& alert : raised) by_rule[alert.rule].push_back(&alert);
    for (const auto& [rule, alerts] : by_rule) {
      const Alert& first = *alerts.front();
      const std::string others = alerts.size() > 1 ? fmt::format(" (and {} more)", alerts.size() - 1) : "";
      note("alert", fmt::format("step {}: {}: {}{}. To try: {}", step, name_of(first.severity), first.text, others,
                                remedy_of(first, trainer_.book())));
    }
  }

  // What was done about an alert, in words; nothing where nobody asked for it or nothing can be done.
  std::optional<std::string> act_on(const Alert& alert) {
    if (!trainer_.config().guard.act_on_alerts || alert.act == Act::none || alert.site.empty()) return std::nullopt;
    const std::string reason = fmt::format("alert {}", info(alert.rule).name);
    const Site& site = trainer_.book().entry(alert.site).site;
    std::string done;
    switch (alert.act) {
      case Act::none:
        return std::nullopt;
      case Act::widen_to_bf16: {
        const SiteSpec wide = make_recipe("bf16", trainer_.config().precision).of(site.role);
        if (site.spec == wide) return std::nullopt;  // for another alert
        trainer_.change_site(site.name, wide, reason);
        done = "stored in bf16 from now on";
        break;
      }
      case Act::gradient_to_e5m2: {
        SiteSpec spec = site.spec;
        spec.rows.format = spec.columns.format = Format::e5m2;
        trainer_.change_site(site.name, spec, reason);
        done = "stored in e5m2 from now on";
        break;
      }
      case Act::reset_history:
        trainer_.book().reset_history(site.name, static_cast<std::uint64_t>(trainer_.steps_done()), reason);
        done = "its history of largest values is reset";
        break;
    }
    note("act", fmt::format("step {}: {}: {} ({})", trainer_.steps_done(), alert.site, done, reason));
    return done;
  }

  std::optional<double> evaluate(Size step) {
    const auto loss = saving_on_failure([&] { return trainer_.evaluate(trainer_.config().train.eval_batches); });
    if (loss) history_.add_validation(step, *loss);
    return loss;
  }

  void note(const std::string& kind, const std::string& text) {
    if (metrics_) metrics_->event(trainer_.steps_done(), kind, text);  // open once the trainer is there
    if (record_) record_->event(trainer_.steps_done(), kind, text);
    tell(options_.observer.warning, text);
  }

  void widen_overflowing_sites() {
    const PrecisionConfig& precision = trainer_.config().precision;
    for (const std::string& site : guard_.sites_to_widen(trainer_.book())) {
      const Role role = trainer_.book().entry(site).site.role;
      const std::string reason = fmt::format("overflowed {} steps in a row", trainer_.config().guard.widen_after);
      trainer_.change_site(site, make_recipe("bf16", precision).of(role), reason);
      note("widened",
           fmt::format("step {}: {} {} and is stored in bf16 from now on", trainer_.steps_done(), site, reason));
    }
  }

  void rewind(const StepReport& report) {
    const auto checkpoint =
        newest_usable(store_, [this](const std::string& text) { tell(options_.observer.warning, text); });
    if (!checkpoint) return give_up(report);
    const int rewinds = guard_.state().rewinds;
    const Size lost = report.step - static_cast<Size>(checkpoint->step());
    trainer_.restore(*checkpoint);
    trainer_.skip_batches(lost * trainer_.config().train.accumulation);
    Guard::State state = guard_state(trainer_.notes());
    state.rewinds = rewinds;
    guard_.restore(state);
    guard_.rewound();
    alarms_.restore(trainer_.notes());
    open_metrics();
    record_->rewind(trainer_.steps_done(), trainer_.book());
    history_.rewind(trainer_.steps_done());
    note("rewound", fmt::format("the loss diverged at step {} ({:.3f}, running mean {:.3f}): back to step {}, past the "
                                "batches that led there",
                                report.step, report.loss, guard_.running_mean(), trainer_.steps_done()));
  }

  void give_up(const StepReport& report) {
    metrics_->step(report, std::nullopt);
    throw RunDiverged(
        fmt::format("the run diverged at step {} (loss {:.3f}) and {} rewinds did not help", report.step, report.loss,
                    guard_.state().rewinds),
        "lower optim.learning_rate, clip harder, or choose a wider recipe; the last good checkpoint is in " +
            store_.directory().string());
  }

  CheckpointContent content() {
    trainer_.notes() = notes_of(guard_.state());
    trainer_.notes().merge(alarms_.state());
    CheckpointContent content = trainer_.snapshot();
    content.run = to_json(provenance_);
    return content;
  }

  void save() {
    if (metrics_) metrics_->sync();
    if (record_) record_->flush();
    const auto saved = store_.save(static_cast<std::uint64_t>(trainer_.steps_done()), content());
    for (const std::string& warning : saved.warnings) tell(options_.observer.warning, warning);
  }

  // Once more after a failure, with the folder made anew where it was removed and without checkpoints that the new one
  // replaces.
  void save_or_repair() {
    try {
      save();
    } catch (const Error& error) {
      tell(options_.observer.warning, fmt::format("{}; {}. It is tried once more", error.what(), error.remedy()));
      try {
        repair();
      } catch (const Error&) {  // as the save itself: it says more of what was wanted
        throw error;
      }
      save();
    }
  }

  void repair() {
    if (!fs::exists(directory_ / "config.toml")) write_run_files(directory_, files_);
    if (metrics_) metrics_->put_back();
    store_.repair();
  }

  // A checkpoint that cannot be written loses nothing yet: the older ones stay good and the next one is tried.
  void save_or_warn() {
    if (guard_.state().bad_steps > 0) return;
    try {
      save_or_repair();
    } catch (const Error& error) {
      note("checkpoint", fmt::format("{}; {}. Training goes on", error.what(), error.remedy()));
    }
  }

  // The last one: in the run's folder, or in the fallback, or not before run.patience is over.
  void save_surely() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(trainer_.config().run.patience);
    while (true) {
      try {
        return save_or_repair();
      } catch (const Error& error) {
        note("checkpoint", fmt::format("{}; {}", error.what(), error.remedy()));
        save_to_fallback(error);
        if (std::chrono::steady_clock::now() >= end) throw;
      }
      tell(options_.observer.warning, "the last checkpoint is tried again every few seconds, here and there");
      std::this_thread::sleep_for(between_tries);
    }
  }

  // Throws the error that says where the checkpoint is, once it is there; returns where it cannot be written either.
  void save_to_fallback(const Error& cause) {
    fs::path folder;
    try {
      folder = make_fallback_folder(trainer_.config(), directory_, files_.id);
      write_run_files(folder, files_);
      CheckpointStore(folder, 1).save(static_cast<std::uint64_t>(trainer_.steps_done()), content());
    } catch (const Error& error) {
      return note("checkpoint", fmt::format("{}; {}", error.what(), error.remedy()));
    }
    note("checkpoint", fmt::format("step {} is saved in {}", trainer_.steps_done(), folder.string()));
    throw Error(fmt::format("{}; step {} is saved in {} instead", cause.what(), trainer_.steps_done(), folder.string()),
                fmt::format("{}; then copy {} to {}, or go on there: quaver train --resume {}", cause.remedy(),
                            (folder / "checkpoints").string(), directory_.string(), folder.string()));
  }

  void write_sample(Size step) {
    if (data_.tokenizer == nullptr) return;
    SampleOptions options;
    options.prompt = trainer_.config().train.sample_prompt;
    result_.sample = sample_text(trainer_, *data_.tokenizer, options);
    make_folder(directory_ / "samples");
    write_file_atomically(directory_ / "samples" / fmt::format("step-{:06}.txt", step), result_.sample + "\n");
    record_->sample(step, result_.sample);
  }

  RunResult interrupt() {
    save_surely();
    note("interrupted", fmt::format("stopped at step {}: continue with --resume", trainer_.steps_done()));
    record_->status(RunStatus::interrupted);
    return result(RunEnd::interrupted);
  }

  // A short run may end before its data is read through: a moment more, then it is said that it was not.
  void await_verification() {
    const auto end = std::chrono::steady_clock::now() + verification_wait;
    while (!verifier_->done() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    saving_on_failure([&] { verifier_->rethrow_if_failed(); });
    if (verifier_->done()) return;
    note("notice",
         fmt::format(
             "the run ended when {:.0f}% of its data were verified: `quaver data --verify` reads it all",
             100.0 * static_cast<double>(verifier_->bytes_verified()) / static_cast<double>(verifier_->bytes_total())));
  }

  RunResult finish() {
    await_verification();
    if (history_.is_empty()) evaluate(trainer_.steps_done());
    save_surely();
    write_file_atomically(directory_ / "scales.json", trainer_.book().to_json());
    write_sample(trainer_.steps_done());
    record_->status(RunStatus::finished);
    return result(RunEnd::finished);
  }

  RunResult result(RunEnd end) {
    result_.end = end;
    result_.directory = directory_;
    result_.steps = trainer_.steps_done();
    history_.write_to(result_);
    result_.best_loss = data_.best_loss;
    const TrainConfig& train = trainer_.config().train;
    const auto tokens = static_cast<double>(train.accumulation * train.batch * train.context);
    result_.tokens_per_second = result_.seconds_per_step > 0 ? tokens / result_.seconds_per_step : 0;
    result_.memory = trainer_.memory();
    result_.format_shares = trainer_.format_shares();
    return result_;
  }

  const RunOptions& options_;
  fs::path directory_;
  TrainingData data_;
  std::optional<MetricsLog> metrics_;
  std::unique_ptr<Engine> engine_;
  Trainer trainer_;
  CheckpointStore store_;
  Guard guard_;
  Alarms alarms_;
  std::optional<RunRecord> record_;
  RunHistory history_;
  RunResult result_;
  std::vector<std::string> taken_back_;
  Provenance provenance_;
  std::vector<SettingChange> changes_;  // of this resume
  RunFiles files_;
  double usual_seconds_ = 0;  // running mean of steps without full statistics
  std::optional<DataVerifier> verifier_;
};

}  // namespace

RunResult run_training(const Config& config, const RunOptions& options) {
  check(config, Purpose::training);
  if (options.start == RunStart::fresh) refuse_existing(run_directory(config));
  return Run(config, options).execute();
}

}  // namespace quaver
