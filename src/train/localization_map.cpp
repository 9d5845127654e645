#include "train/localization_map.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "io/file_io.h"

namespace quaver {

using nlohmann::json;

namespace {

constexpr std::uint64_t largest_map = std::uint64_t{64} << 20U;
constexpr const char* remedy = "name the localization.json that `quaver localize` wrote";

bool is_number_or_null(const json& value) { return value.is_number() || value.is_null(); }

bool is_site(const json& site) {
  if (!site.is_object() || !site.contains("site") || !site["site"].is_string()) return false;
  if (!site.contains("kept_wide") || !site["kept_wide"].is_boolean()) return false;
  for (const char* name : {"loss_change", "gradient_cosine", "sqnr_db", "flops_share"}) {
    if (!site.contains(name) || !is_number_or_null(site[name])) return false;
  }
  return true;
}

bool is_map(const json& map) {
  if (!map.is_object() || !map.contains("sites") || !map["sites"].is_array()) return false;
  for (const char* name : {"recipe", "group"}) {
    if (!map.contains(name) || !map[name].is_string()) return false;
  }
  if (!map.contains("step") || !map["step"].is_number_unsigned()) return false;
  if (!map.contains("baseline_loss") || !is_number_or_null(map["baseline_loss"])) return false;
  return std::all_of(map["sites"].begin(), map["sites"].end(), is_site);
}

}  // namespace

void check_localization_map(std::string_view text, std::string_view source) {
  json map;
  try {
    map = json::parse(text);
  } catch (const json::exception& error) {
    throw Error(fmt::format("{} is not JSON: {}", source, error.what()), remedy);
  }
  if (!is_map(map)) throw Error(fmt::format("{} is not a map of sensitivities", source), remedy);
}

std::string read_localization_map(const std::filesystem::path& path) {
  std::string text = read_file(path, largest_map);
  check_localization_map(text, path.string());
  return text;
}

}  // namespace quaver
