#include "store/exports.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/file_io.h"
#include "quaver/error.h"
#include "store/tensorboard.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

// Names may hold bytes that are no UTF-8: they are replaced, not refused.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// As short as it can be and still read back as the same float.
Json number(float value) { return std::isfinite(value) ? Json(std::stod(fmt::format("{}", value))) : Json(nullptr); }

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + "\"";
}

// Not a number: an empty field, which programs that read CSV take as missing.
template <typename Number>
std::string field(Number value) {
  return std::isnan(value) ? std::string() : fmt::format("{}", value);
}

std::vector<std::string> chosen_statistics(const RunDetails& run, const ExportOptions& options) {
  if (!options.statistics.empty() || options.format == ExportFormat::tensorboard) return options.statistics;
  std::vector<std::string> all;
  for (const StatisticDescription& statistic : run.statistics) all.push_back(statistic.name);
  return all;
}

void write_metrics_jsonl(const StoreReader& store, const RunDetails& run, const fs::path& path) {
  AtomicFile file(path);
  store.visit_metrics(run.summary.id, [&](std::uint64_t step, std::span<const MetricValue> values) {
    Json line{{"step", step}};
    for (const MetricValue& metric : values) line[std::string(metric.name)] = number(metric.value);
    file.write(dump(line));
  });
  file.commit();
}

void write_numerics_jsonl(const StoreReader& store, const RunDetails& run, const std::vector<std::string>& statistics,
                          const fs::path& path) {
  AtomicFile file(path);
  store.visit_numerics(run.summary.id, statistics, [&](std::uint64_t step, std::span<const float> values) {
    for (std::size_t site = 0; site < run.sites.size() && (site + 1) * statistics.size() <= values.size(); ++site) {
      Json line{{"step", step}, {"site", run.sites[site].name}};
      for (std::size_t i = 0; i < statistics.size(); ++i) {
        const float value = values[site * statistics.size() + i];
        if (!std::isnan(value)) line[statistics[i]] = number(value);
      }
      file.write(dump(line));
    }
  });
  file.commit();
}

void write_metrics_csv(const StoreReader& store, const RunDetails& run, const fs::path& path) {
  AtomicFile file(path);
  std::string header = "step";
  for (const std::string& name : run.metrics) header += "," + quoted(name);
  file.write(header + "\n");
  store.visit_metrics(run.summary.id, [&](std::uint64_t step, std::span<const MetricValue> values) {
    std::string line = fmt::format("{}", step);
    for (const std::string& name : run.metrics) {
      const auto found =
          std::find_if(values.begin(), values.end(), [&](const MetricValue& metric) { return metric.name == name; });
      line += "," + (found == values.end() ? std::string() : field(found->value));
    }
    file.write(line + "\n");
  });
  file.commit();
}

void write_numerics_csv(const StoreReader& store, const RunDetails& run, const std::vector<std::string>& statistics,
                        const fs::path& path) {
  AtomicFile file(path);
  file.write("step,site,statistic,value\n");
  std::vector<std::string> sites;
  for (const SiteDescription& site : run.sites) sites.push_back(quoted(site.name));
  store.visit_numerics(run.summary.id, statistics, [&](std::uint64_t step, std::span<const float> values) {
    for (std::size_t i = 0; i < values.size() && i / statistics.size() < sites.size(); ++i) {
      if (std::isnan(values[i])) continue;
      file.write(fmt::format("{},{},{},{}\n", step, sites[i / statistics.size()],
                             quoted(statistics[i % statistics.size()]), values[i]));
    }
  });
  file.commit();
}

// TensorBoard wants a time for every point: the step's own where it was recorded, else the run's start.
void write_tensorboard(const StoreReader& store, const RunDetails& run, const std::vector<std::string>& statistics,
                       const fs::path& path) {
  AtomicFile file(path);
  TensorboardEvents events([&](std::span<const std::byte> bytes) { file.write(bytes); }, run.summary.started);
  std::vector<std::pair<std::uint64_t, double>> times;
  std::vector<TensorboardScalar> scalars;
  store.visit_metrics(run.summary.id, [&](std::uint64_t step, std::span<const MetricValue> values) {
    scalars.clear();
    for (const MetricValue& metric : values) {
      if (metric.name == "time") {
        times.emplace_back(step, metric.value);
      } else {
        scalars.push_back({std::string(metric.name), static_cast<float>(metric.value)});
      }
    }
    const bool known = !times.empty() && times.back().first == step;
    events.write(known ? times.back().second : run.summary.started, step, scalars);
  });
  if (!statistics.empty()) {
    auto time = times.begin();
    store.visit_numerics(run.summary.id, statistics, [&](std::uint64_t step, std::span<const float> values) {
      while (time != times.end() && time->first < step) ++time;
      scalars.clear();
      for (std::size_t i = 0; i < values.size() && i / statistics.size() < run.sites.size(); ++i) {
        if (std::isnan(values[i])) continue;
        scalars.push_back(
            {fmt::format("numerics/{}/{}", statistics[i % statistics.size()], run.sites[i / statistics.size()].name),
             values[i]});
      }
      events.write(time != times.end() && time->first == step ? time->second : run.summary.started, step, scalars);
    });
  }
  file.commit();
}

// The id comes from the store: it may become a folder's name only if it is what the recorder takes for an id.
void check_id(const std::string& id) {
  const bool good = !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (!good) throw Error(fmt::format("'{}' is not the id of a run", id), "give an id as the list of runs shows it");
}

// Nothing that leads elsewhere, is hidden, or that a shell takes for something else: names come from outside.
bool is_plain_name(std::string_view name) {
  const auto is_alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !name.empty() && name.size() <= 100 && is_alphanumeric(name[0]) && std::ranges::all_of(name, [&](char c) {
    return is_alphanumeric(c) || c == '.' || c == '_' || c == '-' || c == '+' || c == '=';
  });
}

// The run's name, where it is one for a folder and not that of another run too; else its id.
std::string folder_name(const std::vector<RunSummary>& all, const RunSummary& run) {
  if (!is_plain_name(run.name)) return run.id;
  const bool is_taken = std::ranges::any_of(all, [&](const RunSummary& other) {
    return other.id != run.id && (other.name == run.name || other.id == run.name);
  });
  return is_taken ? run.id : run.name;
}

std::vector<fs::path> export_into(const StoreReader& store, const RunDetails& run, const fs::path& target,
                                  const ExportOptions& options) {
  const std::vector<std::string> statistics = chosen_statistics(run, options);
  make_folder(target);
  switch (options.format) {
    case ExportFormat::jsonl:
      write_metrics_jsonl(store, run, target / "metrics.jsonl");
      write_numerics_jsonl(store, run, statistics, target / "numerics.jsonl");
      return {target / "metrics.jsonl", target / "numerics.jsonl"};
    case ExportFormat::csv:
      write_metrics_csv(store, run, target / "metrics.csv");
      write_numerics_csv(store, run, statistics, target / "numerics.csv");
      return {target / "metrics.csv", target / "numerics.csv"};
    case ExportFormat::tensorboard:
      break;
  }
  // One name for one run, so that exporting again replaces the file; TensorBoard would draw two on top of each other.
  const fs::path path =
      target / fmt::format("events.out.tfevents.{}.quaver.0.0", static_cast<std::int64_t>(run.summary.started));
  write_tensorboard(store, run, statistics, path);
  return {path};
}

}  // namespace

std::vector<fs::path> export_run(const StoreReader& store, const std::string& id, const fs::path& folder,
                                 const ExportOptions& options) {
  return export_runs(store, std::span(&id, 1), folder, options);
}

std::vector<fs::path> export_runs(const StoreReader& store, std::span<const std::string> runs, const fs::path& folder,
                                  const ExportOptions& options) {
  const std::vector<RunSummary> all = store.runs();
  std::vector<std::string> ids(runs.begin(), runs.end());
  if (ids.empty()) {
    for (const RunSummary& run : all) {
      if (!run.deleted) ids.push_back(run.id);
    }
  }
  std::vector<fs::path> files;
  for (const std::string& id : ids) {
    check_id(id);
    const RunDetails run = store.run(id);
    for (fs::path& file : export_into(store, run, folder / folder_name(all, run.summary), options)) {
      files.push_back(std::move(file));
    }
  }
  return files;
}

}  // namespace quaver
