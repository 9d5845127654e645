#include "store/reader.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <queue>
#include <set>

#include "store/read_connections.h"
#include "store/run_writer.h"
#include "store/schema.h"
#include "store/thinning.h"

namespace quaver {

namespace {

std::int64_t sql_limit(std::size_t limit) { return static_cast<std::int64_t>(std::min<std::size_t>(limit, 1U << 30U)); }

std::optional<double> latest(Look& look, std::int64_t run, const char* metric) {
  Statement& row = look.prepared(
                           "SELECT value FROM metrics WHERE run=? AND name=(SELECT name FROM metric_names WHERE "
                           "text=?) ORDER BY step DESC LIMIT 1")
                       .bind(run, metric);
  if (!row.step()) return std::nullopt;
  return row.column_double(0);
}

std::optional<double> final_train_loss(Look& look, std::int64_t run) {
  constexpr const char* newest =
      "SELECT max(step) FROM metrics WHERE run=? AND name=(SELECT name FROM metric_names WHERE text='loss')";
  Statement& last = look.prepared(newest).bind(run);
  if (!last.step() || last.column_null(0)) return std::nullopt;
  const std::int64_t step = last.column_int(0);
  if (step < 1) return std::nullopt;  // not what a trainer writes
  const std::int64_t before = step - std::max<std::int64_t>(1, step / 20);
  constexpr const char* mean =
      "SELECT avg(value) FROM metrics WHERE run=? AND name=(SELECT name FROM metric_names WHERE text='loss') AND "
      "step>? AND step NOT IN (SELECT step FROM metrics WHERE run=? AND name=(SELECT name FROM metric_names WHERE "
      "text='skipped') AND step>?)";
  Statement& row = look.prepared(mean).bind(run, before, run, before);
  if (!row.step() || row.column_null(0)) return std::nullopt;
  return row.column_double(0);
}

std::optional<double> time_left(const RunSummary& run) {
  if (run.status != RunStatus::running || run.step > run.steps || !run.tokens_per_second) return std::nullopt;
  if (!(*run.tokens_per_second > 0)) return std::nullopt;
  return static_cast<double>(run.steps - run.step) * static_cast<double>(run.tokens_per_step) / *run.tokens_per_second;
}

// What to join for the annotations: a store of schema 2 or 1 that is only read has no such table.
std::string_view annotations_of(Look& look) {
  return look.database().pragma("user_version") < 3
             ? "(SELECT NULL run, NULL name, NULL note, NULL hidden, NULL deleted WHERE 0)"
             : "annotations";
}

std::string summary_columns(Look& look) {
  return fmt::format(
      "SELECT r.key, r.id, r.name, r.model, r.recipe, r.\"group\", r.seed, r.status, r.started, r.heartbeat, r.step, "
      "r.steps, r.tokens_per_step, r.directory, n.name, n.note, n.hidden, n.deleted FROM runs r LEFT JOIN {} n ON "
      "n.run=r.key ",
      annotations_of(look));
}

// The columns of one row of `runs`; summarize adds what other tables know.
std::pair<std::int64_t, RunSummary> summary_from(const Statement& row) {
  RunSummary run;
  run.id = row.column_text(1);
  run.trained_name = row.column_text(2);
  run.name = row.column_null(14) ? run.trained_name : row.column_text(14);
  run.model = row.column_text(3);
  run.recipe = row.column_text(4);
  run.group = row.column_text(5);
  run.seed = static_cast<std::uint64_t>(row.column_int(6));
  run.status = status_from(row.column_text(7), row.column_double(9));
  run.started = row.column_double(8);
  run.updated = row.column_double(9);
  run.step = row.column_unsigned(10);
  run.steps = row.column_unsigned(11);
  run.tokens_per_step = row.column_unsigned(12);
  run.directory = row.column_text(13);
  run.note = row.column_text(15);
  run.hidden = row.column_int(16) != 0;
  if (!row.column_null(17)) run.deleted = row.column_double(17);
  return {row.column_int(0), run};
}

std::vector<std::pair<std::string, double>> quantities(Look& look, std::int64_t run, const char* kind) {
  std::vector<std::pair<std::string, double>> found;
  Statement& rows =
      look.prepared("SELECT name, value FROM quantities WHERE run=? AND kind=? ORDER BY position").bind(run, kind);
  while (rows.step()) found.emplace_back(rows.column_text(0), rows.column_double(1));
  return found;
}

// Stores from before there were classifiers do not say.
std::string unit_of(Look& look, std::int64_t run) {
  const auto found = quantities(look, run, "unit");
  return found.empty() ? "tokens" : found.front().first;
}

void summarize(Look& look, std::int64_t key, RunSummary& run) {
  run.loss = latest(look, key, "loss");
  run.final_train_loss = final_train_loss(look, key);
  run.validation_loss = latest(look, key, "validation_loss");
  run.validation_accuracy = latest(look, key, "validation_accuracy");
  run.unit = unit_of(look, key);
  run.tokens_per_second = latest(look, key, "tokens_per_second");
  run.eta_seconds = time_left(run);
  Statement& tags = look.prepared("SELECT tag FROM tags WHERE run=? ORDER BY position").bind(key);
  while (tags.step()) run.tags.push_back(tags.column_text(0));
  Statement& alerts = look.prepared("SELECT count(*), sum(severity='critical') FROM alerts WHERE run=?").bind(key);
  if (!alerts.step()) return;
  run.alerts = alerts.column_unsigned(0);
  run.critical_alerts = alerts.column_unsigned(1);
}

struct MetricName {
  std::int64_t number = 0;
  std::string text;
};

// One lookup per name instead of a pass over all the run's values.
std::vector<MetricName> metric_names(Look& look, std::int64_t run) {
  std::vector<MetricName> names;
  for (std::int64_t last = std::numeric_limits<std::int64_t>::min();;) {
    Statement& next = look.prepared("SELECT min(name) FROM metrics WHERE run=? AND name>?").bind(run, last);
    if (!next.step() || next.column_null(0)) return names;
    last = next.column_int(0);
    Statement& text = look.prepared("SELECT text FROM metric_names WHERE name=?").bind(last);
    if (text.step()) names.push_back({last, text.column_text(0)});
  }
}

std::vector<SiteDescription> present_sites(Look& look, std::int64_t run) {
  std::vector<SiteDescription> sites;
  Statement& rows = look.prepared("SELECT name, layer, role FROM sites WHERE run=? ORDER BY site").bind(run);
  while (rows.step()) sites.push_back({rows.column_text(0), rows.column_text(1), rows.column_text(2), {}});
  Statement& states = look.prepared(
                              "SELECT site, rows, columns, block, policy, recipe, reason FROM site_states "
                              "WHERE run=? ORDER BY site, step")
                          .bind(run);
  while (states.step()) {  // later states of a site take the place of earlier ones
    const std::uint64_t site = states.column_unsigned(0);
    if (site >= sites.size()) continue;
    sites[site].state = {states.column_text(1), states.column_text(2), states.column_text(3),
                         states.column_text(4), states.column_text(5), states.column_text(6)};
  }
  return sites;
}

std::uint64_t bytes_from(double value) { return value >= 0 && value < 0x1p63 ? static_cast<std::uint64_t>(value) : 0; }

// Metrics that count something in a step.
const std::set<std::string, std::less<>> counted{"overflows", "saturated", "skipped", "underflowed"};

std::string alert_columns(Look& look) {
  return fmt::format(
      "SELECT r.id, coalesce(n.name, r.name), a.step, a.last_step, a.count, a.rule, a.severity, a.site, a.value, "
      "a.threshold, a.text, a.meaning, a.remedy, a.act, a.recorded FROM alerts a JOIN runs r ON r.key = a.run LEFT "
      "JOIN "
      "{} n ON n.run = a.run ",
      annotations_of(look));
}

std::vector<RunAlert> alerts_from(Statement& rows) {
  const auto optional_text = [&](int column) {
    return rows.column_null(column) ? std::optional<std::string>() : rows.column_text(column);
  };
  std::vector<RunAlert> alerts;
  while (rows.step()) {
    AlertRecord alert;
    alert.step = rows.column_unsigned(2);
    alert.last_step = rows.column_unsigned(3);
    alert.count = rows.column_unsigned(4);
    alert.rule = rows.column_text(5);
    alert.severity = rows.column_text(6);
    alert.site = optional_text(7);
    alert.value = rows.column_double(8);
    alert.threshold = rows.column_double(9);
    alert.text = rows.column_text(10);
    alert.meaning = rows.column_text(11);
    alert.remedy = rows.column_text(12);
    alert.act = optional_text(13);
    alerts.push_back({rows.column_text(0), rows.column_text(1), rows.column_double(14), std::move(alert)});
  }
  return alerts;
}

}  // namespace

StoreReader::StoreReader(std::filesystem::path store)
    : connections_(std::make_unique<ReadConnections>(std::move(store))) {}

StoreReader::~StoreReader() = default;

const std::filesystem::path& StoreReader::path() const { return connections_->path(); }

std::vector<RunSummary> StoreReader::runs() const {
  Look look(*connections_);
  std::vector<std::pair<std::int64_t, RunSummary>> found;
  Statement& rows = look.prepared(summary_columns(look) + "ORDER BY r.started DESC, r.key DESC");
  while (rows.step()) found.push_back(summary_from(rows));
  std::vector<RunSummary> runs;
  for (auto& [key, run] : found) {
    summarize(look, key, run);
    runs.push_back(std::move(run));
  }
  return runs;
}

RunDetails StoreReader::run(const std::string& id) const {
  Look look(*connections_);
  const std::int64_t key = look.run_key(id);
  RunDetails details;
  Statement& summary = look.prepared(summary_columns(look) + "WHERE r.key=?").bind(key);
  if (summary.step()) details.summary = summary_from(summary).second;
  summarize(look, key, details.summary);
  Statement& texts = look.prepared("SELECT config_toml, environment_json FROM runs WHERE key=?").bind(key);
  if (texts.step()) {
    details.config_toml = texts.column_text(0);
    details.environment_json = texts.column_text(1);
  }
  Statement& config = look.prepared("SELECT key, value FROM config WHERE run=? ORDER BY position").bind(key);
  while (config.step()) details.config.emplace_back(config.column_text(0), config.column_text(1));
  details.sites = present_sites(look, key);
  details.statistics = look.statistics(key);
  for (MetricName& name : metric_names(look, key)) {
    if (counted.contains(name.text)) {
      Statement& sum = look.prepared("SELECT sum(value) FROM metrics WHERE run=? AND name=?").bind(key, name.number);
      if (sum.step()) details.totals.emplace_back(name.text, sum.column_double(0));
    }
    details.metrics.push_back(std::move(name.text));
  }
  details.shares = quantities(look, key, "share");
  for (const auto& [name, value] : quantities(look, key, "memory")) {
    details.memory.emplace_back(name, bytes_from(value));
  }
  for (const SiteLayout::Role& role : look.layout(key).roles) details.roles.push_back(role.name);
  return details;
}

std::map<std::string, MetricSeries> StoreReader::metrics(const std::string& id, std::span<const std::string> names,
                                                         std::uint64_t after, std::size_t points) const {
  Look look(*connections_);
  const std::int64_t key = look.run_key(id);
  std::map<std::string, MetricSeries> found;
  for (const std::string& name : names) found[name];
  for (const MetricName& name : metric_names(look, key)) {
    if (!names.empty() && !found.contains(name.text)) continue;
    MetricSeries& series = found[name.text];
    Statement& rows = look.prepared("SELECT step, value FROM metrics WHERE run=? AND name=? AND step>? ORDER BY step")
                          .bind(key, name.number, std::min<std::uint64_t>(after, INT64_MAX));
    while (rows.step()) {
      series.step.push_back(rows.column_unsigned(0));
      series.value.push_back(rows.column_double(1));
    }
    series = thinned(std::move(series), points);
  }
  return found;
}

std::vector<ScaleChangeRecord> StoreReader::changes(const std::string& id, std::size_t limit) const {
  Look look(*connections_);
  std::vector<ScaleChangeRecord> changes;
  Statement& rows = look.prepared(
                            "SELECT step, site, reason, scale_before, scale_after, format_before, format_after "
                            "FROM changes WHERE run=? ORDER BY step DESC, key DESC LIMIT ?")
                        .bind(look.run_key(id), sql_limit(limit));
  while (rows.step()) {
    changes.push_back({rows.column_unsigned(0), rows.column_text(1), rows.column_text(2), rows.column_double(3),
                       rows.column_double(4), rows.column_text(5), rows.column_text(6)});
  }
  return changes;
}

std::vector<RunAlert> StoreReader::alerts(const std::string& id, std::size_t limit) const {
  Look look(*connections_);
  return alerts_from(look.prepared(alert_columns(look) + "WHERE a.run=? ORDER BY a.step DESC, a.key DESC LIMIT ?")
                         .bind(look.run_key(id), sql_limit(limit)));
}

std::vector<RunAlert> StoreReader::alerts(std::size_t limit) const {
  Look look(*connections_);
  return alerts_from(
      look.prepared(alert_columns(look) +
                    "WHERE coalesce(n.hidden, 0)=0 AND n.deleted IS NULL ORDER BY a.recorded DESC, a.key "
                    "DESC LIMIT ?")
          .bind(sql_limit(limit)));
}

std::vector<EventRecord> StoreReader::events(const std::string& id, std::size_t limit) const {
  Look look(*connections_);
  std::vector<EventRecord> events;
  Statement& rows =
      look.prepared("SELECT step, kind, text FROM events WHERE run=? ORDER BY step DESC, key DESC LIMIT ?")
          .bind(look.run_key(id), sql_limit(limit));
  while (rows.step()) events.push_back({rows.column_unsigned(0), rows.column_text(1), rows.column_text(2)});
  std::reverse(events.begin(), events.end());
  return events;
}

std::vector<SampleRecord> StoreReader::samples(const std::string& id, std::size_t limit) const {
  Look look(*connections_);
  std::vector<SampleRecord> samples;
  Statement& rows = look.prepared("SELECT step, text FROM samples WHERE run=? ORDER BY step DESC LIMIT ?")
                        .bind(look.run_key(id), sql_limit(limit));
  while (rows.step()) samples.push_back({rows.column_unsigned(0), rows.column_text(1)});
  std::reverse(samples.begin(), samples.end());
  return samples;
}

std::optional<std::string> StoreReader::document(const std::string& id, const std::string& kind) const {
  Look look(*connections_);
  Statement& row = look.prepared("SELECT json FROM documents WHERE run=? AND kind=?").bind(look.run_key(id), kind);
  if (!row.step()) return std::nullopt;
  return row.column_text(0);
}

std::uint64_t StoreReader::data_version() const { return connections_->data_version(); }

std::vector<RunRevision> StoreReader::revisions() const {
  Look look(*connections_);
  std::vector<RunRevision> found;
  std::map<std::int64_t, std::size_t> position;
  Statement& runs = look.prepared("SELECT key, id, step, status, heartbeat FROM runs ORDER BY key");
  while (runs.step()) {
    position[runs.column_int(0)] = found.size();
    found.push_back(
        {runs.column_text(1), runs.column_unsigned(2), status_from(runs.column_text(3), runs.column_double(4)), {}});
  }
  Statement& rows = look.prepared("SELECT run, kind, revision FROM revisions");
  while (rows.step()) {
    const auto run = position.find(rows.column_int(0));
    if (run != position.end()) found[run->second].revisions[rows.column_text(1)] = rows.column_unsigned(2);
  }
  return found;
}

void StoreReader::visit_metrics(const std::string& id, const MetricsVisitor& visit) const {
  Look look(*connections_);
  const std::int64_t key = look.run_key(id);
  const std::vector<MetricName> names = metric_names(look, key);
  std::vector<Statement> series;  // all read side by side, each in the order of its steps
  using Head = std::pair<std::uint64_t, std::size_t>;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  const auto advance = [&](std::size_t i) {
    if (series[i].step()) heads.emplace(series[i].column_unsigned(0), i);
  };
  for (const MetricName& name : names) {
    series.emplace_back(look.database(), "SELECT step, value FROM metrics WHERE run=? AND name=? ORDER BY step");
    series.back().bind(key, name.number);
    advance(series.size() - 1);
  }
  std::vector<MetricValue> values;
  while (!heads.empty()) {
    const std::uint64_t step = heads.top().first;
    values.clear();
    while (!heads.empty() && heads.top().first == step) {
      const std::size_t i = heads.top().second;
      heads.pop();
      values.push_back({names[i].text, series[i].column_double(1)});
      advance(i);
    }
    visit(step, values);
  }
}

}  // namespace quaver
