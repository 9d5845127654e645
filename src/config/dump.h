// A Config as text: the config.toml of a run, and what differs between two.
#pragma once

#include <string>

#include "config/config.h"

namespace quaver {

// Every key as resolved, under section headers. load_config() of this text gives the same Config, bit for bit, whatever
// its preset says.
std::string to_toml(const Config& config);

// 16 hexadecimal digits, equal for configs that train alike: where a run is kept, and as what, does not count.
std::string fingerprint(Config config);

// A line "key: a → b" for each key that differs, in the order of the schema; empty when none does.
std::string config_difference(const Config& a, const Config& b);

}  // namespace quaver
