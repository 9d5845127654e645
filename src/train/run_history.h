// What a run has seen of its steps so far: losses, skipped steps, overflows, times. A rewind takes steps back.
#pragma once

#include "train/run.h"

namespace quaver {

class RunHistory {
 public:
  // A resumed run: the step it goes on from, and the losses up to there that its log kept.
  void continue_from(Size last_step, std::vector<LossPoint> losses);

  void add(const StepReport& report);
  void add_validation(Size step, const Validation& found) { validation_.push_back({step, found}); }

  // Forgets the steps behind this one; the time they took was spent all the same.
  void rewind(Size last_step);

  // Nothing was trained or validated in this session.
  bool is_empty() const { return !has_trained_ && validation_.empty(); }

  // The metrics of a result that follow from the steps.
  void write_to(RunResult& result) const;

 private:
  struct Trouble {
    Size step;
    bool skipped;
    std::uint64_t overflows;
  };

  std::optional<double> final_train_loss() const;

  Size last_step_ = 0;
  std::vector<LossPoint> losses_;  // those of earlier sessions first
  bool has_trained_ = false;       // in this session
  std::vector<ValidationPoint> validation_;
  std::vector<Trouble> troubles_;  // of the steps that had any
  std::vector<double> seconds_;    // of every step
  double elapsed_ = 0;             // their sum, and that of the sessions before
};

}  // namespace quaver
