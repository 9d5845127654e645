// What happened in a run: changes of scales and formats, alerts, events, samples of text, documents.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "numerics/alert_causes.h"
#include "serve/endpoints.h"
#include "serve/json_text.h"

namespace quaver {

namespace {

using nlohmann::json;

constexpr std::size_t most_alerts = 1000;

std::string list_body(const char* name, json list) { return json_text({{name, std::move(list)}}); }

json text_or_null(const std::optional<std::string>& text) { return text ? json(*text) : json(nullptr); }

const RuleInfo* rule_named(const std::string& name) {
  const auto rules = all_alert_rules();
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const RuleInfo& rule) { return rule.name == name; });
  return found == rules.end() ? nullptr : &*found;
}

Severity severity_named(const std::string& name) {
  for (const Severity severity : {Severity::critical, Severity::warning}) {
    if (name_of(severity) == name) return severity;
  }
  return Severity::info;
}

// For each alert the index of the alert of its run that explains it, or its own. Rules unknown to this version are
// neither cause nor symptom.
std::vector<std::size_t> causes_in(const std::vector<RunAlert>& alerts) {
  std::vector<std::size_t> causes(alerts.size());
  std::map<std::string, std::vector<std::size_t>> by_run;
  for (std::size_t i = 0; i < alerts.size(); ++i) {
    causes[i] = i;
    if (rule_named(alerts[i].alert.rule) != nullptr) by_run[alerts[i].run].push_back(i);
  }
  for (const auto& [run, places] : by_run) {
    std::vector<Alert> own;
    for (const std::size_t place : places) {
      const AlertRecord& record = alerts[place].alert;
      Alert& alert = own.emplace_back();
      alert.rule = rule_named(record.rule)->rule;
      alert.severity = severity_named(record.severity);
      alert.step = record.step;
      alert.last_step = record.last_step;
      alert.site = record.site.value_or("");
    }
    const std::vector<std::size_t> found = causes_of(own);
    for (std::size_t i = 0; i < places.size(); ++i) causes[places[i]] = places[found[i]];
  }
  return causes;
}

// With the addresses of their runs.
std::vector<RunAlert> addressed(std::vector<RunAlert> alerts, const ServedStore& place) {
  for (RunAlert& alert : alerts) alert.run += place.suffix;
  return alerts;
}

json alert_list(const std::vector<RunAlert>& alerts) {
  json list = json::array();
  const std::vector<std::size_t> causes = causes_in(alerts);
  for (const auto& [run, run_name, recorded, alert] : alerts) {
    const RuleInfo* rule = rule_named(alert.rule);
    list.push_back({{"cause", causes[list.size()]},
                    {"seen_in", rule != nullptr ? json(rule->seen_in) : json(nullptr)},
                    {"run", run},
                    {"run_name", run_name},
                    {"step", alert.step},
                    {"last_step", alert.last_step},
                    {"count", alert.count},
                    {"rule", alert.rule},
                    {"severity", alert.severity},
                    {"site", text_or_null(alert.site)},
                    {"value", alert.value},
                    {"threshold", alert.threshold},
                    {"text", alert.text},
                    {"meaning", alert.meaning},
                    {"remedy", alert.remedy},
                    {"act", text_or_null(alert.act)}});
  }
  return list;
}

}  // namespace

std::string changes_body(const StoreReader& store, const std::string& run) {
  json list = json::array();
  for (const ScaleChangeRecord& change : store.changes(run)) {
    list.push_back({{"step", change.step},
                    {"site", change.site},
                    {"reason", change.reason},
                    {"scale_before", change.scale_before},
                    {"scale_after", change.scale_after},
                    {"format_before", change.format_before},
                    {"format_after", change.format_after}});
  }
  return list_body("changes", std::move(list));
}

std::string alerts_body(const ServedStore& place, const StoreReader& store, const std::string& run) {
  return list_body("alerts", alert_list(addressed(store.alerts(run), place)));
}

// Stores that cannot be read are reported with the list of runs.
std::string all_alerts_body(const StorePool& pool) {
  std::vector<RunAlert> found;
  pool.visit([&](const StoreReader& store, const ServedStore& place) {
    for (RunAlert& alert : addressed(store.alerts(), place)) found.push_back(std::move(alert));
  });
  std::stable_sort(found.begin(), found.end(),
                   [](const RunAlert& a, const RunAlert& b) { return a.recorded > b.recorded; });
  found.resize(std::min(found.size(), most_alerts));
  return list_body("alerts", alert_list(found));
}

std::string events_body(const StoreReader& store, const std::string& run) {
  json list = json::array();
  for (const EventRecord& event : store.events(run)) {
    list.push_back({{"step", event.step}, {"kind", event.kind}, {"text", event.text}});
  }
  return list_body("events", std::move(list));
}

std::string samples_body(const StoreReader& store, const std::string& run) {
  json list = json::array();
  for (const SampleRecord& sample : store.samples(run)) list.push_back({{"step", sample.step}, {"text", sample.text}});
  return list_body("samples", std::move(list));
}

std::string document_body(const StoreReader& store, const std::string& run, const std::string& kind) {
  auto document = store.document(run, kind);
  if (!document) {
    const char* verb = kind == "localization" ? "localize" : "calibrate";
    throw NoSuchRecord(fmt::format("the run has no {}", kind), fmt::format("`quaver {}` makes one", verb));
  }
  if (!json::accept(*document)) throw Error(fmt::format("the run's {} is not JSON", kind), "make it again");
  return *std::move(document);
}

}  // namespace quaver
