// Series over steps: metrics of a run, statistics of a site.
#include <limits>

#include "serve/endpoints.h"
#include "serve/json_text.h"

namespace quaver {

namespace {

constexpr std::size_t most_metrics = 64;
constexpr std::size_t most_points = 20000;
constexpr std::size_t usual_points = 2000;

}  // namespace

std::string metrics_body(const StoreReader& store, const std::string& run, const Query& query) {
  const std::vector<std::string> names = query.list("names", most_metrics);
  const std::uint64_t after = query.number("after", 0, 0, std::numeric_limits<std::int64_t>::max());
  const std::size_t points = query.number("points", usual_points, 4, most_points);
  std::string json = R"({"series":{)";
  bool is_first = true;
  for (const auto& [name, series] : store.metrics(run, names, after, points)) {
    if (!is_first) json += ',';
    is_first = false;
    json += json_string(name) + R"(:{"step":)";
    append_array(json, series.step);
    json += R"(,"value":)";
    append_array(json, series.value);
    json += '}';
  }
  return json + "}}";
}

std::string history_body(const StoreReader& store, const std::string& run, const Query& query) {
  const std::size_t points = query.number("points", usual_points, 4, most_points);
  const SiteHistory history = store.history(run, name_in(query, "site"), points);
  std::string json = R"({"site":)" + json_string(history.site) + R"(,"step":)";
  append_array(json, history.step);
  json += R"(,"statistics":{)";
  for (std::size_t i = 0; i < history.statistics.size(); ++i) {
    if (i > 0) json += ',';
    json += json_string(history.statistics[i].first) + ':';
    append_array(json, history.statistics[i].second);
  }
  return json + "}}";
}

}  // namespace quaver
