// Writes one run's records into the store, one transaction per batch. All calls come from one thread at a time;
// failures are StoreFailure, and a batch that failed has left nothing behind and may be written again.
#pragma once

#include <chrono>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "store/database.h"
#include "store/numerics_table.h"
#include "store/records.h"

namespace quaver {

struct MetricsRecord {
  std::uint64_t step = 0;
  std::vector<std::pair<std::string, double>> values;
};

struct NumericsRecord {
  std::uint64_t step = 0;
  std::vector<float> values;
  std::vector<BinadeCounts> binades;
};

struct SiteStateRecord {
  std::uint64_t step = 0;
  std::string site;
  SiteState state;
};

struct DocumentRecord {
  std::string kind;
  std::string json;
};

struct RewindRecord {
  std::uint64_t last_step = 0;
};

using Record = std::variant<MetricsRecord, NumericsRecord, ScaleChangeRecord, SiteStateRecord, AlertRecord, EventRecord,
                            SampleRecord, DocumentRecord, RunStatus, RewindRecord>;

class RunWriter {
 public:
  // Enters the run as RunRecorder's constructor says.
  RunWriter(const std::filesystem::path& store, const RunDescription& description, std::uint64_t last_step,
            std::chrono::milliseconds busy_timeout);

  // What entering the run had to tell, if anything.
  const std::string& note() const { return note_; }

  void write(std::span<const Record> batch);  // an empty batch is a sign of life and nothing else

 private:
  void enter(const RunDescription& description, std::uint64_t last_step);
  bool find_or_make_row(const RunDescription& description, std::uint64_t last_step);
  void write_lists(const RunDescription& description);
  void enter_statistics(const RunDescription& description);
  void enter_sites(const RunDescription& description, std::uint64_t last_step);
  bool sites_are(const RunDescription& description);
  void remove_after(std::uint64_t last_step);
  void touch(const char* kind) { touched_.insert(kind); }
  void write_revisions();
  std::int64_t metric_name(const std::string& name);
  NumericsTable table() { return {database_, run_, layout_}; }

  void put(const MetricsRecord& record);
  void put(const NumericsRecord& record);
  void put(const ScaleChangeRecord& record);
  void put(const SiteStateRecord& record);
  void put(const AlertRecord& record);
  void put(const EventRecord& record);
  void put(const SampleRecord& record);
  void put(const DocumentRecord& record);
  void put(RunStatus status);
  void put(const RewindRecord& record);
  void put_histogram(const NumericsRecord& record);

  void check_still_there();

  Database database_;
  std::string id_;
  std::int64_t run_ = 0;
  SiteLayout layout_;
  std::unordered_map<std::string, std::size_t> sites_;  // number by name
  std::vector<StoredStatistic> statistics_;             // of the description's columns
  std::set<std::string> touched_;                       // kinds of records in this transaction
  std::uint64_t step_ = 0;                              // the latest in this transaction
  std::uint64_t next_histogram_ = 0;
  const NumericsRecord* newest_histogram_ = nullptr;  // of this batch
  std::string note_;
};

double seconds_now();

}  // namespace quaver
