// Records a training run in the store of its folder while it trains. Every call copies what it is given into a bounded
// queue and returns; the recorder's own thread writes it, about four transactions per second. The trainer never waits
// for the disk, and trouble with the store never stops a run.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/records.h"

namespace quaver {

struct RecorderLimits {
  // Samples of numerics that wait to be written; one more is dropped and counted. One sample always fits.
  std::size_t numerics_bytes = std::size_t{64} << 20U;
  // Everything else that waits: some hundred thousand steps' metrics. Beyond it that too is dropped and counted.
  std::size_t other_bytes = std::size_t{64} << 20U;
  std::chrono::milliseconds transaction_every{250};
  std::chrono::milliseconds busy_timeout{5000};      // how long another process may hold the store's write lock
  std::chrono::milliseconds longest_retry{30000};    // between tries while the disk is full or the store is locked
  std::chrono::milliseconds heartbeat_every{10000};  // of a run that records nothing: after a minute it counts as lost
};

class RunRecorder {
 public:
  // Told what went wrong and what to do; called from the thread that calls the recorder, never from its own. At most
  // one warning that the store cannot be written and one that records were dropped.
  using Warning = std::function<void(const std::string&)>;

  // Opens or makes the store and enters the run. A run that is there already (same id) is described anew, and whatever
  // it recorded beyond last_step is removed: last_step is 0 for a run that starts, else the checkpoint's step. If the
  // store cannot be used (locked, not ours, corrupt, newer, read-only folder) there is one warning, nothing is recorded
  // and every call below returns at once.
  RunRecorder(const std::filesystem::path& store, const RunDescription& description, std::uint64_t last_step,
              Warning warning, RecorderLimits limits = {});

  // Writes what is left, for at most a few seconds if the store does not let it.
  ~RunRecorder();
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  bool recording() const;  // false: the store could not be used, or failed for good since

  void metrics(std::uint64_t step, std::span<const MetricValue> values);

  // values: one row per site, one column per statistic, as described; NaN: not measured. binades: one per site, or
  // empty; moved in, because they are large. A sample whose step does not come after the last one recorded is left out;
  // one of another size than described is the caller's mistake, and an Error.
  void numerics(std::uint64_t step, std::span<const float> values, std::vector<BinadeCounts> binades = {});

  void scale_change(ScaleChangeRecord change);
  void site_state(std::uint64_t step, std::string_view site, SiteState state);  // what it is from this step on
  void alert(AlertRecord alert);
  void event(std::uint64_t step, std::string kind, std::string text);
  void sample(std::uint64_t step, std::string text);
  void document(std::string kind, std::string json);  // replaces the one of this kind
  void status(RunStatus status);

  // The trainer went back to a checkpoint: removes everything recorded beyond it, site states included.
  void rewind(std::uint64_t last_step);

  // Waits until everything so far is written. False: it is not, because a try failed or took longer than this.
  bool flush(std::chrono::milliseconds timeout = std::chrono::seconds(30));

  std::uint64_t dropped() const;  // records that found the queue full

 private:
  class Queue;
  template <typename Kind>
  void enqueue(Kind record);
  void raise_warnings();

  Warning warning_;
  std::size_t sites_ = 0;
  std::size_t statistics_ = 0;
  std::uint64_t step_ = 0;        // the latest seen
  std::unique_ptr<Queue> queue_;  // none: not recording from the start
};

// For verbs that analyze a trained run (localize): adds a document to its record. Throws Error where the
// store or the run is not there.
void store_document(const std::filesystem::path& store, const std::string& run, const std::string& kind,
                    const std::string& json);

}  // namespace quaver
