// Everything a run says: metrics.jsonl, the records of its store, and the messages to whoever watches it. Of the ranks
// of a run one speaks; the others say the same to nobody.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/metrics.h"
#include "train/run.h"
#include "train/run_record.h"

namespace quaver {

class RunLog {
 public:
  RunLog(const RunObserver& observer, std::filesystem::path directory)
      : observer_(observer), directory_(std::move(directory)) {}

  // From here on notes reach metrics.jsonl and the store as well. The trainer must outlive the notes.
  void open(const Trainer& trainer, const std::string& environment_json);
  void open_to_nobody(const Trainer& trainer);

  // After the trainer went back to an earlier step: what was logged of the steps behind it is gone.
  void rewind();

  void message(const std::string& text) const;  // to the observer alone
  void warn(const std::string& text) const;     // to the observer alone
  void note(const std::string& kind, const std::string& text);
  void alert(Severity severity, const std::string& text);

  // To be called before the step's checkpoint: what a checkpoint covers is on disk when it appears.
  void step(const StepReport& report, const StepExtras& extras);

  // Makes all of this durable; does nothing before open().
  void flush();

  // Writes metrics.jsonl anew where it was removed.
  void put_back();

  // The losses that an earlier session of the run logged.
  std::vector<LossPoint> take_earlier_losses();
  // A step after which the run is given up: it has no place in the store.
  void last_step(const StepReport& report);
  RunRecord& record() { return *record_; }

 private:
  void open_metrics();
  void log_event(const std::string& kind, const std::string& text);

  const RunObserver& observer_;
  std::filesystem::path directory_;
  const Trainer* trainer_ = nullptr;
  std::optional<MetricsLog> metrics_;
  std::optional<RunRecord> record_;
};

}  // namespace quaver
