// What the store of runs holds, as plain data: the trainer hands these to the recorder, the reader gives them back.
// Text is kept as it comes and is never interpreted; steps count from 1; times are seconds since 1970.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quaver {

// The store of a folder of runs: <runs folder>/quaver.db.
inline constexpr std::string_view store_file_name = "quaver.db";

// lost: said to be running, but its process has not written for a minute. Only the reader says so.
enum class RunStatus : std::uint8_t { running, finished, interrupted, failed, lost };
std::string_view name_of(RunStatus status);

// Which way is worse: what a value that stands for several shows.
enum class WorseWay : std::uint8_t { higher, lower, larger_magnitude };
std::string_view name_of(WorseWay way);  // "higher", "lower", "larger_magnitude"

// How a site is stored at present, as text: "e4m3", "tensor", "delayed" …
struct SiteState {
  std::string rows;
  std::string columns;
  std::string block;
  std::string policy;
  std::string recipe;
  std::string reason;
  bool operator==(const SiteState&) const = default;
};

struct SiteDescription {
  std::string name;   // "blocks.3.mlp.up/x"
  std::string layer;  // "blocks.3.mlp.up"
  std::string role;   // "x", "w", "dy"
  SiteState state;
};

struct StatisticDescription {
  std::string name;  // "underflow_percent"
  std::string unit;
  std::string doc;
  WorseWay worse = WorseWay::higher;
};

struct RunDescription {
  std::string id;  // of the run directory: a resumed run has the same and continues its record; [A-Za-z0-9_-]{1,64}
  std::string name;
  std::string model;
  std::string recipe;
  std::string group;  // equal for runs that differ in seed and name only
  std::uint64_t seed = 0;
  std::string directory;  // absolute, for people to read
  std::string config_toml;
  std::vector<std::pair<std::string, std::string>> config;  // "section.key" and its value as text
  std::string environment_json;
  std::uint64_t steps = 0;  // planned
  std::uint64_t tokens_per_step = 0;
  std::string unit = "tokens";                                // what a step has so many of: "tokens", "images"
  std::vector<SiteDescription> sites;                         // in the order of numerics' rows
  std::vector<StatisticDescription> statistics;               // in the order of numerics' columns
  std::vector<std::pair<std::string, std::uint64_t>> memory;  // category and bytes
  std::vector<std::pair<std::string, double>> shares;         // format and its share of the GEMMs' operations
};

struct MetricValue {
  std::string_view name;
  double value = 0;
};

// Counts of magnitudes by power of two: entry i counts |x| in [2^(i-40), 2^(i-39)); the ends take what lies beyond.
using BinadeCounts = std::array<std::uint64_t, 64>;
inline constexpr int first_binade = -40;

struct ScaleChangeRecord {
  std::uint64_t step = 0;
  std::string site;
  std::string reason;
  double scale_before = 0;
  double scale_after = 0;
  std::string format_before;
  std::string format_after;
};

// An alert that goes on keeps its first step; recorded again with the same step, rule and site it replaces itself.
struct AlertRecord {
  std::uint64_t step = 0;       // at which it began
  std::uint64_t last_step = 0;  // at which it last held
  std::uint64_t count = 1;      // steps at which it held
  std::string rule;
  std::string severity;  // "info", "warning", "critical"
  std::optional<std::string> site;
  double value = 0;
  double threshold = 0;
  std::string text;
  std::string meaning;
  std::string remedy;
  std::optional<std::string> act;  // what the program did about it
};

struct EventRecord {
  std::uint64_t step = 0;
  std::string kind;
  std::string text;
};

struct SampleRecord {
  std::uint64_t step = 0;
  std::string text;
};

}  // namespace quaver
