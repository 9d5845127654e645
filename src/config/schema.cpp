#include "config/schema.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <unordered_map>

#include "config/keys.h"
#include "config/recipe_table.h"
#include "config/suggest.h"
#include "config/value_text.h"
#include "quaver/error.h"

namespace quaver {
namespace {

std::string describe_range(const IntegerRange& range) {
  using Limits = std::numeric_limits<std::int64_t>;
  if (range.high == Limits::max()) {
    return range.low == Limits::min() ? "" : fmt::format(" of at least {}", range.low);
  }
  return fmt::format(" from {} to {}", range.low, range.high);
}

std::string describe_range(const NumberRange& range) {
  const bool limited = range.low > NumberRange{}.low && range.high < NumberRange{}.high;
  if (limited && range.low_end == RangeEnd::closed && range.high_end == RangeEnd::closed) {
    return fmt::format(" from {} to {}", number_text(range.low), number_text(range.high));
  }
  std::vector<std::string> parts;
  if (range.low > NumberRange{}.low) {
    parts.push_back((range.low_end == RangeEnd::open ? "above " : "of at least ") + number_text(range.low));
  }
  if (range.high < NumberRange{}.high) {
    parts.push_back((range.high_end == RangeEnd::open ? "below " : "at most ") + number_text(range.high));
  }
  return parts.empty() ? "" : fmt::format(" {}", fmt::join(parts, " and "));
}

bool contains(const IntegerRange& range, std::int64_t x) { return x >= range.low && x <= range.high; }

bool contains(const NumberRange& range, double x) {
  const bool above_low = range.low_end == RangeEnd::open ? x > range.low : x >= range.low;
  const bool below_high = range.high_end == RangeEnd::open ? x < range.high : x <= range.high;
  return std::isfinite(x) && above_low && below_high;
}

// A number, exactly: an integer that no double holds is refused rather than rounded.
std::optional<double> exact_number(const Value& given) {
  if (const double* x = std::get_if<double>(&given)) return *x;
  if (const std::int64_t* n = std::get_if<std::int64_t>(&given)) {
    constexpr std::int64_t exact = std::int64_t{1} << std::numeric_limits<double>::digits;
    if (*n >= -exact && *n <= exact) return static_cast<double>(*n);
  }
  return std::nullopt;
}

[[noreturn]] void reject_as(const Key& key, const std::string& expected, const std::string& found,
                            const std::string& where, const std::string& hint) {
  throw Error(fmt::format("{}: {}: expected {}, found {}", where, key.name, expected, found),
              fmt::format("{}{}: {}", hint.empty() ? "" : hint + " ", key.name, key.doc));
}

std::string checked_text(const Key& key, const Value& given, const std::string& where) {
  const std::string* text = std::get_if<std::string>(&given);
  if (text == nullptr) reject(key, describe_value(given), where);
  if (!is_plain_text(*text)) reject(key, quoted_excerpt(*text) + ", which is not UTF-8 text without NUL", where);
  return *text;
}

Value conform_table(const Key& key, const Value& given, const std::string& where) {
  if (key.type == ValueType::recipe_table) {
    const RecipeTable* table = std::get_if<RecipeTable>(&given);
    if (table == nullptr) reject(key, describe_value(given), where);
    for (const auto& [name, recipe] : *table) {
      check_recipe_name(name, where);
      check(recipe, fmt::format("{}: recipes.{}", where, name));
      checked_text(key, recipe.summary, where);
    }
  } else if (key.type == ValueType::number_table) {
    const NumberTable* table = std::get_if<NumberTable>(&given);
    if (table == nullptr) reject(key, describe_value(given), where);
    for (const auto& [pattern, number] : *table) conform_entry(key, pattern, number, where);
  } else {
    const TextTable* table = std::get_if<TextTable>(&given);
    if (table == nullptr) reject(key, describe_value(given), where);
    for (const auto& [pattern, text] : *table) conform_entry(key, pattern, text, where);
  }
  return given;
}

}  // namespace

std::string_view Key::section() const {
  const auto dot = name.find('.');
  return dot == std::string::npos ? std::string_view() : std::string_view(name).substr(0, dot);
}

std::string_view Key::leaf() const {
  const auto dot = name.find('.');
  return dot == std::string::npos ? std::string_view(name) : std::string_view(name).substr(dot + 1);
}

const std::vector<Key>& schema() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

const Key* find_key(std::string_view name) {
  static const auto index = [] {
    std::unordered_map<std::string_view, const Key*> result;
    for (const Key& key : schema()) result.emplace(key.name, &key);
    return result;
  }();
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

const std::vector<std::string>& section_names() {
  static const auto names = [] {
    std::vector<std::string> result;
    for (const Key& key : schema()) {
      const bool is_new = !key.section().empty() && (result.empty() || result.back() != key.section());
      if (is_new) result.emplace_back(key.section());
    }
    return result;
  }();
  return names;
}

Value default_of(const Key& key) { return key.get(Config{}); }

Value empty_table(const Key& key) {
  if (key.type == ValueType::number_table) return NumberTable();
  if (key.type == ValueType::recipe_table) return RecipeTable();
  return TextTable();
}

std::string joined_choices(const Key& key, std::string_view separator) {
  std::vector<std::string> shown = key.choices;
  for (std::string& choice : shown) choice = choice.empty() ? "\"\"" : choice;
  return fmt::format("{}", fmt::join(shown, separator));
}

std::string describe_type(const Key& key) {
  switch (key.type) {
    case ValueType::boolean:
      return "true or false";
    case ValueType::integer:
      return "an integer" + describe_range(key.integers);
    case ValueType::number:
      return "a number" + describe_range(key.numbers);
    case ValueType::text:
      return "text";
    case ValueType::choice:
    case ValueType::recipe:
      return "one of " + joined_choices(key, ", ");
    case ValueType::number_table:
      return "a table from patterns to numbers" + describe_range(key.numbers);
    case ValueType::text_table:
      return "a table from patterns to text";
    case ValueType::recipe_table:
      return "a table for each recipe";
  }
  return "";
}

void reject(const Key& key, const std::string& found, const std::string& where) {
  reject_as(key, describe_type(key), found, where, "");
}

Value conform(const Key& key, const Value& given, const std::string& where) {
  switch (key.type) {
    case ValueType::boolean:
      if (!std::holds_alternative<bool>(given)) break;
      return given;
    case ValueType::integer:
      if (const auto* n = std::get_if<std::int64_t>(&given); n == nullptr || !contains(key.integers, *n)) break;
      return given;
    case ValueType::number:
      if (const auto x = exact_number(given); x && contains(key.numbers, *x)) return *x;
      break;
    case ValueType::text:
    case ValueType::recipe:
      return checked_text(key, given, where);
    case ValueType::choice: {
      const std::string* name = std::get_if<std::string>(&given);
      if (name == nullptr) break;
      if (std::ranges::find(key.choices, *name) != key.choices.end()) return given;
      reject_as(key, describe_type(key), quoted_excerpt(*name), where, did_you_mean(*name, key.choices));
    }
    case ValueType::number_table:
    case ValueType::text_table:
    case ValueType::recipe_table:
      return conform_table(key, given, where);
  }
  reject(key, describe_value(given), where);
}

Value conform_entry(const Key& key, const std::string& pattern, const Value& given, const std::string& where) {
  Key entry = key;
  entry.name = fmt::format("{}.{}", key.name, quoted_excerpt(pattern));
  if (pattern.empty() || !is_plain_text(pattern)) {
    throw Error(fmt::format("{}: {}: expected a pattern of names, found {}", where, key.name, quoted_excerpt(pattern)),
                key.name + ": " + key.doc);
  }
  entry.type = key.type == ValueType::number_table ? ValueType::number
               : key.choices.empty()               ? ValueType::text
                                                   : ValueType::recipe;
  return conform(entry, given, where);
}

bool operator==(const Config& a, const Config& b) {
  return std::ranges::all_of(schema(), [&](const Key& key) { return key.get(a) == key.get(b); });
}

}  // namespace quaver
