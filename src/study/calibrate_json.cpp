// A calibration as a scale file, and the drift between two such files.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "precision/scale_book.h"
#include "quaver/error.h"
#include "study/calibrate.h"

namespace quaver {

using nlohmann::json;

namespace {

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

std::string reason_for(const SiteRange& range, const Calibration& calibration) {
  return fmt::format("calibrated: {} of {:.4g}, {} binade{} of headroom, {} batches of {}",
                     calibration.percentile >= 100 ? "amax" : fmt::format("percentile {:g}", calibration.percentile),
                     range.threshold, calibration.margin, calibration.margin == 1 ? "" : "s", calibration.steps.size(),
                     calibration.source);
}

ScaleBook book_of(const Calibration& calibration) {
  ScaleBook book({.history = static_cast<int>(calibration.steps.size())});
  for (const SiteRange& range : calibration.sites) {
    book.add({range.site, range.layer, range.role, calibration.recipe, "calibrated", range.spec});
    ScaleEntry& entry = book.entry(range.site);
    entry.history.assign(range.batch_amax.begin(), range.batch_amax.end());
    if (!range.has_scale()) continue;
    book.set_scale(range.site, range.scale, static_cast<std::uint64_t>(calibration.last_step),
                   reason_for(range, calibration));
  }
  return book;
}

json entry_of(const SiteRange& range, const Calibration& calibration) {
  const CastStatistics& seen = range.seen;
  json entry{{"amax", seen.amax},
             {"min_nonzero", number(seen.min_nonzero)},
             {"rms", seen.rms()},
             {"nonfinite", seen.nonfinite},
             {"threshold", range.threshold},
             {"percentile", calibration.percentile},
             {"margin", calibration.margin},
             {"format", range.format().name},
             {"batches", calibration.steps.size()},
             {"tokens", calibration.tokens},
             {"first_binade", lowest_binade},
             {"binades", seen.binades}};
  if (!range.has_scale()) return entry;
  const PercentileEffect effect = effect_of(range, calibration.percentile, calibration.margin);
  entry["saturated_percent"] = effect.saturated_percent;
  entry["underflow_percent"] = number(effect.underflow_percent);
  entry["sqnr_db"] = number(effect.sqnr_db);
  return entry;
}

struct KnownRange {
  float amax = 0;
  float scale = 0;
};

float positive(const json& value) {
  const auto number = value.get<float>();
  return std::isfinite(number) && number > 0 ? number : 0.0F;
}

// A calibration says the range; of other scale files the history does.
KnownRange range_in(const json& site) {
  KnownRange range;
  range.scale = positive(site.at("scale"));
  if (const auto calibrated = site.find("calibration"); calibrated != site.end()) {
    range.amax = positive(calibrated->at("amax"));
    return range;
  }
  for (const json& amax : site.at("history")) range.amax = std::max(range.amax, positive(amax));
  return range;
}

std::map<std::string, KnownRange> ranges_in(std::string_view text, const std::string& name) {
  try {
    const json file = json::parse(text);
    std::map<std::string, KnownRange> ranges;
    for (const auto& [site, value] : file.at("sites").items()) ranges[site] = range_in(value);
    return ranges;
  } catch (const json::exception& error) {
    throw Error(name + " is not a scale file: " + error.what(),
                "name a file that `quaver calibrate` or a finished run (scales.json) wrote");
  }
}

}  // namespace

std::string to_scale_file(const Calibration& calibration) {
  json file = json::parse(book_of(calibration).to_json());
  for (const SiteRange& range : calibration.sites) {
    file["sites"][range.site]["calibration"] = entry_of(range, calibration);
  }
  json losses = json::array();
  for (const double loss : calibration.losses) losses.push_back(number(loss));
  file["calibration"] = {{"recipe", calibration.recipe},       {"source", calibration.source},
                         {"config_hash", calibration.hash},    {"checkpoint_step", calibration.first_step},
                         {"last_step", calibration.last_step}, {"batches", calibration.steps.size()},
                         {"batch_steps", calibration.steps},   {"losses", losses},
                         {"tokens", calibration.tokens},       {"percentile", calibration.percentile},
                         {"margin", calibration.margin},       {"quaver", QUAVER_VERSION}};
  if (!calibration.accuracies.empty()) file["calibration"]["accuracies"] = calibration.accuracies;
  return file.dump(1);
}

std::map<std::string, float> amaxes_in(std::string_view scale_file, const std::string& name) {
  std::map<std::string, float> amaxes;
  for (const auto& [site, range] : ranges_in(scale_file, name)) amaxes[site] = range.amax;
  return amaxes;
}

Drift drift_since(std::string_view file_before, const std::string& name_before, const Calibration& now) {
  std::map<std::string, KnownRange> before = ranges_in(file_before, name_before);
  Drift drift;
  for (const SiteRange& range : now.sites) {
    const auto found = before.find(range.site);
    if (found == before.end() || found->second.amax == 0 || range.seen.amax == 0) {
      if (found == before.end()) drift.only_now.push_back(range.site);
    } else {
      const auto [amax, scale] = found->second;
      const double headroom = std::log2(static_cast<double>(range.format().max) / range.seen.amax / scale);
      drift.sites.push_back({range.site, amax, range.seen.amax, std::log2(static_cast<double>(range.seen.amax) / amax),
                             scale > 0 ? headroom : std::nan("")});
    }
    if (found != before.end()) before.erase(found);
  }
  for (const auto& [site, range] : before) drift.only_before.push_back(site);
  std::stable_sort(drift.sites.begin(), drift.sites.end(),
                   [](const SiteDrift& a, const SiteDrift& b) { return std::abs(a.binades) > std::abs(b.binades); });
  return drift;
}

}  // namespace quaver
