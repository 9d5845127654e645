#include "train/metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/file_io.h"

namespace quaver {

using nlohmann::ordered_json;

namespace {

// JSON has no infinity: a figure that is not finite is null.
ordered_json number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

// The lines up to a step. A line that cannot be read is the torn end of a run that was killed.
std::string lines_up_to(const std::filesystem::path& path, Size last_step) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const ordered_json entry = ordered_json::parse(line, nullptr, false);
    if (!entry.is_object()) break;
    const auto step = entry.find("step");
    if (step != entry.end() && step->is_number_integer() && step->get<Size>() > last_step) break;
    kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsLog::MetricsLog(std::filesystem::path path, Size last_step) : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) write_file_atomically(path_, lines_up_to(path_, last_step));
  file_.open(path_, std::ios::app);
  if (!file_) throw system_error("cannot write", path_, errno);
}

// A log that cannot be written must not stop the training; the first failure is visible in the missing lines.
void MetricsLog::write(const std::string& line) {
  file_.clear();
  file_ << line << '\n';
  file_.flush();
}

void MetricsLog::step(const StepReport& report, std::optional<double> validation_loss) {
  ordered_json line{{"step", report.step},
                    {"loss", number(report.loss)},
                    {"learning_rate", report.learning_rate},
                    {"gradient_norm", number(report.gradient_norm)},
                    {"seconds", report.seconds},
                    {"tokens", report.tokens},
                    {"saturated", report.saturated},
                    {"underflowed", report.underflowed},
                    {"overflows", report.overflows},
                    {"update_ratio", number(report.update_ratio)},
                    {"unmoved_percent", number(report.unmoved_percent)},
                    {"max_logit", number(report.max_logit)}};
  if (report.loss_scale != 1) line["loss_scale"] = report.loss_scale;
  if (report.skipped) line["skipped"] = true;
  if (validation_loss) line["validation_loss"] = number(*validation_loss);
  write(line.dump());
}

void MetricsLog::event(Size step, const std::string& kind, const std::string& text) {
  write(ordered_json{{"step", step}, {"event", kind}, {"text", text}}.dump(-1, ' ', false,
                                                                           ordered_json::error_handler_t::replace));
}

}  // namespace quaver
