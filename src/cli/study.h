// What the verbs that study a model share: opening it, and telling how far they are.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "study/subject.h"

namespace quaver {

// The run that --run names, or a fresh model of the config, the same on all ranks; the first one writes notices to
// standard error. Collective.
std::unique_ptr<Subject> open_subject(const StudyArguments& arguments, Communicator& ranks, const Launch& launch);

// As asked for; by default 20 for a fresh model, whose first gradients are unlike all later ones, and none for a
// trained one.
Size warmup_steps(const StudyArguments& arguments, const Subject& subject);

// Whether the weights are random.
bool is_fresh(const StudyArguments& arguments, const Subject& subject);

// One paragraph before the study, for people.
void introduce(const StudyArguments& arguments, const std::string& text);

// A line that redraws itself on a terminal, a line every tenth of the way elsewhere, nothing for programs
// and on other ranks than the first.
class StudyBar {
 public:
  StudyBar(std::string what, Output output, Communicator& ranks = single_process());
  ~StudyBar();
  StudyBar(const StudyBar&) = delete;
  StudyBar& operator=(const StudyBar&) = delete;

  void show(Size done, Size total);
  StudyProgress progress(const Interrupt& interrupt) {
    return {[this](Size done, Size total) { show(done, total); }, interrupt.flag(), &ranks_};
  }

 private:
  std::string what_;
  ProgressOptions options_;
  Communicator& ranks_;
  double started_;
  double drawn_ = 0;
  Size tenths_ = -1;
  bool is_drawn_ = false;
};

// "3.2e-05", "–" where it is not finite.
std::string shown(double value, const char* format = "{:.4g}");

}  // namespace quaver
