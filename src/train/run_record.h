// A run as the store of its folder records it: describes the run, and turns steps, samples, changes of the scale book
// and alerts into records. What cannot be recorded never stops the training.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "engine/nvml.h"
#include "numerics/alerts.h"
#include "store/recorder.h"
#include "train/trainer.h"

namespace quaver {

// Seconds of a step that lie outside Trainer::step().
struct StepExtras {
  std::optional<double> validation_loss;
  double evaluation_seconds = 0;
  double shadow_seconds = 0;
  double statistics_seconds = 0;  // what a sampled step took longer than the others
  std::optional<GradientAgreement> shadow;
};

// <runs folder>/quaver.db beside the run, or what run.store says; empty: not recorded.
std::filesystem::path store_of(const Config& config, const std::filesystem::path& directory);

// The id under which the store knows the run in this directory; made the first time it is asked for, and anew where the
// file that keeps it says something else. Error where that is no file that can be read.
std::string run_id(const std::filesystem::path& directory);

// The id that the text of such a file begins with.
std::optional<std::string> parse_run_id(std::string_view text);

class RunRecord {
 public:
  explicit RunRecord(const Trainer& trainer) : trainer_(trainer) {}  // not recorded
  RunRecord(const Trainer& trainer, const std::filesystem::path& directory, const std::string& environment_json,
            std::function<void(const std::string&)> warning);

  void step(const StepReport& report, const StepExtras& extras);
  void checkpoint_time(Size step, double seconds);  // of a checkpoint after the step, which is recorded before it
  void numerics(const NumericsSample& sample);
  void changes(const ScaleBook& book);  // those since the last call
  void alert(const Alert& alert, const std::optional<std::string>& act);
  void event(Size step, const std::string& kind, const std::string& text);
  void sample(Size step, const std::string& text);
  void document(const std::string& kind, const std::string& json);
  void ranks(Communicator& ranks, const std::vector<MemoryUse>& memory);  // of each
  void status(RunStatus status);
  void rewind(Size last_step, const ScaleBook& book);
  void flush();  // waits until all of this is in the store, so that a checkpoint covers no more than the store has

 private:
  const Trainer& trainer_;
  std::unique_ptr<RunRecorder> recorder_;    // null: not recorded
  std::vector<std::size_t> changes_seen_;    // of each entry of the book
  double narrow_share_ = 0;                  // of the matrix products' operations in 8 bits and fewer
  std::map<std::string, std::string> acts_;  // by rule, site and first step of an alert
  GpuMeter meter_;
};

}  // namespace quaver
