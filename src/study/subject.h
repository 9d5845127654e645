// What a study looks at: a model with weights and data, and the plan the study is for. The weights are those of a run's
// checkpoint, or a fresh model's; Trainer::probe tries them under other plans.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/run.h"

namespace quaver {

struct Subject {
  Config config;  // as given: its recipe is what the study is for
  std::unique_ptr<OpenedRun> run;
  Plan plan;                                // of the config
  std::string source;                       // "runs/a at step 300", "tiny, seed 1": for reports
  Communicator* ranks = &single_process();  // that study it together, each with a trainer by itself

  Trainer& trainer() const { return *run->trainer; }
  Size tokens_per_batch() const { return trainer().config().train.batch * trainer().config().train.context; }
};

// A fresh model, whose trainer stores every site in bf16. A scale file that the config names is not read: it may be the
// one about to be written.
std::unique_ptr<Subject> open_subject(const Config& config, const Notice& notice, const Launch& launch = {});
std::unique_ptr<Subject> open_subject(const Config& config, TrainingData data, const Notice& notice,
                                      const Launch& launch = {});

// The weights of a run's checkpoint; further steps of its trainer are in the run's own recipe.
std::unique_ptr<Subject> open_subject(const std::filesystem::path& run, const std::vector<std::string>& flags,
                                      std::optional<Size> step, const Notice& notice, const Launch& launch = {});

// Thrown out of a study that was asked to stop.
struct StudyInterrupted {};

// Hears how far a study is, and may ask it to stop: a process by itself at once, ranks between two rounds of batches.
struct StudyProgress {
  std::function<void(Size done, Size total)> told = {};
  const std::atomic<bool>* stop = nullptr;
  Communicator* ranks = &single_process();

  void at(Size done, Size total) const;  // throws StudyInterrupted
  bool is_asked_to_stop() const { return stop != nullptr && *stop; }
};

// One spec per site, as Trainer::probe takes them.
std::vector<SiteSpec> specs_of(const Plan& plan);

// The plan with every site in the high-precision recipe.
Plan high_precision_plan(const Plan& plan, const PrecisionConfig& options);

// What a cast of a weight as `spec` says sees of it, along its rows and with the weight's own scale. (A probe casts
// weights unseen: it gathers statistics of the others.)
CastStatistics weight_statistics(Trainer& trainer, const std::string& site, const QuantSpec& spec);

// The training batch that a study's n-th measurement uses: those that the trainer comes to next.
Size next_batch(const Trainer& trainer, Size n);

}  // namespace quaver
