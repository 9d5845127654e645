// The scale book as JSON: in checkpoints, and as the file that moves scales between runs.
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "precision/json_names.h"
#include "precision/scale_book.h"
#include "precision/spec_json.h"
#include "quaver/error.h"

namespace quaver {

using nlohmann::json;

namespace {

constexpr int book_version = 2;
constexpr Names<ChangeCause, 3> causes{
    {{ChangeCause::made, "made"}, {ChangeCause::history, "history"}, {ChangeCause::reversal, "reversal"}}};

json to_json_change(const ScaleChange& change) {
  json value{{"step", change.step},
             {"scale_before", change.scale_before},
             {"scale_after", change.scale_after},
             {"spec_before", spec_to_json(change.spec_before)},
             {"spec_after", spec_to_json(change.spec_after)},
             {"reason", change.reason},
             {"cause", name_in(causes, change.cause)}};
  if (!change.history_before.empty()) value["history_before"] = change.history_before;
  return value;
}

json to_json_entry(const ScaleEntry& entry) {
  json changes = json::array();
  for (const ScaleChange& change : entry.changes) changes.push_back(to_json_change(change));
  return {{"role", name_of(entry.site.role)},
          {"spec", spec_to_json(entry.site.spec)},
          {"scale", entry.site.scale},
          {"dequantize", entry.site.scale > 0 ? 1.0F / entry.site.scale : 1.0F},
          {"history", entry.history},
          {"pending_amax", entry.site.seen.amax},
          {"pending_count", entry.site.seen.count},
          {"pending_nonfinite", entry.site.seen.nonfinite},
          {"pending_saturated", entry.site.seen.saturated},
          {"pending_underflowed", entry.site.seen.underflowed},
          {"elements", entry.elements},
          {"saturated", entry.saturated},
          {"underflowed", entry.underflowed},
          {"nonfinite", entry.nonfinite},
          {"overflow_streak", entry.overflow_streak},
          {"changes", std::move(changes)}};
}

float finite_scale(const json& value, const std::string& site) {
  const auto scale = value.get<float>();
  if (!std::isfinite(scale) || scale < 0) {
    throw Error(site + ": the scale " + std::to_string(scale) + " is not a finite positive number",
                "write the scale file again from a healthy run");
  }
  return scale;
}

std::deque<float> finite_history(const json& value, const std::string& site, int limit) {
  std::deque<float> history;
  for (const json& amax : value) history.push_back(finite_scale(amax, site));
  while (history.size() > static_cast<std::size_t>(limit)) history.pop_front();
  return history;
}

ScaleChange restored_change(const json& from, const std::string& site, int history) {
  ScaleChange change{integer_in<std::uint64_t>(from.at("step")),
                     finite_scale(from.at("scale_before"), site),
                     finite_scale(from.at("scale_after"), site),
                     spec_from_json(from.at("spec_before")),
                     spec_from_json(from.at("spec_after")),
                     from.at("reason").get<std::string>(),
                     value_in(causes, from.at("cause").get<std::string>())};
  if (!from.contains("history_before")) return change;
  const std::deque<float> before = finite_history(from.at("history_before"), site, history);
  change.history_before.assign(before.begin(), before.end());
  return change;
}

void restore_entry(const json& from, ScaleEntry& entry, int history) {
  entry.site.spec = spec_from_json(from.at("spec"));
  entry.site.scale = finite_scale(from.at("scale"), entry.site.name);
  entry.history = finite_history(from.at("history"), entry.site.name, history);
  entry.site.seen = {};
  entry.site.seen.amax = finite_scale(from.at("pending_amax"), entry.site.name);
  entry.site.seen.count = integer_in<std::uint64_t>(from.at("pending_count"));
  entry.site.seen.nonfinite = integer_in<std::uint64_t>(from.at("pending_nonfinite"));
  entry.site.seen.saturated = integer_in<std::uint64_t>(from.at("pending_saturated"));
  entry.site.seen.underflowed = integer_in<std::uint64_t>(from.at("pending_underflowed"));
  entry.elements = integer_in<std::uint64_t>(from.at("elements"));
  entry.saturated = integer_in<std::uint64_t>(from.at("saturated"));
  entry.underflowed = integer_in<std::uint64_t>(from.at("underflowed"));
  entry.nonfinite = integer_in<std::uint64_t>(from.at("nonfinite"));
  entry.overflow_streak = integer_in<int>(from.at("overflow_streak"));
  entry.changes.clear();
  for (const json& change : from.at("changes"))
    entry.changes.push_back(restored_change(change, entry.site.name, history));
}

// Read as it is meant, not compared as JSON: a file may hold anything, nested as deep as it likes.
StoredSite stored_site(const json& from, const std::string& site) {
  return {finite_scale(from.at("scale"), site), spec_from_json(from.at("spec"))};
}

json parse_book(std::string_view text) {
  try {
    json book = json::parse(text);
    if (book.value("version", 0) != book_version || !book.at("sites").is_object()) {
      throw Error("this is not a scale file of version " + std::to_string(book_version),
                  "write it with the version of quaver that reads it");
    }
    return book;
  } catch (const json::exception& error) {
    throw Error(std::string("the scale file is not readable: ") + error.what(), "export it again");
  }
}

}  // namespace

std::string ScaleBook::to_json() const {
  json sites = json::object();
  for (const auto& entry : entries_) sites[entry->site.name] = to_json_entry(*entry);
  return json{{"version", book_version}, {"sites", std::move(sites)}}.dump(1);
}

std::vector<std::string> ScaleBook::from_json(std::string_view text, Import what, std::uint64_t step) {
  const json book = parse_book(text);
  std::vector<std::string> missing;
  try {
    for (const auto& entry : entries_) {
      const auto found = book.at("sites").find(entry->site.name);
      if (found == book.at("sites").end()) {
        missing.push_back(entry->site.name);
      } else if (what == Import::everything) {
        restore_entry(*found, *entry, rules_.history);
      } else {
        entry->history = finite_history(found->at("history"), entry->site.name, rules_.history);
        set_scale(entry->site.name, finite_scale(found->at("scale"), entry->site.name), step, "imported");
      }
    }
  } catch (const json::exception& error) {
    throw Error(std::string("the scale file is damaged: ") + error.what(), "export it again");
  }
  return missing;
}

std::vector<SiteDifference> compare_books(std::string_view json_a, std::string_view json_b) {
  const json a = parse_book(json_a);
  const json b = parse_book(json_b);
  std::vector<SiteDifference> differences;
  try {
    const json& first = a.at("sites");
    const json& second = b.at("sites");
    for (const auto& [site, left] : first.items()) {
      const auto right = second.find(site);
      SiteDifference difference{site, stored_site(left, site), std::nullopt};
      if (right != second.end()) difference.second = stored_site(*right, site);
      if (difference.first != difference.second) differences.push_back(std::move(difference));
    }
    for (const auto& [site, right] : second.items()) {
      if (!first.contains(site)) differences.push_back({site, std::nullopt, stored_site(right, site)});
    }
  } catch (const json::exception& error) {
    throw Error(std::string("a scale file is damaged: ") + error.what(), "export it again");
  }
  return differences;
}

}  // namespace quaver
