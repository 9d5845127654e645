#include "serve/site_limits.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "numerics/limits.h"

namespace quaver {

namespace {

using nlohmann::json;

// The thresholds from the run's settings; what is missing or not a number has its default.
AlertConfig alert_config_of(const RunDetails& run) {
  AlertConfig config;
  const std::map<std::string_view, double*> wanted{{"alerts.underflow_x", &config.underflow_x},
                                                   {"alerts.underflow_w", &config.underflow_w},
                                                   {"alerts.underflow_dy", &config.underflow_dy},
                                                   {"alerts.underflow_4bit", &config.underflow_4bit},
                                                   {"alerts.sqnr_deficit", &config.sqnr_deficit},
                                                   {"alerts.saturated", &config.saturated},
                                                   {"alerts.stale_above", &config.stale_above},
                                                   {"alerts.stale_binades", &config.stale_binades},
                                                   {"alerts.unmoved", &config.unmoved},
                                                   {"alerts.shadow_cosine", &config.shadow_cosine},
                                                   {"alerts.shadow_cosine_4bit", &config.shadow_cosine_4bit}};
  for (const auto& [key, text] : run.config) {
    const auto found = wanted.find(key);
    double value = 0;
    if (found == wanted.end()) continue;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem == std::errc() && end == text.data() + text.size() && std::isfinite(value)) *found->second = value;
  }
  return config;
}

Format format_of(const std::string& name) {
  for (const Format format : all_formats) {
    if (info(format).name == name) return format;
  }
  return Format::f32;
}

template <typename Enum>
Enum named(const std::string& name, std::initializer_list<Enum> all, Enum otherwise) {
  const auto* const found = std::find_if(all.begin(), all.end(), [&](Enum one) { return name_of(one) == name; });
  return found == all.end() ? otherwise : *found;
}

SiteStorage storage_of(const SiteDescription& site, int layer_bits) {
  return {named(site.role, {Role::x, Role::w, Role::dy}, Role::x), format_of(site.state.rows),
          named(site.state.policy, {ScalePolicy::none, ScalePolicy::current, ScalePolicy::delayed, ScalePolicy::fixed},
                ScalePolicy::none),
          site.state.block == name_of(block::tensor), layer_bits};
}

json limits_text(const SiteStorage& storage, const AlertConfig& config) {
  json set = json::object();
  for (const StatisticInfo& statistic : all_statistics()) {
    const Limits limits = limits_of(statistic.statistic, storage, config);
    if (limits.below) set[std::string(statistic.name)]["below"] = {limits.below->watch, limits.below->bad};
    if (limits.above) set[std::string(statistic.name)]["above"] = {limits.above->watch, limits.above->bad};
  }
  return set;
}

}  // namespace

SiteLimits site_limits(const RunDetails& run) {
  const AlertConfig config = alert_config_of(run);
  std::map<std::string, int> layer_bits;
  for (const SiteDescription& site : run.sites) {
    const int own = info(format_of(site.state.rows)).storage_bits;
    const auto [found, added] = layer_bits.try_emplace(site.layer, own);
    found->second = std::min(found->second, own);
  }
  SiteLimits result;
  std::map<std::tuple<Role, Format, ScalePolicy, bool, int>, std::size_t> known;  // thousands of sites share a few
  for (const SiteDescription& site : run.sites) {
    const SiteStorage way = storage_of(site, layer_bits[site.layer]);
    const auto [found, added] =
        known.try_emplace({way.role, way.format, way.policy, way.one_scale, way.layer_bits}, result.sets.size());
    if (added) result.sets.push_back(limits_text(way, config));
    result.set_of_site.push_back(found->second);
  }
  return result;
}

}  // namespace quaver
