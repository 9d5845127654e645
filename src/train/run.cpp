#include "train/run.h"

#include <array>
#include <chrono>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <thread>

#include "comm/agreement.h"
#include "config/check.h"
#include "config/dump.h"
#include "config/load.h"
#include "data/dataset.h"
#include "data/tokenizer_files.h"
#include "data/verifier.h"
#include "interop/hf_export.h"
#include "io/file_io.h"
#include "quaver/error.h"
#include "train/checkpoint_writer.h"
#include "train/engine_choice.h"
#include "train/environment.h"
#include "train/faster_layers.h"
#include "train/localization_map.h"
#include "train/rank_agreement.h"
#include "train/resolved_config.h"
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
constexpr std::chrono::seconds shared_folder_wait{5};

bool is_due(Size every, Size step) { return every > 0 && step % every == 0; }

void refuse_existing(const fs::path& directory) {
  if (!fs::exists(directory / "config.toml")) return;
  throw Error(directory.string() + " already holds a run",
              "add --resume to continue it, or choose another run.name or run.dir");
}

// Whether the folder holds this run. Files of other machines may take a moment to appear.
bool shows_run(const fs::path& directory, const std::string& id) {
  const auto end = std::chrono::steady_clock::now() + shared_folder_wait;
  while (true) {
    try {
      if (parse_run_id(read_file(directory / "run_id", 4096)) == id) return true;
    } catch (const Error&) {  // not there yet
    }
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// What a run needs before its ranks are connected.
struct RunBase {
  RunBase(const Config& config, const RunOptions& options)
      : directory(run_directory(config)),
        log(options.observer, directory),
        data(open_training_data(config.data, config.train.seed,
                                config.train.context > 0 ? config.train.context : config.model.context)),
        engine(make_engine(
            config, [this](const std::string& text) { log.note("notice", text); }, options.launch)) {
    for (const std::string& note : data.notes) log.note("notice", note);
  }

  fs::path directory;
  RunLog log;
  TrainingData data;
  std::unique_ptr<Engine> engine;
};

// One run from its start to its end. Its ranks have one each and do the same; the first one writes and speaks.
class Run {
 public:
  Run(const Config& config, const RunOptions& options, RunBase& base, Communicator& ranks)
      : options_(options),
        ranks_(ranks),
        directory_(base.directory),
        log_(base.log),
        data_(base.data),
        engine_(*base.engine),
        trainer_(
            config, data_, engine_, [this](const std::string& text) { log_.note("notice", text); }, ranks_),
        watch_(trainer_, log_),
        checkpoints_(trainer_, watch_, log_, directory_) {}

  RunResult execute() {
    refuse_other_ranks();
    if (options_.start == RunStart::resume) resume();  // before anything is written: it may be refused
    if (is_new_pretrained()) on_all_ranks(ranks_, [this] { trainer_.load_pretrained(); });
    if (trainer_.finished() && !changes_.empty()) return leave_as_it_is();
    begin();
    try {
      while (!trainer_.finished()) {
        if (any_of_ranks(ranks_, options_.stop != nullptr && *options_.stop)) return interrupt();
        one_step();
      }
      return finish();
    } catch (...) {
      log_.record().status(RunStatus::failed);
      throw;
    }
  }

 private:
  bool leads() const { return ranks_.is_first(); }
  // No checkpoint was read; one of step 0 holds the weights already.
  bool is_new_pretrained() const { return !trainer_.config().model.from.empty() && !restored_; }

  void refuse_other_ranks() {
    require_same_program(ranks_, trainer_.config());
    require_same(ranks_, {"training data", data_.identity.train_hash, "copy the same data to every machine"});
  }

  void begin() {
    on_all_ranks(ranks_, [this] {
      if (leads()) describe_run();
    });
    // A checkpoint of these settings first: killed in between, the run is one that config.toml is an older copy of.
    if (!changes_.empty()) {
      refuse_other_folder();
      checkpoints_.save();
    }
    on_all_ranks(ranks_, [this] { leads() ? open_run() : log_.open_to_nobody(trainer_); });
    if (!ranks_.is_alone()) log_.record().ranks(ranks_, gathered(ranks_, trainer_.memory()));
    if (changes_.empty()) refuse_other_folder();
    if (trainer_.steps_done() == 0) checkpoints_.save();  // proves that the folder can hold one; there to rewind to
    trainer_.agree_on_kernels();
    history_.continue_from(trainer_.steps_done(), log_.take_earlier_losses());
    if (leads() && options_.observer.started) options_.observer.started(trainer_, trainer_.steps_done());
  }

  // Ranks resume and rewind from the checkpoints that the first one writes.
  void refuse_other_folder() {
    const std::string id = gathered(ranks_, provenance_.id).front();
    on_all_ranks(ranks_, [&] {
      if (leads() || shows_run(directory_, id)) return;
      throw Error(directory_.string() + " is not the folder that rank 0 writes the run to",
                  "set run.dir to a folder that all machines share");
    });
  }

  void describe_run() {
    provenance_.id = known_id(directory_, provenance_.id, log_);
    provenance_.config = trainer_.config();
    provenance_.data = data_.identity;
    checkpoints_.describe_run(provenance_, {.config = to_toml(trainer_.config()),
                                            .plan = to_toml(trainer_.plan()),
                                            .environment = environment_json(engine_, ranks_.size()),
                                            .id = provenance_.id});
  }

  void open_run() {
    write_run_files(directory_, checkpoints_.files());
    if (is_new_pretrained()) keep_hf_files(trainer_.config().model.from, directory_ / pretrained_folder);
    log_.open(trainer_, checkpoints_.files().environment);
    keep_tokenizer();
    record_localization();
    record_best();
    record_changes();
    verifier_.emplace(std::array<const TokenSource*, 2>{data_.train.get(), data_.valid.get()});
  }

  // A folder that another run left here is written again.
  void keep_tokenizer() {
    const fs::path own = directory_ / tokenizer_folder;
    if (data_.tokenizer == nullptr || (restored_ && fs::exists(own))) return;
    const fs::path kept = directory_ / pretrained_folder / tokenizer_file_name;
    if (fs::exists(kept)) {
      const std::string difference = difference_from(kept);
      if (difference.empty() && !fs::exists(own)) return;
      if (!difference.empty()) log_.note("notice", difference);
    }
    write_tokenizer_files(*data_.tokenizer, trainer_.config().model.context, own);
  }

  std::string difference_from(const fs::path& model_tokenizer) const {
    constexpr const char* consequence = "token ids may mean something else to the model";
    try {
      if (same_vocabulary(*load_tokenizer(model_tokenizer), *data_.tokenizer)) return "";
      return fmt::format("the model's own tokenizer is not the data's: {}", consequence);
    } catch (const Error& error) {
      return fmt::format("the model's own tokenizer cannot be compared with the data's ({}): {}", error.what(),
                         consequence);
    }
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

  // What a perfect model would reach is drawn beside what this one does.
  void record_best() {
    nlohmann::ordered_json best = nlohmann::ordered_json::object();
    if (data_.best_loss) best["loss"] = *data_.best_loss;
    if (data_.best_accuracy) best["accuracy"] = *data_.best_accuracy;
    if (!best.empty()) log_.record().document("best", best.dump());
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

  void resume() {
    const auto checkpoint = checkpoints_.newest_usable();
    on_all_ranks(ranks_, [&] {
      if (checkpoint) return resume_from(*checkpoint);
      if (leads()) start_over(directory_, checkpoints_.store(), log_);
    });
  }

  void resume_from(const Checkpoint& checkpoint) {
    provenance_ = provenance_of(checkpoint, directory_, trainer_.config());
    const auto step = static_cast<Size>(checkpoint.step());
    refuse_to_go_back(trainer_.config(), step);
    changes_ = changes_on_resume({.directory = directory_,
                                  .trained = provenance_,
                                  .config = trainer_.config(),
                                  .data = data_.identity,
                                  .step = step,
                                  .other_data = options_.other_data});
    provenance_.changes.insert(provenance_.changes.end(), changes_.begin(), changes_.end());
    watch_.restore(trainer_.restore(checkpoint));
    restored_ = true;
    if (trainer_.finished() && !changes_.empty()) return;
    if (leads()) set_aside_after(step);
    if (const auto recipe = trainer_.change_plan_from(provenance_.config, "resumed with ")) {
      log_.note("plan", fmt::format("step {}: the plan changed to {}", step, *recipe));
    }
    for (const std::string& pattern : options_.take_back) {
      for (std::string& line : trainer_.take_back(pattern)) taken_back_.push_back(std::move(line));
    }
    log_.message(trainer_.finished() ? fmt::format("the run is complete at step {}: raise train.steps to go on", step)
                                     : fmt::format("resumed at step {}", step));
  }

  void set_aside_after(Size step) {
    for (const fs::path& aside : checkpoints_.store().set_aside_after(static_cast<std::uint64_t>(step))) {
      log_.warn(
          fmt::format("the run goes on from step {}; what could not be used is kept as {}", step, aside.string()));
    }
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
      const bool together = ranks_.is_alone() || dynamic_cast<const AgreedError*>(&error) != nullptr;
      if (together) checkpoints_.save_surely();
      throw;
    }
  }

  void one_step() {
    StepExtras extras;
    StepReport report = saving_on_failure([&] {
      on_all_ranks(ranks_, [this] {
        if (verifier_) verifier_->rethrow_if_failed();
      });
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
    if (leads() && options_.observer.stepped) options_.observer.stepped(report, extras.validation_loss);
    if (is_due(train.sample_every, report.step)) write_sample(report.step);
    if (last || is_due(train.checkpoint_every, report.step)) trainer_.require_same_weights();
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
    const auto checkpoint = checkpoints_.newest_usable();
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
    log_.last_step(report);
    throw RunDiverged(
        fmt::format("the run diverged at step {} (loss {:.3f}) and {} rewinds did not help", report.step, report.loss,
                    watch_.rewinds()),
        "lower optim.learning_rate, clip harder, or choose a recipe of higher precision; the last good checkpoint is "
        "in " +
            (directory_ / "checkpoints").string());
  }

  void write_sample(Size step) {
    const bool together = trainer_.model().parameters().place().has(ShardMode::weights);
    if (data_.tokenizer == nullptr || (!leads() && !together)) return;
    SampleOptions options;
    options.prompt.text = trainer_.config().train.sample_prompt;
    result_.sample = sample_text(trainer_, *data_.tokenizer, options);
    if (!leads()) return;
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
    if (verifier_) await_verification();
    if (history_.is_empty()) {
      StepReport report;
      report.step = trainer_.steps_done();
      StepExtras extras;
      evaluate(report, extras);
    }
    checkpoints_.save_surely();
    if (leads()) write_file_atomically(directory_ / "scales.json", trainer_.book().to_json());
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
    result_.tokens_per_step = train.accumulation * train.batch * train.context;
    const auto tokens = static_cast<double>(result_.tokens_per_step);
    result_.tokens_per_second = result_.seconds_per_step > 0 ? tokens / result_.seconds_per_step : 0;
    result_.memory = trainer_.memory();
    result_.format_shares = trainer_.format_shares();
    return result_;
  }

  const RunOptions& options_;
  Communicator& ranks_;
  const fs::path& directory_;
  RunLog& log_;
  TrainingData& data_;
  Engine& engine_;
  Trainer trainer_;
  RunWatch watch_;
  CheckpointWriter checkpoints_;
  RunHistory history_;
  bool restored_ = false;  // from a checkpoint
  RunResult result_;
  Provenance provenance_;
  std::vector<SettingChange> changes_;   // of this resume
  std::vector<std::string> taken_back_;  // by this resume, one line per site
  std::optional<DataVerifier> verifier_;
};

// A benchmark's file needs to be on the first rank's machine alone: the others are told what it says.
Config with_speeds_of_first(Config config, const RunBase& base, Communicator& ranks) {
  if (config.precision.only_where_faster.empty()) return config;
  Config told;
  on_all_ranks(ranks, [&] {
    if (!ranks.is_first()) return;
    const Config resolved = resolve_layer_speeds(resolve_shape(config, base.data.shape()), base.engine.get());
    told.precision.layer_speeds = resolved.precision.layer_speeds;
  });
  const ConfigText text{"what the first rank decided", gathered(ranks, to_toml(told)).front()};
  config.precision.layer_speeds = load_config({.files = {}, .texts = {text}, .flags = {}}).precision.layer_speeds;
  return config;
}

}  // namespace

RunResult run_training(const Config& config, const RunOptions& options) {
  Communicator& hosts = options.ranks != nullptr ? *options.ranks : single_process();
  std::optional<RunBase> base;
  on_all_ranks(hosts, [&] {
    check(config, Purpose::training);
    if (options.start == RunStart::fresh && hosts.is_first()) refuse_existing(run_directory(config));
    base.emplace(config, options);
  });
  const Config decided = with_speeds_of_first(config, *base, hosts);
  require_same(hosts, {"device", base->engine->name(), "the same bits need the same kind of device on every rank"});
  const std::unique_ptr<Communicator> devices = connect_devices(hosts, *base->engine, options.launch);
  std::optional<Run> run;
  on_all_ranks(hosts, [&] { run.emplace(decided, options, *base, devices ? *devices : hosts); });
  return run->execute();
}

}  // namespace quaver
