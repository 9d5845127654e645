#include "train/run.h"

#include <array>
#include <chrono>
#include <fmt/format.h>
#include <thread>

#include "config/check.h"
#include "config/dump.h"
#include "data/verifier.h"
#include "io/file_io.h"
#include "quaver/error.h"
#include "train/checkpoint_writer.h"
#include "train/engine_choice.h"
#include "train/environment.h"
#include "train/localization_map.h"
#include "train/resume.h"
#include "train/run_history.h"
#include "train/run_log.h"
#include "train/run_watch.h"
#include "train/sampling.h"
#include "train/stopwatch.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds verification_wait{5};

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
        log_(options.observer, directory_),
        data_(open_training_data(config.data, config.train.seed,
                                 config.train.context > 0 ? config.train.context : config.model.context)),
        engine_(make_engine(config, [this](const std::string& text) { log_.note("notice", text); })),
        trainer_(config, data_, *engine_, [this](const std::string& text) { log_.note("notice", text); }),
        watch_(trainer_, log_),
        checkpoints_(trainer_, watch_, log_, directory_) {}

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
      log_.record().status(RunStatus::failed);
      throw;
    }
  }

 private:
  void begin() {
    provenance_.id = known_id(directory_, provenance_.id, log_);
    provenance_.config = trainer_.config();
    provenance_.data = data_.identity;
    checkpoints_.describe_run(provenance_, {.config = to_toml(trainer_.config()),
                                            .plan = to_toml(trainer_.plan()),
                                            .environment = environment_json(*engine_),
                                            .id = provenance_.id});
    // A checkpoint of these settings first: killed in between, the run is one that config.toml is an older copy of.
    if (!changes_.empty()) checkpoints_.save();
    write_run_files(directory_, checkpoints_.files());
    log_.open(trainer_, checkpoints_.files().environment);
    history_.continue_from(trainer_.steps_done(), log_.metrics().take_earlier_losses());
    record_localization();
    record_changes();
    if (trainer_.steps_done() == 0) checkpoints_.save();  // proves that the folder can hold one; there to rewind to
    verifier_.emplace(std::array<const TokenSource*, 2>{data_.train.get(), data_.valid.get()});
    if (options_.observer.started) options_.observer.started(trainer_, trainer_.steps_done());
  }

  // The map that the plan came from is shown beside it.
  void record_localization() {
    const std::string& path = trainer_.config().precision.localization;
    if (path.empty()) return;
    try {
      log_.record().document("localization", read_localization_map(path));
    } catch (const Error& error) {
      log_.note("notice", fmt::format("the dashboard will not show the map of sensitivities: {}; {}", error.what(),
                                      error.remedy()));
    }
  }

  void record_changes() {
    log_.record().document("settings", changes_json(provenance_.changes));
    for (const SettingChange& change : changes_) {
      log_.note("setting", fmt::format("step {}: {}: {} → {}", change.step, change.key, change.before, change.after));
    }
    for (const std::string& line : taken_back_) {
      log_.note("taken back", fmt::format("step {}: {}", trainer_.steps_done(), line));
    }
    log_.record().changes(trainer_.book());
  }

  std::optional<Checkpoint> newest_checkpoint() {
    return newest_usable(checkpoints_.store(), [this](const std::string& text) { log_.warn(text); });
  }

  void resume() {
    const auto checkpoint = newest_checkpoint();
    if (!checkpoint) return start_over(directory_, checkpoints_.store(), log_);
    provenance_ = provenance_of(*checkpoint, directory_, trainer_.config());
    const auto step = static_cast<Size>(checkpoint->step());
    refuse_to_go_back(trainer_.config(), step);
    changes_ = changes_on_resume({.directory = directory_,
                                  .trained = provenance_,
                                  .config = trainer_.config(),
                                  .data = data_.identity,
                                  .step = step,
                                  .other_data = options_.other_data});
    provenance_.changes.insert(provenance_.changes.end(), changes_.begin(), changes_.end());
    watch_.restore(trainer_.restore(*checkpoint));
    if (trainer_.finished() && !changes_.empty()) return;
    for (const fs::path& aside : checkpoints_.store().set_aside_after(checkpoint->step())) {
      log_.warn(
          fmt::format("the run goes on from step {}; what could not be used is kept as {}", step, aside.string()));
    }
    if (trainer_.change_plan_from(provenance_.config, "resumed with ")) {
      log_.note("plan", fmt::format("step {}: the plan changed to {}", step, trainer_.config().precision.recipe));
    }
    for (const std::string& pattern : options_.take_back) {
      for (std::string& line : trainer_.take_back(pattern)) taken_back_.push_back(std::move(line));
    }
    log_.message(trainer_.finished() ? fmt::format("the run is complete at step {}: raise train.steps to go on", step)
                                     : fmt::format("resumed at step {}", step));
  }

  // A finished run trains nothing more, so what is asked for changes nothing.
  RunResult leave_as_it_is() {
    std::string keys;
    for (const SettingChange& change : changes_) keys += (keys.empty() ? "" : ", ") + change.key;
    log_.warn(fmt::format("the run is complete at step {} and stays as it is, without {}: raise train.steps to go on",
                          trainer_.steps_done(), keys));
    return result(RunEnd::finished);
  }

  // What reads data may fail for good: a checkpoint first, then the error.
  template <class Work>
  auto saving_on_failure(Work work) {
    try {
      return work();
    } catch (const Error& error) {
      log_.note("failed", fmt::format("step {}: {}; {}", trainer_.steps_done(), error.what(), error.remedy()));
      checkpoints_.save_surely();
      throw;
    }
  }

  void one_step() {
    StepExtras extras;
    StepReport report = saving_on_failure([&] {
      verifier_->rethrow_if_failed();
      if (is_due(trainer_.config().train.shadow_every, trainer_.steps_done())) check_shadow(extras);
      return trainer_.step();
    });
    history_.add(report);
    watch_.look_at(report, extras);
    switch (watch_.judge(report)) {
      case Guard::Verdict::rewind:
        return rewind(report);
      case Guard::Verdict::give_up:
        return give_up(report);
      case Guard::Verdict::carry_on:
        break;
    }
    watch_.widen_overflowing_sites();
    end_step(report, extras);
  }

  // Evaluation, log, sample and checkpoint, as they are due.
  void end_step(StepReport& report, StepExtras& extras) {
    const TrainConfig& train = trainer_.config().train;
    const bool last = trainer_.finished();
    if (last || is_due(train.eval_every, report.step)) {
      try {
        extras.evaluation_seconds = seconds_of([&] { evaluate(report, extras); });
      } catch (const Error&) {  // the step itself is done
        log_.step(report, extras);
        throw;
      }
    }
    log_.step(report, extras);
    if (options_.observer.stepped) options_.observer.stepped(report, extras.validation_loss);
    if (is_due(train.sample_every, report.step)) write_sample(report.step);
    if (!last && is_due(train.checkpoint_every, report.step)) {
      log_.record().checkpoint_time(report.step, seconds_of([&] { checkpoints_.save_or_warn(); }));
    }
  }

  void check_shadow(StepExtras& extras) {
    extras.shadow_seconds = seconds_of([&] { extras.shadow = trainer_.shadow_check(); });
  }

  void evaluate(StepReport& report, StepExtras& extras) {
    const auto found = saving_on_failure([&] { return trainer_.validate(trainer_.config().train.eval_batches); });
    if (!found) return;
    history_.add_validation(report.step, *found);
    extras.validation_loss = found->loss;
    report.validation_accuracy = found->accuracy;
  }

  void rewind(const StepReport& report) {
    const auto checkpoint = newest_checkpoint();
    if (!checkpoint) return give_up(report);
    const Size lost = report.step - static_cast<Size>(checkpoint->step());
    watch_.rewind_to(trainer_.restore(*checkpoint));
    trainer_.skip_batches(lost * trainer_.config().train.accumulation);
    log_.rewind();
    history_.rewind(trainer_.steps_done());
    log_.note("rewound",
              fmt::format("the loss diverged at step {} ({:.3f}, running mean {:.3f}): back to step {}, past the "
                          "batches that led there",
                          report.step, report.loss, watch_.mean_loss(), trainer_.steps_done()));
  }

  void give_up(const StepReport& report) {
    log_.metrics().step(report, std::nullopt);
    throw RunDiverged(
        fmt::format("the run diverged at step {} (loss {:.3f}) and {} rewinds did not help", report.step, report.loss,
                    watch_.rewinds()),
        "lower optim.learning_rate, clip harder, or choose a recipe of higher precision; the last good checkpoint is "
        "in " +
            checkpoints_.store().directory().string());
  }

  void write_sample(Size step) {
    if (data_.tokenizer == nullptr) return;
    SampleOptions options;
    options.prompt = trainer_.config().train.sample_prompt;
    result_.sample = sample_text(trainer_, *data_.tokenizer, options);
    make_folder(directory_ / "samples");
    write_file_atomically(directory_ / "samples" / fmt::format("step-{:06}.txt", step), result_.sample + "\n");
    log_.record().sample(step, result_.sample);
  }

  RunResult interrupt() {
    checkpoints_.save_surely();
    log_.note("interrupted", fmt::format("stopped at step {}: continue with --resume", trainer_.steps_done()));
    log_.record().status(RunStatus::interrupted);
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
    const double share =
        static_cast<double>(verifier_->bytes_verified()) / static_cast<double>(verifier_->bytes_total());
    log_.note("notice",
              fmt::format("the run ended when {:.0f}% of its data were verified: `quaver data --verify` reads it all",
                          100.0 * share));
  }

  RunResult finish() {
    await_verification();
    if (history_.is_empty()) {
      StepReport report;
      report.step = trainer_.steps_done();
      StepExtras extras;
      evaluate(report, extras);
    }
    checkpoints_.save_surely();
    write_file_atomically(directory_ / "scales.json", trainer_.book().to_json());
    write_sample(trainer_.steps_done());
    log_.record().status(RunStatus::finished);
    return result(RunEnd::finished);
  }

  RunResult result(RunEnd end) {
    result_.end = end;
    result_.directory = directory_;
    result_.steps = trainer_.steps_done();
    history_.write_to(result_);
    result_.best_loss = data_.best_loss;
    result_.best_accuracy = data_.best_accuracy;
    const TrainConfig& train = trainer_.config().train;
    const auto tokens = static_cast<double>(train.accumulation * train.batch * train.context);
    result_.tokens_per_second = result_.seconds_per_step > 0 ? tokens / result_.seconds_per_step : 0;
    result_.memory = trainer_.memory();
    result_.format_shares = trainer_.format_shares();
    return result_;
  }

  const RunOptions& options_;
  fs::path directory_;
  RunLog log_;
  TrainingData data_;
  std::unique_ptr<Engine> engine_;
  Trainer trainer_;
  RunWatch watch_;
  CheckpointWriter checkpoints_;
  RunHistory history_;
  RunResult result_;
  Provenance provenance_;
  std::vector<SettingChange> changes_;   // of this resume
  std::vector<std::string> taken_back_;  // by this resume, one line per site
  std::optional<DataVerifier> verifier_;
};

}  // namespace

RunResult run_training(const Config& config, const RunOptions& options) {
  check(config, Purpose::training);
  if (options.start == RunStart::fresh) refuse_existing(run_directory(config));
  return Run(config, options).execute();
}

}  // namespace quaver
