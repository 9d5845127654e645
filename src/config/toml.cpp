// The one file that knows the TOML parser.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <toml++/toml.h>

#include "config/recipe_table.h"
#include "config/settings.h"
#include "config/suggest.h"
#include "config/value_text.h"
#include "quaver/error.h"

namespace quaver {
namespace {

struct Entry {
  const toml::key* key;
  const toml::node* node;
};

// The parser keeps tables sorted by name; the first mistake reported should be the first in the file.
std::vector<Entry> in_file_order(const toml::table& table) {
  std::vector<Entry> entries;
  for (const auto& [key, node] : table) entries.push_back({&key, &node});
  const auto position = [](const Entry& entry) {
    const auto& begin = entry.key->source().begin;
    return std::pair(begin.line, begin.column);
  };
  std::ranges::stable_sort(entries, {}, position);
  return entries;
}

// Position after the string that starts at `begin`, or the end of the text when it is never closed.
std::size_t skip_string(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  const bool multiline = text.substr(begin, 3) == std::string(3, quote);
  const std::string_view closing = text.substr(begin, multiline ? 3 : 1);
  for (std::size_t i = begin + closing.size(); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (text.substr(i).starts_with(closing)) {
      i += closing.size();
      // Up to two quotes of the content may stand right before a multi-line string's closing ones.
      for (int extra = 0; multiline && extra < 2 && i < text.size() && text[i] == quote; ++extra) ++i;
      return i;
    } else if (text[i] == '\n' && !multiline) {
      return i;
    }
  }
  return text.size();
}

// Each dot of an unquoted key is a table in a table, and the parser's tables are destroyed by recursion: a key of a
// million dots would overflow the stack before any check of ours could see it.
void refuse_deep_keys(std::string_view text, const std::string& name) {
  constexpr int most_dots = 16;
  std::ptrdiff_t line = 1;
  int dots = 0;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    std::size_t end = i + 1;
    if (c == '"' || c == '\'') end = skip_string(text, i);
    if (c == '#') end = std::min(text.find('\n', i), text.size());
    if (c == '\n') dots = 0;
    if (c == '.' && ++dots > most_dots) {
      throw Error(fmt::format("{}:{}: more than {} dots outside of quotes in one line", name, line, most_dots),
                  "a key is section.name; put quotes around patterns");
    }
    line += std::ranges::count(text.substr(i, end - i), '\n');
    i = end;
  }
}

class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  std::vector<Setting> read(const toml::table& root) {
    for (const auto& [key, node] : in_file_order(root)) {
      const std::string section(key->str());
      if (std::ranges::find(section_names(), section) != section_names().end()) {
        read_section(section, *node);
      } else if (const Key* known = find_key(section); known != nullptr && section.find('.') == std::string::npos) {
        read_value(*known, *node);
      } else if (node->is_table() && section.find('.') == std::string::npos) {
        reject_section(section, key->source());
      } else {
        reject_name(section, section, key->source());
      }
    }
    return std::move(settings_);
  }

 private:
  std::string place(const toml::source_region& region) const {
    return fmt::format("{}:{}:{}", name_, region.begin.line, region.begin.column);
  }

  void read_section(const std::string& section, const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      throw Error(
          fmt::format("{}: {} is a section: expected a table, found {}", place(node.source()), section, describe(node)),
          fmt::format("write [{}] on a line of its own and its keys below", section));
    }
    for (const auto& [key, value] : in_file_order(*table)) {
      const std::string leaf(key->str());
      const std::string name = fmt::format("{}.{}", section, leaf);
      const Key* known = find_key(name);
      if (known == nullptr || known->leaf() != leaf) reject_name(name, leaf, key->source());
      read_value(*known, *value);
    }
  }

  void read_value(const Key& key, const toml::node& node) {
    const std::string where = place(node.source());
    if (!key.is_table()) {
      settings_.push_back({&key, std::nullopt, conform(key, scalar(key, node), where), where});
      return;
    }
    const toml::table* table = node.as_table();
    if (table == nullptr) reject(key, describe(node), where);
    if (key.type == ValueType::recipe_table) return read_recipes(key, *table);
    settings_.push_back({&key, std::nullopt, empty_table(key), where});
    std::set<std::string> patterns;
    read_entries(key, "", *table, patterns);
  }

  // A pattern without quotes, blocks.0.mlp, is to TOML a table in a table; its parts are put together again.
  void read_entries(const Key& key, const std::string& prefix, const toml::table& table,
                    std::set<std::string>& patterns) {
    for (const auto& [part, node] : in_file_order(table)) {
      const std::string pattern = fmt::format("{}{}{}", prefix, prefix.empty() ? "" : ".", part->str());
      if (const toml::table* nested = node->as_table()) {
        read_entries(key, pattern, *nested, patterns);
        continue;
      }
      const std::string where = place(node->source());
      settings_.push_back({&key, pattern, conform_entry(key, pattern, scalar(key, *node), where), where});
      if (!patterns.insert(pattern).second) {
        throw Error(fmt::format("{}: {}: the pattern {} is given twice", where, key.name, quoted_excerpt(pattern)),
                    "keep one of the two");
      }
    }
  }

  // Each is a setting of its own: the recipes of several files add up.
  void read_recipes(const Key& key, const toml::table& table) {
    for (const auto& [name, node] : in_file_order(table)) {
      const std::string where = place(name->source());
      check_recipe_name(name->str(), where);
      const Recipe recipe = read_recipe(std::string(name->str()), *node, where);
      settings_.push_back({&key, recipe.name, RecipeTable{{recipe.name, recipe}}, where});
    }
  }

  Recipe read_recipe(const std::string& name, const toml::node& node, const std::string& where) const {
    const std::string title = "recipes." + name;
    const toml::table& table = table_of(title, node);
    Recipe recipe{.name = name};
    for (const auto& [key, value] : in_file_order(table)) {
      const std::string word(key->str());
      const std::string part = fmt::format("{}.{}", title, word);
      if (word == "summary") {
        recipe.summary = text_of(part, *value);
      } else if (word == "wide_start" || word == "wide_tail") {
        (word == "wide_start" ? recipe.wide_start : recipe.wide_tail) = share_of(part, *value);
      } else if (word == "x" || word == "w" || word == "dy") {
        (word == "x" ? recipe.x : word == "w" ? recipe.w : recipe.dy) = site_of(part, *value);
      } else {
        reject_word(title, word, recipe_keys(), place(key->source()));
      }
    }
    require_keys(title, table, {"x", "w", "dy"}, where);
    check(recipe, fmt::format("{}: {}", where, title));
    return recipe;
  }

  // One text for both sides, or one for each.
  SiteSpec site_of(const std::string& title, const toml::node& node) const {
    if (node.is_string()) {
      const QuantSpec spec = spec_of(title, node);
      return {spec, spec};
    }
    if (!node.is_table()) reject_value(title, "text, or a table of rowwise and columnwise", node);
    const toml::table& table = *node.as_table();
    SiteSpec site;
    for (const auto& [key, value] : in_file_order(table)) {
      const std::string word(key->str());
      if (word != "rowwise" && word != "columnwise") {
        reject_word(title, word, sides(), place(key->source()));
      }
      (word == "rowwise" ? site.rows : site.columns) = spec_of(fmt::format("{}.{}", title, word), *value);
    }
    require_keys(title, table, sides(), place(node.source()));
    return site;
  }

  QuantSpec spec_of(const std::string& title, const toml::node& node) const {
    const std::string text = text_of(title, node);
    try {
      return parse_quant_spec(text);
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {} = {}: {}", place(node.source()), title, quoted_excerpt(text), error.what()),
                  error.remedy());
    }
  }

  static const std::vector<std::string>& sides() {
    static const std::vector<std::string> names{"rowwise", "columnwise"};
    return names;
  }

  const toml::table& table_of(const std::string& title, const toml::node& node) const {
    const toml::table* table = node.as_table();
    if (table == nullptr) reject_value(title, "a table", node);
    return *table;
  }

  std::string text_of(const std::string& title, const toml::node& node) const {
    const auto* text = node.as_string();
    if (text == nullptr || !is_plain_text(text->get())) reject_value(title, "text", node);
    return text->get();
  }

  double share_of(const std::string& title, const toml::node& node) const {
    const auto share = node.is_number() ? node.value<double>() : std::nullopt;
    if (!share || !(*share >= 0 && *share <= 1)) reject_value(title, "a number from 0 to 1", node);
    return *share;
  }

  static void require_keys(const std::string& title, const toml::table& table, const std::vector<std::string>& keys,
                           const std::string& where) {
    for (const std::string& key : keys) {
      if (table.contains(key)) continue;
      throw Error(fmt::format("{}: {}: expected {}, found no {}", where, title, fmt::join(keys, ", "), key),
                  "`quaver inspect recipes` prints the recipes that are built in as examples");
    }
  }

  [[noreturn]] void reject_value(const std::string& title, const std::string& expected, const toml::node& node) const {
    throw Error(fmt::format("{}: {}: expected {}, found {}", place(node.source()), title, expected, describe(node)),
                "`quaver inspect recipes` prints the recipes that are built in as examples");
  }

  [[noreturn]] static void reject_word(const std::string& title, const std::string& word,
                                       const std::vector<std::string>& known, const std::string& where) {
    const std::string suggestion = did_you_mean(word, known);
    throw Error(fmt::format("{}: {}: expected {}, found {}{}", where, title, fmt::join(known, ", "),
                            quoted_excerpt(word), suggestion.empty() ? "" : "; " + suggestion),
                "`quaver inspect recipes` prints the recipes that are built in as examples");
  }

  Value scalar(const Key& key, const toml::node& node) const {
    if (const auto* value = node.as_boolean()) return value->get();
    if (const auto* value = node.as_integer()) return value->get();
    if (const auto* value = node.as_floating_point()) return value->get();
    if (const auto* value = node.as_string()) return value->get();
    reject(key, describe(node), place(node.source()));
  }

  static std::string describe(const toml::node& node) {
    switch (node.type()) {
      case toml::node_type::table:
        return "a table";
      case toml::node_type::array:
        return "an array";
      case toml::node_type::date:
      case toml::node_type::time:
      case toml::node_type::date_time:
        return "a date or time";
      case toml::node_type::string:
        return describe_value(node.as_string()->get());
      case toml::node_type::integer:
        return describe_value(node.as_integer()->get());
      case toml::node_type::floating_point:
        return describe_value(node.as_floating_point()->get());
      case toml::node_type::boolean:
        return describe_value(node.as_boolean()->get());
      case toml::node_type::none:
        break;
    }
    return "nothing";
  }

  [[noreturn]] void reject_section(const std::string& section, const toml::source_region& region) const {
    const std::string suggestion = did_you_mean(section, section_names());
    throw Error(fmt::format("{}: unknown section {}{}", place(region), quoted_excerpt(section),
                            suggestion.empty() ? "" : "; " + suggestion),
                fmt::format("the sections are {}", fmt::join(section_names(), ", ")));
  }

  // A quoted key with a dot in it is one word to TOML, not a section and a key.
  [[noreturn]] void reject_name(const std::string& name, const std::string& word,
                                const toml::source_region& region) const {
    if (find_key(name) != nullptr || find_key(word) != nullptr) {
      throw Error(
          fmt::format("{}: unknown key {}; did you mean the same without quotes?", place(region), quoted_excerpt(name)),
          "in TOML a dot inside quotes does not separate section and key");
    }
    reject_unknown_key(name, place(region));
  }

  std::string name_;
  std::vector<Setting> settings_;
};

}  // namespace

std::vector<Setting> read_toml(std::string_view text, const std::string& name) {
  refuse_deep_keys(text, name);
  try {
    return Reader(name).read(toml::parse(text, name));
  } catch (const toml::parse_error& error) {
    const auto& begin = error.source().begin;
    throw Error(fmt::format("{}:{}:{}: {}", name, begin.line, begin.column, error.description()),
                "the file is not TOML: text needs quotes, a section is [name], a setting is key = value");
  }
}

}  // namespace quaver
