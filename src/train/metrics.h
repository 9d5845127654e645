// Metrics of a run as JSON lines: one object a step, readable by anything, cut back when a run resumes from earlier.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "train/trainer.h"

namespace quaver {

class MetricsLog {
 public:
  // Opens for appending, after removing the lines of steps beyond `last_step`: a resumed run writes those again.
  MetricsLog(std::filesystem::path path, Size last_step);

  void step(const StepReport& report, std::optional<double> validation_loss);
  void event(Size step, const std::string& kind, const std::string& text);

 private:
  void write(const std::string& line);

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace quaver
