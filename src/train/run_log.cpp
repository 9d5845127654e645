#include "train/run_log.h"

#include <fmt/format.h>

namespace quaver {

void RunLog::open(const Trainer& trainer, const std::string& environment_json) {
  trainer_ = &trainer;
  open_metrics();
  record_.emplace(trainer, directory_, environment_json, [this](const std::string& text) { warn(text); });
}

void RunLog::open_to_nobody(const Trainer& trainer) {
  trainer_ = &trainer;
  record_.emplace(trainer);
}

void RunLog::open_metrics() {
  metrics_.reset();
  metrics_.emplace(directory_ / "metrics.jsonl", trainer_->steps_done(),
                   [this](const std::string& text) { warn(text); });
}

std::vector<LossPoint> RunLog::take_earlier_losses() {
  return metrics_ ? metrics_->take_earlier_losses() : std::vector<LossPoint>{};
}

void RunLog::last_step(const StepReport& report) {
  if (metrics_) metrics_->step(report, std::nullopt);
}

void RunLog::rewind() {
  if (metrics_) open_metrics();
  record_->rewind(trainer_->steps_done(), trainer_->book());
}

void RunLog::message(const std::string& text) const {
  if (observer_.message) observer_.message(text);
}

void RunLog::warn(const std::string& text) const {
  if (observer_.warning) observer_.warning(text);
}

void RunLog::log_event(const std::string& kind, const std::string& text) {
  if (metrics_) metrics_->event(trainer_->steps_done(), kind, text);
  if (record_) record_->event(trainer_->steps_done(), kind, text);
}

void RunLog::note(const std::string& kind, const std::string& text) {
  log_event(kind, text);
  warn(text);
}

// The observer names the severity itself.
void RunLog::alert(Severity severity, const std::string& text) {
  const std::string step = fmt::format("step {}: ", trainer_->steps_done());
  log_event("alert", fmt::format("{}{}: {}", step, name_of(severity), text));
  const bool critical = severity == Severity::critical && observer_.critical;
  critical ? observer_.critical(step + text) : warn(step + text);
}

void RunLog::step(const StepReport& report, const StepExtras& extras) {
  if (metrics_) metrics_->step(report, extras.validation_loss);
  record_->step(report, extras);
}

void RunLog::flush() {
  if (metrics_) metrics_->sync();
  if (record_) record_->flush();
}

void RunLog::put_back() {
  if (metrics_) metrics_->put_back();
}

}  // namespace quaver
