// From what the user wrote to a checked Config: default < preset < file < flag.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace quaver {

// TOML that is already in memory: a checkpoint's config.toml, a test's.
struct ConfigText {
  std::string name;  // for messages
  std::string text;
};

// What model.from does. read: its config.json gives the shape, above the preset and below files and flags. recorded:
// nothing, for the config of a run, which holds the shape and whose weights are its own; a flag may not set it then.
enum class ModelFolder : std::uint8_t { read, recorded };

struct ConfigSources {
  std::vector<std::string> files;  // paths of TOML files; later ones win
  std::vector<ConfigText> texts;   // read after the files
  std::vector<std::string> flags;  // "section.key=value", leading dashes allowed; later ones win
  ModelFolder model_folder = ModelFolder::read;
};

// Throws Error at the first unknown key (with the nearest known ones), ill-typed or out-of-range value, or
// contradiction, naming the file, line and column or the flag. A table in a file replaces the one from below as a
// whole; a flag sets one entry of it. The result has passed check() for any purpose but training, for which the caller
// checks again.
Config load_config(const ConfigSources& sources);

}  // namespace quaver
