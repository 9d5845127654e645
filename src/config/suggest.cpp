#include "config/suggest.h"

#include <algorithm>
#include <limits>

namespace quaver {
namespace {

constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

std::string_view last_part(std::string_view name) {
  const auto dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

std::string initials(std::string_view words) {
  std::string result;
  bool at_start = true;
  for (const char c : words) {
    if (at_start) result += c;
    at_start = c == '_' || c == '-';
  }
  return result;
}

// Distance of two undotted names; abbreviations and additions (optimizer for optim, batch_size for batch) are slight.
std::size_t word_distance(std::string_view typed, std::string_view name) {
  const std::size_t edits = edit_distance(typed, name);
  if (edits == 0) return 0;
  const auto& [shorter, longer] = std::minmax(typed, name, [](auto a, auto b) { return a.size() < b.size(); });
  std::size_t best = edits <= std::max<std::size_t>(1, longer.size() / 3) ? edits : never;
  if (shorter.size() >= 3 && longer.starts_with(shorter)) best = std::min<std::size_t>(best, 2);
  if (shorter.size() >= 4 && longer.find(shorter) != std::string_view::npos) best = std::min<std::size_t>(best, 3);
  if (typed.size() >= 2 && typed == initials(name)) best = std::min<std::size_t>(best, 1);
  return best;
}

std::size_t name_distance(std::string_view typed, std::string_view name) {
  std::size_t best = edit_distance(typed, name);
  if (best > std::max<std::size_t>(1, name.size() / 4)) best = never;
  if (typed.find('.') != std::string_view::npos || name.find('.') != std::string_view::npos) {
    const std::string_view typed_last = last_part(typed), name_last = last_part(name);
    const std::size_t last = word_distance(typed_last, name_last);
    const bool same_section =
        typed.substr(0, typed.size() - typed_last.size()) == name.substr(0, name.size() - name_last.size());
    if (last != never) best = std::min(best, last + (same_section ? 0 : 1));
  } else {
    best = std::min(best, word_distance(typed, name));
  }
  return best;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::vector<std::string> closest_names(std::string_view typed, std::span<const std::string> names) {
  constexpr std::size_t longest_worth_comparing = 64;
  std::vector<std::string> result;
  if (typed.empty() || typed.size() > longest_worth_comparing) return result;
  std::size_t best = never;
  for (const std::string& name : names) {
    const std::size_t distance = name_distance(typed, name);
    if (distance == never || distance > best) continue;
    if (distance < best) result.clear();
    best = distance;
    result.push_back(name);
  }
  if (result.size() > 3) result.resize(3);
  return result;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> names) {
  const auto nearest = closest_names(typed, names);
  if (nearest.empty()) return "";
  std::string text = "did you mean ";
  for (std::size_t i = 0; i < nearest.size(); ++i) {
    if (i > 0) text += i + 1 == nearest.size() ? " or " : ", ";
    text += '"' + nearest[i] + '"';
  }
  return text + "?";
}

}  // namespace quaver
