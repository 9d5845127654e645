// Settings as they come from one source (a file, a flag, a preset), already checked against the schema and knowing
// where they were written.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/presets.h"
#include "config/schema.h"

namespace quaver {

struct Setting {
  const Key* key = nullptr;
  std::optional<std::string> pattern;  // the one entry of a table that is set; none: the whole value
  Value value;
};

// TOML text; `name` is the file's name, for messages of the form name:line:column.
std::vector<Setting> read_toml(std::string_view text, const std::string& name);

// "optim.learning_rate=3e-4", with or without leading dashes. Everything after a table's name and a dot is a pattern,
// quoted or not: precision.layers."blocks.*.mlp.down"=bf16. A table's own name takes only {}, which empties it.
Setting read_flag(std::string_view flag);

std::vector<Setting> read_preset(const Preset& preset);

void apply(const Setting& setting, Config& config);

// The Error for a key that does not exist, with the nearest ones. `where` as in conform().
[[noreturn]] void reject_unknown_key(std::string_view name, const std::string& where);

}  // namespace quaver
