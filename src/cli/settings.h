// Settings on the command line: words that become --section.key=value before the rest is parsed.
#pragma once

#include <string>
#include <vector>

namespace quaver {

// Every setting as one word, so that its value is not taken for the name of a config file; shortcuts such as --recipe
// as the settings they stand for, so that flags win in the order they are typed, however they are spelled.
std::vector<std::string> join_settings(const std::vector<std::string>& words);

// The --section.key=value words that the parser leaves over, for load_config. Throws Error where one is something else.
std::vector<std::string> settings_from(const std::vector<std::string>& extras);

// What a verb's help says of its shortcuts.
std::string settings_help(const std::string& verb);

}  // namespace quaver
