// Metrics of a run as JSON lines: one object per step, readable by anything. A resumed run writes the lines of the
// steps after its checkpoint again; every other line stays.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/trainer.h"

namespace quaver {

// A log split into what a run that goes on from a step keeps and what cannot be read.
struct MetricsHistory {
  std::string kept;               // lines of steps up to the last one, and events
  std::string unreadable;         // lines that are no JSON object: a torn write, a damaged disk
  std::vector<LossPoint> losses;  // of the kept steps that were not skipped
  Size lines = 0;
  Size unreadable_lines = 0;
  Size first_unreadable = 0;  // its number, from 1
};
MetricsHistory read_metrics(std::string_view text, Size last_step);

// Whether a log has more than notices from before the first step.
bool has_trained(const std::filesystem::path& path);

// The line of a step, without its end.
std::string metrics_line(const StepReport& report, std::optional<double> validation_loss);

class MetricsLog {
 public:
  using Warning = std::function<void(const std::string&)>;

  // Opens for appending, after removing the lines of steps beyond `last_step`. Lines that cannot be read go to
  // metrics.unreadable.txt beside it, with a warning.
  MetricsLog(std::filesystem::path path, Size last_step, Warning warning);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // The losses of the lines that were there already.
  std::vector<LossPoint> take_earlier_losses() { return std::exchange(earlier_losses_, {}); }

  // Never throw: a log that cannot be written must not stop the training. What the disk does not take waits in memory
  // and is written as soon as it does.
  void step(const StepReport& report, std::optional<double> validation_loss);
  void event(Size step, const std::string& kind, const std::string& text);

  // Makes everything so far durable. False: some of it still waits.
  bool sync();

  // Writes the log anew where its file was removed, from the one that is still open.
  void put_back();

 private:
  void write(const std::string& line);
  void flush();

  std::filesystem::path path_;
  Warning warning_;
  std::vector<LossPoint> earlier_losses_;
  int descriptor_ = -1;
  std::string pending_;  // what the disk has not taken yet
  bool failing_ = false;
};

}  // namespace quaver
