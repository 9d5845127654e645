// The runs of a store: the list, and everything that describes one of them.
#include <nlohmann/json.hpp>

#include "serve/answers.h"
#include "serve/json_text.h"
#include "serve/site_limits.h"
#include "store/run_edits.h"

namespace quaver {

namespace {

using nlohmann::json;

constexpr int deepest_environment = 32;

json number_or_null(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

// Where this machine keeps its files is nobody's business: of an absolute path its last part is shown.
std::string without_folders(const std::string& text) {
  const std::size_t begin = text.starts_with('"') ? 1 : 0;
  if (text.size() <= begin + 1 || text[begin] != '/') return text;
  const std::size_t end = text.find_last_not_of("/\"");
  if (end == std::string::npos || end <= begin) return text;
  const std::size_t slash = text.rfind('/', end);
  return text.substr(0, begin) + "…" + text.substr(slash);
}

json without_folders(json value) {
  if (value.is_string()) return without_folders(value.get<std::string>());
  if (value.is_structured()) {
    for (auto& part : value) part = without_folders(std::move(part));
  }
  return value;
}

json environment_of(const std::string& text) {
  bool is_too_deep = false;
  const auto look = [&](int depth, json::parse_event_t, json&) {
    is_too_deep = is_too_deep || depth > deepest_environment;
    return !is_too_deep;
  };
  json environment = json::parse(text, look, false);
  if (is_too_deep || !environment.is_object()) return json::object();
  return without_folders(std::move(environment));
}

json summary_of(const RunSummary& run) {
  return {{"id", run.id},
          {"name", run.name},
          {"model", run.model},
          {"recipe", run.recipe},
          {"status", name_of(run.status)},
          {"started", run.started},
          {"updated", run.updated},
          {"step", run.step},
          {"steps", run.steps},
          {"tokens_per_step", run.tokens_per_step},
          {"loss", number_or_null(run.loss)},
          {"final_train_loss", number_or_null(run.final_train_loss)},
          {"validation_loss", number_or_null(run.validation_loss)},
          {"tokens_per_second", number_or_null(run.tokens_per_second)},
          {"eta_seconds", number_or_null(run.eta_seconds)},
          {"tags", run.tags},
          {"alerts", run.alerts},
          {"critical_alerts", run.critical_alerts},
          {"group", run.group},
          {"seed", run.seed}};
}

// The run's changes of settings, as far as they are what a trainer writes: a store is a file from elsewhere.
json settings_of(const std::optional<std::string>& document) {
  json changes = json::array();
  const json parsed = document ? json::parse(*document, nullptr, false) : json::array();
  if (!parsed.is_array()) return changes;
  for (const json& entry : parsed) {
    const auto text = [&](const char* key) { return entry.contains(key) && entry[key].is_string(); };
    const bool is_change = entry.is_object() && entry.contains("step") && entry["step"].is_number_unsigned() &&
                           text("key") && text("before") && text("after");
    if (!is_change) continue;
    changes.push_back({{"step", entry["step"]},
                       {"key", entry["key"]},
                       {"before", without_folders(entry["before"].get<std::string>())},
                       {"after", without_folders(entry["after"].get<std::string>())}});
  }
  return changes;
}

json site_of(const SiteDescription& site) {
  return {{"site", site.name},           {"layer", site.layer},           {"role", site.role},
          {"rows", site.state.rows},     {"columns", site.state.columns}, {"block", site.state.block},
          {"policy", site.state.policy}, {"recipe", site.state.recipe},   {"reason", site.state.reason}};
}

bool is_tag(const json& value) {
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  return !text.empty() && is_clean_text(text) && characters_in(text) <= longest_tag;
}

}  // namespace

std::string runs_answer(const StoreReader& store) {
  json runs = json::array();
  for (const RunSummary& run : store.runs()) runs.push_back(summary_of(run));
  return json_text({{"runs", std::move(runs)}});
}

std::string run_answer(const StoreReader& store, const std::string& run) {
  const RunDetails details = store.run(run);
  json answer = summary_of(details.summary);
  json& config = answer["config"] = json::object();
  for (const auto& [key, value] : details.config) config[key] = without_folders(value);
  answer["changed_settings"] = settings_of(store.document(run, "settings"));
  answer["environment"] = environment_of(details.environment_json);
  json& sites = answer["sites"] = json::array();
  const SiteLimits limits = site_limits(details);
  for (std::size_t i = 0; i < details.sites.size(); ++i) {
    sites.push_back(site_of(details.sites[i]));
    sites.back()["limits"] = limits.set_of_site[i];
  }
  answer["limits"] = limits.sets;
  json& statistics = answer["statistics"] = json::array();
  for (const StatisticDescription& statistic : details.statistics) {
    statistics.push_back({{"name", statistic.name}, {"unit", statistic.unit}, {"doc", statistic.doc}});
  }
  answer["metrics"] = details.metrics;
  json& totals = answer["totals"] = json::object();
  for (const auto& [metric, total] : details.totals) totals[metric] = total;
  json& shares = answer["shares"] = json::object();
  for (const auto& [format, share] : details.shares) shares[format] = share;
  json& memory = answer["memory"] = json::object();
  for (const auto& [category, bytes] : details.memory) memory[category] = bytes;
  answer["roles"] = details.roles;
  return json_text(answer);
}

std::vector<std::string> tags_in(std::string_view body) {
  const json parsed = json::parse(body, nullptr, false);
  const bool has_tags = parsed.is_object() && parsed.contains("tags") && parsed["tags"].is_array();
  if (!has_tags) throw BadParameter("the body is not a list of tags", R"(send {"tags":["a","b"]})");
  const json& tags = parsed["tags"];
  if (tags.size() > most_tags || !std::all_of(tags.begin(), tags.end(), is_tag)) {
    throw BadParameter("these tags cannot be kept", "send at most 32, each a text of 1 to 64 characters");
  }
  return tags.get<std::vector<std::string>>();
}

}  // namespace quaver
