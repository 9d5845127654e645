// Reads the store of a folder of runs, also while trainers write to it. Every answer comes from one transaction, so it
// is consistent; calls may come from several threads at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quaver/error.h"
#include "store/records.h"

namespace quaver {

// The store is fine, but has no such run, site, statistic, role or document.
class NoSuchRecord : public Error {
 public:
  using Error::Error;
};

// A BLOB of the store that is not as it was written.
struct DamagedBlob {
  std::string table;
  std::uint64_t step = 0;  // the first that it has values of
};

class ReadConnections;

struct RunSummary {
  std::string id;
  std::string name;          // that it is shown under: its user's, else the one it was trained under
  std::string trained_name;  // as its trainer recorded it
  std::string model;
  std::string recipe;
  std::string group;
  std::uint64_t seed = 0;
  RunStatus status = RunStatus::running;  // lost where it says running and has not written for a minute
  double started = 0;
  double updated = 0;
  std::uint64_t step = 0;
  std::uint64_t steps = 0;  // planned
  std::uint64_t tokens_per_step = 0;
  std::string unit;            // what it has so many of: "tokens", "images"
  std::optional<double> loss;  // the newest; these may be NaN
  // Mean over the last twentieth of the steps so far (one at the least) without those that were skipped.
  std::optional<double> final_train_loss;
  std::optional<double> validation_loss;
  std::optional<double> validation_accuracy;  // of a classifier
  std::optional<double> tokens_per_second;
  std::optional<double> eta_seconds;  // of a run that is running
  std::vector<std::string> tags;
  std::uint64_t alerts = 0;
  std::uint64_t critical_alerts = 0;
  std::string directory;  // absolute, where it was trained
  std::string note;
  bool hidden = false;
  std::optional<double> deleted;  // when; its records are still there
};

struct RunDetails {
  RunSummary summary;
  std::string config_toml;
  std::vector<std::pair<std::string, std::string>> config;
  std::string environment_json;
  std::vector<SiteDescription> sites;  // as they are at present
  std::vector<StatisticDescription> statistics;
  std::vector<std::string> metrics;                    // names of those recorded
  std::vector<std::pair<std::string, double>> totals;  // over all steps, of metrics that count: saturated, skipped, …
  std::vector<std::pair<std::string, double>> shares;
  std::vector<std::pair<std::string, std::uint64_t>> memory;
  std::vector<std::string> roles;
};

struct MetricSeries {
  std::vector<std::uint64_t> step;
  std::vector<double> value;
};

struct NumericsQuery {
  std::string statistic;
  std::string role;
  std::uint64_t from = 0;
  std::uint64_t to = UINT64_MAX;
  std::size_t columns = 1200;  // at most
  std::size_t rows = 800;      // at most
};

// One statistic of one role: layers down, time across. A cell that stands for several sites or steps is the worst of
// them; NaN: not measured.
struct NumericsView {
  struct Row {
    std::string layer;      // of its first site
    std::size_t first = 0;  // of the role's sites
    std::size_t count = 0;
  };
  std::string statistic;
  std::string role;
  WorseWay worse = WorseWay::higher;
  std::vector<Row> rows;
  std::vector<std::uint64_t> steps;  // the first recorded step of each column
  std::uint64_t last_step = 0;       // the last recorded step of the last column
  std::size_t samples_per_column = 1;
  std::size_t layers_per_row = 1;
  std::vector<float> values;  // [rows × columns]
};

// Every statistic of one site over time, thinned to the worst of each group of samples.
struct SiteHistory {
  std::string site;
  std::size_t samples_per_point = 1;
  std::vector<std::uint64_t> step;  // the first of each group
  std::vector<std::pair<std::string, std::vector<float>>> statistics;
};

struct SiteHistogram {
  std::string site;
  std::uint64_t step = 0;
  std::vector<std::uint64_t> steps;  // all that are kept
  BinadeCounts counts{};
  SiteState state;                                        // as it was at that step
  std::vector<std::pair<std::string, float>> statistics;  // every statistic at that step; NaN: not measured
};

struct RunAlert {
  std::string run;
  std::string run_name;
  double recorded = 0;  // when
  AlertRecord alert;
};

// Counts that grow with every transaction that changed something of a kind: "metrics", "numerics", "alerts",
// "changes", "events", "status", "samples", "documents", "sites". Compare with those of the last call.
struct RunRevision {
  std::string id;
  std::uint64_t step = 0;
  RunStatus status = RunStatus::running;
  std::map<std::string, std::uint64_t> revisions;
};

class StoreReader {
 public:
  // Error where there is no store, it is not one, or a newer version wrote it.
  explicit StoreReader(std::filesystem::path store);
  ~StoreReader();
  StoreReader(const StoreReader&) = delete;
  StoreReader& operator=(const StoreReader&) = delete;

  const std::filesystem::path& path() const;

  std::vector<RunSummary> runs() const;  // newest first
  RunDetails run(const std::string& id) const;

  // Steps later than `after`, ascending. A longer series than `points` is thinned to each bucket's first, lowest,
  // highest and last. A name that the run does not have gives an empty series; no names stand for all.
  std::map<std::string, MetricSeries> metrics(const std::string& id, std::span<const std::string> names,
                                              std::uint64_t after = 0, std::size_t points = 2000) const;

  NumericsView numerics(const std::string& id, const NumericsQuery& query) const;
  SiteHistory history(const std::string& id, const std::string& site, std::size_t points = 2000) const;

  // Of the kept step nearest to `step`; without one the newest. NoSuchRecord where none is kept.
  SiteHistogram histogram(const std::string& id, const std::string& site,
                          std::optional<std::uint64_t> step = std::nullopt) const;

  // Newest first, at most `limit`.
  std::vector<ScaleChangeRecord> changes(const std::string& id, std::size_t limit = 1000) const;
  std::vector<RunAlert> alerts(const std::string& id, std::size_t limit = 1000) const;
  std::vector<RunAlert> alerts(std::size_t limit = 1000) const;  // of all runs that are neither hidden nor deleted

  // Oldest first; the newest `limit` of them.
  std::vector<EventRecord> events(const std::string& id, std::size_t limit = 10000) const;
  std::vector<SampleRecord> samples(const std::string& id, std::size_t limit = 1000) const;

  std::optional<std::string> document(const std::string& id, const std::string& kind) const;  // JSON

  // Cheap: changes whenever anything was written since the last call.
  std::uint64_t data_version() const;
  std::vector<RunRevision> revisions() const;

  // Reads every BLOB of the run. Answers about sites fail where they meet a damaged one; exports skip it.
  std::vector<DamagedBlob> damaged_blobs(const std::string& id) const;

  // For exports: every step that has metrics, ascending, with all of its values; every recorded sample of numerics of
  // the chosen statistics, ascending, as [sites × statistics] in the run's order of sites and the order chosen.
  using MetricsVisitor = std::function<void(std::uint64_t step, std::span<const MetricValue> values)>;
  using NumericsVisitor = std::function<void(std::uint64_t step, std::span<const float> values)>;
  void visit_metrics(const std::string& id, const MetricsVisitor& visit) const;
  void visit_numerics(const std::string& id, std::span<const std::string> statistics,
                      const NumericsVisitor& visit) const;

 private:
  std::unique_ptr<ReadConnections> connections_;
};

}  // namespace quaver
