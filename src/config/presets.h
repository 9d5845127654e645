// Presets: named starting points. Each is a small TOML text, read like a user's file and below it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quaver {

struct Preset {
  std::string_view name;
  std::string_view description;  // one line
  std::string_view toml;
};

const std::vector<Preset>& presets();
std::vector<std::string> preset_names();

// Throws Error with the nearest names when there is no such preset.
const Preset& find_preset(std::string_view name);

}  // namespace quaver
