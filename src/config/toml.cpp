// The one file that knows the TOML parser.
#include <algorithm>
#include <fmt/format.h>
#include <toml++/toml.h>

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
    if (!key.is_table()) {
      settings_.push_back({&key, std::nullopt, conform(key, scalar(key, node), place(node.source()))});
      return;
    }
    const toml::table* table = node.as_table();
    if (table == nullptr) reject(key, describe(node), place(node.source()));
    Value entries = key.type == ValueType::number_table ? Value(NumberTable()) : Value(TextTable());
    read_entries(key, "", *table, entries);
    settings_.push_back({&key, std::nullopt, std::move(entries)});
  }

  // A pattern without quotes, blocks.0.mlp, is to TOML a table in a table; its parts are put together again.
  void read_entries(const Key& key, const std::string& prefix, const toml::table& table, Value& entries) const {
    for (const auto& [part, node] : in_file_order(table)) {
      const std::string pattern = fmt::format("{}{}{}", prefix, prefix.empty() ? "" : ".", part->str());
      if (const toml::table* nested = node->as_table()) {
        read_entries(key, pattern, *nested, entries);
        continue;
      }
      const std::string where = place(node->source());
      const Value value = conform_entry(key, pattern, scalar(key, *node), where);
      const bool is_new = std::visit(
          [&](auto& held) {
            if constexpr (requires { typename std::decay_t<decltype(held)>::mapped_type; }) {
              using Mapped = typename std::decay_t<decltype(held)>::mapped_type;
              return held.emplace(pattern, std::get<Mapped>(value)).second;
            }
            return false;
          },
          entries);
      if (!is_new) {
        throw Error(fmt::format("{}: {}: the pattern {} is given twice", where, key.name, quoted_excerpt(pattern)),
                    "keep one of the two");
      }
    }
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
