// The list of runs, the description of a run, and edits of it.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "serve/endpoints.h"
#include "serve/json_text.h"
#include "serve/site_limits.h"

namespace quaver {

namespace {

using nlohmann::json;

namespace fs = std::filesystem;

constexpr int deepest_environment = 32;

json number_or_null(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

// Clients need not see this machine's folders: of an absolute path the last part is shown.
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

bool is_gone(const fs::path& path) {
  std::error_code ignored;
  return fs::status(path, ignored).type() == fs::file_type::not_found;  // an unreadable one is not missing
}

// Where the run's folder was, relative to the dashboard's; null where it still exists. A store that was moved has its
// runs beside it.
json missing_folder(const RunSummary& run, const StorePool& pool, const ServedStore& store) {
  const fs::path directory = fs::path(run.directory + "/").parent_path();
  if (!directory.is_absolute() || !directory.has_filename()) return nullptr;
  if (!is_gone(directory) || !is_gone(store.handle->path().parent_path() / directory.filename())) return nullptr;
  std::error_code ignored;
  const fs::path relative = directory.lexically_relative(fs::weakly_canonical(pool.folder(), ignored));
  const bool is_below = !relative.empty() && *relative.begin() != "..";
  return is_below ? relative.generic_string() : without_folders(directory.generic_string());
}

json summary_of(const RunSummary& run, const StorePool& pool, const ServedStore& store) {
  return {{"id", run.id + store.suffix},
          {"store_folder", store.folder},
          {"missing_folder", missing_folder(run, pool, store)},
          {"name", run.name},
          {"trained_name", run.trained_name},
          {"note", run.note},
          {"hidden", run.hidden},
          {"deleted", number_or_null(run.deleted)},
          {"model", run.model},
          {"recipe", run.recipe},
          {"status", name_of(run.status)},
          {"started", run.started},
          {"updated", run.updated},
          {"step", run.step},
          {"steps", run.steps},
          {"tokens_per_step", run.tokens_per_step},
          {"unit", run.unit},
          {"loss", number_or_null(run.loss)},
          {"final_train_loss", number_or_null(run.final_train_loss)},
          {"validation_loss", number_or_null(run.validation_loss)},
          {"validation_accuracy", number_or_null(run.validation_accuracy)},
          {"tokens_per_second", number_or_null(run.tokens_per_second)},
          {"eta_seconds", number_or_null(run.eta_seconds)},
          {"tags", run.tags},
          {"alerts", run.alerts},
          {"critical_alerts", run.critical_alerts},
          {"group", run.group},
          {"seed", run.seed}};
}

// The run's changes of settings, as far as they are well-formed: a store is untrusted input.
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

// The loss and accuracy of a perfect model, where they are known; of the same untrusted origin.
json best_of(const std::optional<std::string>& document) {
  json best = json::object();
  const json parsed = document ? json::parse(*document, nullptr, false) : json::object();
  if (!parsed.is_object()) return best;
  for (const char* metric : {"loss", "accuracy"}) {
    if (parsed.contains(metric) && parsed[metric].is_number()) best[metric] = parsed[metric];
  }
  return best;
}

json site_of(const SiteDescription& site) {
  return {{"site", site.name},           {"layer", site.layer},           {"role", site.role},
          {"rows", site.state.rows},     {"columns", site.state.columns}, {"block", site.state.block},
          {"policy", site.state.policy}, {"recipe", site.state.recipe},   {"reason", site.state.reason}};
}

// A note may have more than one line.
bool is_clean_note(std::string_view text) {
  std::string lines(text);
  std::replace(lines.begin(), lines.end(), '\n', ' ');
  return is_clean_text(lines);
}

bool is_tag(const json& value) {
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  return !text.empty() && is_clean_text(text) && characters_in(text) <= longest_tag;
}

std::vector<std::string> tags_of(const json& value) {
  const bool are_tags =
      value.is_array() && value.size() <= most_tags && std::all_of(value.begin(), value.end(), is_tag);
  if (!are_tags) {
    throw BadParameter("these tags are not valid",
                       fmt::format("send at most {}, each a text of 1 to {} characters", most_tags, longest_tag));
  }
  return value.get<std::vector<std::string>>();
}

std::string text_of(const json& value, const char* what, std::size_t longest, bool (*is_clean)(std::string_view)) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (is_clean(text) && characters_in(text) <= longest) return text;
  }
  throw BadParameter(fmt::format("this {} is not valid", what),
                     fmt::format("send a text of at most {} characters, without control characters", longest));
}

bool flag_of(const json& value, const std::string& key) {
  if (!value.is_boolean()) throw BadParameter(key + " is neither true nor false", "send one of them");
  return value.get<bool>();
}

}  // namespace

std::string runs_body(const StorePool& pool) {
  std::vector<std::pair<double, json>> found;  // with their start times
  const auto take = [&](const StoreReader& store, const ServedStore& place) {
    for (const RunSummary& run : store.runs()) found.emplace_back(run.started, summary_of(run, pool, place));
  };
  json problems = json::array();
  for (const Error& failure : pool.visit(take)) {
    problems.push_back(
        {{"what", pool.without_folders(failure.what())}, {"remedy", pool.without_folders(failure.remedy())}});
  }
  for (const std::string& problem : pool.problems()) {
    problems.push_back({{"what", pool.without_folders(problem)}, {"remedy", ""}});
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  json runs = json::array();
  for (auto& [started, run] : found) runs.push_back(std::move(run));
  return json_text({{"runs", std::move(runs)}, {"problems", std::move(problems)}});
}

std::string run_body(const StorePool& pool, const ServedStore& place, const StoreReader& store,
                     const std::string& run) {
  const RunDetails details = store.run(run);
  json body = summary_of(details.summary, pool, place);
  json& config = body["config"] = json::object();
  for (const auto& [key, value] : details.config) config[key] = without_folders(value);
  body["changed_settings"] = settings_of(store.document(run, "settings"));
  body["environment"] = environment_of(details.environment_json);
  json& sites = body["sites"] = json::array();
  const SiteLimits limits = site_limits(details);
  for (std::size_t i = 0; i < details.sites.size(); ++i) {
    sites.push_back(site_of(details.sites[i]));
    sites.back()["limits"] = limits.set_of_site[i];
  }
  body["limits"] = limits.sets;
  json& statistics = body["statistics"] = json::array();
  for (const StatisticDescription& statistic : details.statistics) {
    statistics.push_back({{"name", statistic.name}, {"unit", statistic.unit}, {"doc", statistic.doc}});
  }
  body["metrics"] = details.metrics;
  json& totals = body["totals"] = json::object();
  for (const auto& [metric, total] : details.totals) totals[metric] = total;
  body["best"] = best_of(store.document(run, "best"));
  json& shares = body["shares"] = json::object();
  for (const auto& [format, share] : details.shares) shares[format] = share;
  json& memory = body["memory"] = json::object();
  for (const auto& [category, bytes] : details.memory) memory[category] = bytes;
  body["roles"] = details.roles;
  return json_text(body);
}

RunEdit edit_in(std::string_view body) {
  const json parsed = json::parse(body, nullptr, false);
  if (!parsed.is_object() || parsed.empty()) {
    throw BadParameter("the body contains no change", R"(send {"name":"…","tags":["a"],"note":"…","hidden":true})");
  }
  RunEdit edit;
  for (const auto& [key, value] : parsed.items()) {
    if (key == "name") {
      edit.name = text_of(value, "name", longest_run_name, is_clean_text);
    } else if (key == "tags") {
      edit.tags = tags_of(value);
    } else if (key == "note") {
      edit.note = text_of(value, "note", longest_run_note, is_clean_note);
    } else if (key == "hidden") {
      edit.hidden = flag_of(value, key);
    } else if (key == "deleted") {
      edit.deleted = flag_of(value, key);
    } else {
      throw BadParameter("the body names something that cannot be changed", "send name, tags, note, hidden or deleted");
    }
  }
  return edit;
}

}  // namespace quaver
