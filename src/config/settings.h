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
  std::optional<std::string> pattern;  // the one entry of a table that is set, by itself; none: the whole value
  Value value;
  std::string where = {};  // as in conform()
};

// TOML text; `name` is the file's name, for messages of the form name:line:column.
std::vector<Setting> read_toml(std::string_view text, const std::string& name);

// "optim.learning_rate=3e-4", with or without leading dashes. Everything after a table's name and a dot is a pattern,
// quoted or not: precision.layers."blocks.*.mlp.down"=bf16. A table's own name takes only {}, which empties it. A
// recipe is written as in a file: recipes.mine={ x = "e4m3 row current", … }.
Setting read_flag(std::string_view flag);

std::vector<Setting> read_preset(const Preset& preset);

void apply(const Setting& setting, Config& config);

// Throws Error, as conform() does, where the setting names a recipe that is neither built in nor defined.
void check_recipe_names(const Setting& setting, const RecipeTable& defined);

// The Error for a key that does not exist, with the nearest ones. `where` as in conform().
[[noreturn]] void reject_unknown_key(std::string_view name, const std::string& where);

}  // namespace quaver
