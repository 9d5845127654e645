#include "train/run_history.h"

#include <algorithm>
#include <utility>

namespace quaver {

namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void RunHistory::continue_from(Size last_step, std::vector<LossPoint> losses) {
  last_step_ = last_step;
  losses_ = std::move(losses);
  elapsed_ = losses_.empty() ? 0 : losses_.back().seconds;
}

void RunHistory::add(const StepReport& report) {
  last_step_ = report.step;
  elapsed_ += report.seconds;
  if (!report.skipped) losses_.push_back({report.step, report.loss, elapsed_});
  has_trained_ = has_trained_ || !report.skipped;
  if (report.skipped || report.overflows > 0) troubles_.push_back({report.step, report.skipped, report.overflows});
  seconds_.push_back(report.seconds);
}

void RunHistory::rewind(Size last_step) {
  const auto is_taken_back = [last_step](const auto& entry) { return entry.step > last_step; };
  last_step_ = std::min(last_step_, last_step);
  std::erase_if(losses_, is_taken_back);
  std::erase_if(validation_, is_taken_back);
  std::erase_if(troubles_, is_taken_back);
}

std::optional<double> RunHistory::final_train_loss() const {
  const Size before = last_step_ - final_steps(last_step_);
  double sum = 0;
  Size count = 0;
  for (const LossPoint& point : losses_) {
    if (point.step <= before) continue;
    sum += point.loss;
    ++count;
  }
  return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
}

void RunHistory::write_to(RunResult& result) const {
  result.losses = losses_;
  result.validation = validation_;
  result.final_train_loss = final_train_loss();
  if (!validation_.empty()) {  // the last step of a run is validated
    result.final_validation_loss = validation_.back().found.loss;
    result.final_validation_accuracy = validation_.back().found.accuracy;
  }
  result.seconds_per_step = median(seconds_);
  result.skipped = 0;
  result.overflows = 0;
  for (const Trouble& trouble : troubles_) {
    result.skipped += trouble.skipped ? 1 : 0;
    result.overflows += trouble.overflows;
  }
}

}  // namespace quaver
