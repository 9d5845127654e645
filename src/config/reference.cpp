#include "config/reference.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/presets.h"
#include "config/schema.h"
#include "config/settings.h"
#include "config/suggest.h"
#include "config/value_text.h"
#include "quaver/error.h"

namespace quaver {
namespace {

constexpr std::string_view introduction =
    R"(<!-- Written by `quaver inspect config > docs/config.md`; do not edit. -->
# Configuration

A run is described by TOML files, by flags, or by both. Every key has a section and a name.

```toml
# run.toml
preset = "small"

[data]
path = "shakespeare"          # a folder written by `quaver data`

[precision]
recipe = "fp8-delayed"

[precision.layers]            # patterns of layers that differ
"blocks.0.*" = "bf16"
"blocks.*.mlp.down" = "fp8-block"

[optim.learning_rate_of]      # patterns of parameters that differ
"embed.*" = 0.5
```

```sh
quaver train run.toml --train.steps=2000 --optim.learning_rate=3e-4
quaver train --preset=tiny --data.kind=synthetic '--precision.layers."blocks.*.mlp.down"=bf16'
```

## Which setting wins

default < preset < file < flag

- The preset is itself a setting: a flag's choice of preset wins over a file's.
- Of several files the last wins, of several flags too.
- A table of patterns in a file replaces the one from below as a whole. A flag sets one entry: everything after the
  table's name and a dot is the pattern, with or without quotes. `--precision.layers={}` drops all entries.
- A key that does not exist, a value of the wrong type and a value out of range are errors that name the file, line and
  column, or the flag. Nothing is rounded: `1.5` for an integer is an error. An integer is accepted for a number.
- A run keeps its resolved settings in `config.toml`; a run from that file repeats it whatever its preset says today.
)";

constexpr std::string_view recipe_section = R"(
## recipes

A table `[recipes.NAME]` defines a recipe, for use wherever a recipe is named. `quaver inspect recipes` prints the built-in
ones in the same form; [recipes.md](recipes.md#recipes-of-your-own) explains the words. The recipes of several files add up,
and of two with the same name the last wins. They are kept in the run's `config.toml` and in its checkpoints.

```toml
[recipes.row-and-bf16-wgrad]
summary = "E4M3 by rows, wgrad in BF16"
x = { rowwise = "e4m3 row current", columnwise = "bf16" }
w = "e4m3 row current"
dy = { rowwise = "e4m3 row current", columnwise = "bf16" }
```

| key | value | default | meaning |
|---|---|---|---|
| `x`, `w`, `dy` | text, or a table of two, `rowwise` and `columnwise` | | Formats and scaling of inputs, weights and gradients, as plans print them. |
| `summary` | text | `""` | One line on it. |
| `wide_start` | number from 0 to 1 | `0` | Share of the first blocks kept in bf16. |
| `wide_tail` | number from 0 to 1 | `0` | Share of the last blocks kept in bf16. |

A flag defines one on one line: `'--recipes.mine={ x = "int8 row current", w = "int8 row current", dy = "bf16" }'`.
)";

std::string in_table_cell(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '|' ? std::string("\\|") : std::string(1, c);
  return result;
}

// What the key accepts, without the article.
std::string type_cell(const Key& key) {
  if (key.type == ValueType::choice) return fmt::format("`{}`", joined_choices(key, "`, `"));
  if (key.type == ValueType::recipe) {
    return fmt::format("`{}`, or a [recipe of your own](#recipes)", joined_choices(key, "`, `"));
  }
  if (key.type == ValueType::text_table && !key.choices.empty()) return "table from patterns to the same names";
  std::string type = describe_type(key);
  for (const std::string_view article : {"an ", "a "}) {
    if (type.starts_with(article)) return type.substr(article.size());
  }
  return type;
}

std::string plain_value(const Value& value) {
  if (const std::string* text = std::get_if<std::string>(&value)) return text->empty() ? "\"\"" : *text;
  if (const double* number = std::get_if<double>(&value)) return number_text(*number);
  return toml_value(value);
}

Config after_preset(const std::string& name) {
  Config config;
  for (const Setting& setting : read_preset(find_preset(name))) apply(setting, config);
  return config;
}

// The default, and what the preset that applies when none is named makes of it.
std::string default_cell(const Key& key, const Config& usual, std::string_view quote) {
  const Value standard = default_of(key), with_preset = key.get(usual);
  std::string cell = fmt::format("{0}{1}{0}", quote, plain_value(standard));
  if (with_preset != standard)
    cell += fmt::format(" ({0}: {1}{2}{1})", Config{}.preset, quote, plain_value(with_preset));
  return cell;
}

std::string section_tables() {
  const Config usual = after_preset(Config{}.preset);
  std::string text;
  for (const std::string& section : section_names()) {
    text += fmt::format("\n## {}\n\n| key | value | default | meaning |\n|---|---|---|---|\n", section);
    for (const Key& key : schema()) {
      if (key.section() != section) continue;
      text += fmt::format("| `{}` | {} | {} | {} |\n", key.name, in_table_cell(type_cell(key)),
                          in_table_cell(default_cell(key, usual, "`")), in_table_cell(key.doc));
    }
  }
  return text;
}

std::string preset_table() {
  std::string text = fmt::format(
      "\n## preset\n\n`preset = \"{}\"` applies when none is named; the tables below give its settings in brackets.\n\n"
      "| preset | what it is | settings |\n|---|---|---|\n",
      Config{}.preset);
  for (const Preset& preset : presets()) {
    std::vector<std::string> settings;
    for (const Setting& setting : read_preset(preset)) {
      settings.push_back(fmt::format("{}={}", setting.key->name, plain_value(setting.value)));
    }
    text += fmt::format("| `{}` | {} | `{}` |\n", preset.name, in_table_cell(preset.description),
                        fmt::join(settings, "` `"));
  }
  return text;
}

std::string help_entry(const Key& key, const Config& usual) {
  return fmt::format("  {}\n      {} [{}; default {}]\n", key.name, key.doc, describe_type(key),
                     default_cell(key, usual, ""));
}

std::string preset_help() {
  std::string text = "presets\n";
  for (const Preset& preset : presets()) text += fmt::format("  {:<14} {}\n", preset.name, preset.description);
  return text;
}

}  // namespace

std::string config_reference() {
  return std::string(introduction) + preset_table() + std::string(recipe_section) + section_tables();
}

std::string config_help(std::string_view section) {
  const auto& names = section_names();
  if (!section.empty() && std::ranges::find(names, section) == names.end()) {
    throw Error(fmt::format("there is no section {}", quoted_excerpt(section)),
                fmt::format("{} The sections are {}", did_you_mean(section, names), fmt::join(names, ", ")));
  }
  const Config usual = after_preset(Config{}.preset);
  std::string text = section.empty() ? preset_help() : "";
  std::string_view current;
  for (const Key& key : schema()) {
    if (!section.empty() && key.section() != section) continue;
    if (key.section() != current) text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", key.section());
    current = key.section();
    text += help_entry(key, usual);
  }
  return text;
}

}  // namespace quaver
