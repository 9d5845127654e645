#include "config/dump.h"

#include <fmt/format.h>
#include <utility>
#include <vector>

#include "config/recipe_table.h"
#include "config/schema.h"
#include "config/value_text.h"
#include "data/hash.h"

namespace quaver {
namespace {

// Tables have a header of their own, after the section's plain keys. An empty one is written too: it says that there is
// nothing, where leaving it out would say that the preset decides.
std::string table_text(const Key& key, const Value& value) {
  if (const auto* recipes = std::get_if<RecipeTable>(&value)) {  // no preset has any
    std::string text;
    for (const auto& [name, recipe] : *recipes) text += "\n" + recipe_toml(recipe);
    return text;
  }
  std::string text = fmt::format("\n[{}]\n", key.name);
  const auto append = [&](const auto& table) {
    for (const auto& [pattern, entry] : table)
      text += fmt::format("{} = {}\n", toml_string(pattern), toml_value(entry));
  };
  if (const auto* numbers = std::get_if<NumberTable>(&value)) append(*numbers);
  if (const auto* texts = std::get_if<TextTable>(&value)) append(*texts);
  return text;
}

// The config as TOML without one of its sections.
std::string text_without(const Config& config, std::string_view left_out) {
  std::string plain, tables, text;
  const auto flush = [&] {
    text += plain + tables;
    plain.clear();
    tables.clear();
  };
  std::string_view section;
  for (const Key& key : schema()) {
    if (!left_out.empty() && key.section() == left_out) continue;
    if (key.section() != section) {
      flush();
      section = key.section();
      plain = fmt::format("\n[{}]\n", section);
    }
    const Value value = key.get(config);
    if (key.is_table()) {
      tables += table_text(key, value);
    } else {
      plain += fmt::format("{} = {}\n", key.leaf(), toml_value(value));
    }
  }
  flush();
  return text;
}

}  // namespace

std::string to_toml(const Config& config) { return text_without(config, {}); }

std::string fingerprint(Config config) {
  config.run = {};
  // A run without adapters is what it was before there were any.
  return fmt::format("{:016x}", hash_of(text_without(config, config.model.lora_rank == 0 ? "lora" : "")));
}

std::string config_difference(const Config& a, const Config& b) {
  std::string text;
  for (const Key& key : schema()) {
    const Value before = key.get(a), after = key.get(b);
    if (before != after) text += fmt::format("{}: {} → {}\n", key.name, toml_value(before), toml_value(after));
  }
  return text;
}

}  // namespace quaver
