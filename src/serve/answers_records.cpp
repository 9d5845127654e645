// What happened in a run: changes of scales and formats, alerts, events, samples of text, documents.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "serve/answers.h"
#include "serve/json_text.h"

namespace quaver {

namespace {

using nlohmann::json;

std::string list_answer(const char* name, json list) { return json_text({{name, std::move(list)}}); }

json text_or_null(const std::optional<std::string>& text) { return text ? json(*text) : json(nullptr); }

json alert_list(const std::vector<RunAlert>& alerts) {
  json list = json::array();
  for (const auto& [run, run_name, alert] : alerts) {
    list.push_back({{"run", run},
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

std::string changes_answer(const StoreReader& store, const std::string& run) {
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
  return list_answer("changes", std::move(list));
}

std::string alerts_answer(const StoreReader& store, const std::string& run) {
  return list_answer("alerts", alert_list(store.alerts(run)));
}

std::string all_alerts_answer(const StoreReader& store) { return list_answer("alerts", alert_list(store.alerts())); }

std::string events_answer(const StoreReader& store, const std::string& run) {
  json list = json::array();
  for (const EventRecord& event : store.events(run)) {
    list.push_back({{"step", event.step}, {"kind", event.kind}, {"text", event.text}});
  }
  return list_answer("events", std::move(list));
}

std::string samples_answer(const StoreReader& store, const std::string& run) {
  json list = json::array();
  for (const SampleRecord& sample : store.samples(run)) list.push_back({{"step", sample.step}, {"text", sample.text}});
  return list_answer("samples", std::move(list));
}

std::string document_answer(const StoreReader& store, const std::string& run, const std::string& kind) {
  auto document = store.document(run, kind);
  if (!document) {
    const char* verb = kind == "localization" ? "localize" : "calibrate";
    throw NoSuchRecord(fmt::format("the run has no {}", kind), fmt::format("`quaver {}` makes one", verb));
  }
  if (!json::accept(*document)) throw Error(fmt::format("the run's {} is not JSON", kind), "make it again");
  return *std::move(document);
}

}  // namespace quaver
