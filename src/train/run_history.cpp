#include "train/run_history.h"

#include <algorithm>
#include <numeric>

namespace quaver {

namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double mean_of_last_twentieth(const std::vector<LossPoint>& losses) {
  if (losses.empty()) return 0;
  const std::size_t count = std::max<std::size_t>(1, losses.size() / 20);
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0,
                         [](double sum, const LossPoint& point) { return sum + point.loss; }) /
         static_cast<double>(count);
}

}  // namespace

void RunHistory::add(const StepReport& report) {
  if (!report.skipped) losses_.push_back({report.step, report.loss});
  if (report.skipped || report.overflows > 0) troubles_.push_back({report.step, report.skipped, report.overflows});
  seconds_.push_back(report.seconds);
}

void RunHistory::rewind(Size last_step) {
  const auto is_taken_back = [last_step](const auto& entry) { return entry.step > last_step; };
  std::erase_if(losses_, is_taken_back);
  std::erase_if(validation_, is_taken_back);
  std::erase_if(troubles_, is_taken_back);
}

void RunHistory::write_to(RunResult& result) const {
  result.losses = losses_;
  result.validation = validation_;
  result.final_train_loss = mean_of_last_twentieth(losses_);
  if (!validation_.empty()) result.final_validation_loss = validation_.back().loss;
  result.seconds_per_step = median(seconds_);
  result.skipped = 0;
  result.overflows = 0;
  for (const Trouble& trouble : troubles_) {
    result.skipped += trouble.skipped ? 1 : 0;
    result.overflows += trouble.overflows;
  }
}

}  // namespace quaver
