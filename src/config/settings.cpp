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

// The value is TOML. What else it might hold behind a line's end is no part of the recipe.
Setting read_recipe(const std::string& name, std::string_view text, const std::string& where) {
  if (text.find_first_of("\r\n") != std::string_view::npos) {
    throw Error(fmt::format("{}: recipes.{}: expected a recipe on one line, found more", where, quoted_excerpt(name)),
                "write recipes.NAME={ x = \"e4m3 row current\", w = …, dy = … }");
  }
  return read_toml(fmt::format("recipes.{} = {}", toml_string(name), text), where).at(0);
}

Setting read_assignment(std::string_view name, std::string_view text, const std::string& where) {
  if (const Key* key = find_key(name)) {
    if (!key->is_table()) return {key, std::nullopt, conform(*key, parse_scalar(key->type, text), where), where};
    if (text != "{}") {
      throw Error(
          fmt::format("{}: {}: expected {} or {{}}, found {}", where, key->name, "a pattern after the table's name",
                      quoted_excerpt(text)),
          fmt::format("write {}.\"PATTERN\"=VALUE to set one entry, {}={{}} to drop all", key->name, key->name));
    }
    return {key, std::nullopt, empty_table(*key), where};
  }
  if (const Key* table = find_table(name)) {
    const std::string pattern(without_quotes(name.substr(table->name.size() + 1)));
    if (table->type == ValueType::recipe_table) return read_recipe(pattern, text, where);
    const ValueType wanted = table->type == ValueType::number_table ? ValueType::number : ValueType::text;
    return {table, pattern, conform_entry(*table, pattern, parse_scalar(wanted, text), where), where};
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
    } else if (auto* recipes = std::get_if<RecipeTable>(&table)) {
      (*recipes)[*setting.pattern] = std::get<RecipeTable>(setting.value).at(*setting.pattern);
    } else {
      std::get<TextTable>(table)[*setting.pattern] = std::get<std::string>(setting.value);
    }
    setting.key->set(config, table);
  }
}

void check_recipe_names(const Setting& setting, const RecipeTable& defined) {
  if (!setting.key->names_recipes()) return;
  if (const TextTable* table = std::get_if<TextTable>(&setting.value)) {
    for (const auto& [pattern, name] : *table) check_recipe_names({setting.key, pattern, name, setting.where}, defined);
    return;
  }
  Key named = *setting.key;
  named.type = ValueType::choice;
  if (setting.pattern) named.name += "." + quoted_excerpt(*setting.pattern);
  for (const auto& [name, recipe] : defined) named.choices.push_back(name);
  conform(named, setting.value, setting.where);
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
