#include "config/settings.h"

#include <charconv>
#include <fmt/format.h>
#include <system_error>

#include "config/suggest.h"
#include "config/value_text.h"
#include "quaver/error.h"

namespace quaver {
namespace {

template <class Number>
std::optional<Number> parse_whole(std::string_view text) {
  Number result{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return result;
}

// Text that spells a number or a truth value becomes one when the key asks for it; anything else stays text, which
// conform() then refuses in the key's own words.
Value parse_scalar(ValueType wanted, std::string_view text) {
  if (wanted == ValueType::boolean && (text == "true" || text == "false")) return text == "true";
  if (wanted == ValueType::integer || wanted == ValueType::number) {
    if (const auto n = parse_whole<std::int64_t>(text)) return *n;
    if (const auto x = parse_whole<double>(text)) return *x;
  }
  return std::string(text);
}

std::string_view without_quotes(std::string_view text) {
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return quoted ? text.substr(1, text.size() - 2) : text;
}

// The '=' between name and value: the first outside quotes, since a quoted pattern may hold any character.
std::size_t find_equals(std::string_view flag) {
  char quote = '\0';
  for (std::size_t i = 0; i < flag.size(); ++i) {
    const char c = flag[i];
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '=') {
      return i;
    }
  }
  return std::string_view::npos;
}

// The table that the name enters: "precision.layers" for precision.layers.blocks.0.mlp.
const Key* find_table(std::string_view name) {
  for (const Key& key : schema()) {
    if (key.is_table() && name.size() > key.name.size() && name.starts_with(key.name) && name[key.name.size()] == '.') {
      return &key;
    }
  }
  return nullptr;
}

Setting read_assignment(std::string_view name, std::string_view text, const std::string& where) {
  if (const Key* key = find_key(name)) {
    if (!key->is_table()) return {key, std::nullopt, conform(*key, parse_scalar(key->type, text), where)};
    if (text != "{}") {
      throw Error(
          fmt::format("{}: {}: expected {} or {{}}, found {}", where, key->name, "a pattern after the table's name",
                      quoted_excerpt(text)),
          fmt::format("write {}.\"PATTERN\"=VALUE to set one entry, {}={{}} to drop all", key->name, key->name));
    }
    return {key, std::nullopt, key->type == ValueType::number_table ? Value(NumberTable()) : Value(TextTable())};
  }
  if (const Key* table = find_table(name)) {
    const std::string pattern(without_quotes(name.substr(table->name.size() + 1)));
    const ValueType wanted = table->type == ValueType::number_table ? ValueType::number : ValueType::text;
    return {table, pattern, conform_entry(*table, pattern, parse_scalar(wanted, text), where)};
  }
  reject_unknown_key(name, where);
}

}  // namespace

Setting read_flag(std::string_view flag) {
  const std::string where = "flag " + quoted_excerpt(flag);
  while (flag.starts_with('-')) flag.remove_prefix(1);
  const std::size_t equals = find_equals(flag);
  if (equals == std::string_view::npos) {
    if (find_key(flag) == nullptr && find_table(flag) == nullptr) reject_unknown_key(flag, where);
    throw Error(where + ": expected section.key=value, found no value", "write --section.key=value");
  }
  return read_assignment(flag.substr(0, equals), flag.substr(equals + 1), where);
}

std::vector<Setting> read_preset(const Preset& preset) {
  return read_toml(preset.toml, fmt::format("preset {}", preset.name));
}

void apply(const Setting& setting, Config& config) {
  if (!setting.pattern) {
    setting.key->set(config, setting.value);
  } else {
    Value table = setting.key->get(config);
    if (auto* numbers = std::get_if<NumberTable>(&table)) {
      (*numbers)[*setting.pattern] = std::get<double>(setting.value);
    } else {
      std::get<TextTable>(table)[*setting.pattern] = std::get<std::string>(setting.value);
    }
    setting.key->set(config, table);
  }
}

void reject_unknown_key(std::string_view name, const std::string& where) {
  std::vector<std::string> names;
  for (const Key& key : schema()) names.push_back(key.name);
  const std::string suggestion = did_you_mean(name, names);
  throw Error(
      fmt::format("{}: unknown key {}{}", where, quoted_excerpt(name), suggestion.empty() ? "" : "; " + suggestion),
      "`quaver inspect config` lists every key");
}

}  // namespace quaver
