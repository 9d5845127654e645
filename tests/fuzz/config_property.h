// What must hold for any bytes given as configuration: they load, or they are refused with a quaver::Error. What loads
// is the same after a dump and a second load.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "config/dump.h"
#include "config/load.h"
#include "config/schema.h"
#include "quaver/error.h"

namespace quaver::test {

enum class Outcome { loaded, refused };

inline Outcome load_or_refuse(const ConfigSources& sources) {
  Config config;
  try {
    config = load_config(sources);
  } catch (const Error&) {
    return Outcome::refused;
  }
  const Config again = load_config({.files = {}, .texts = {{"dump.toml", to_toml(config)}}, .flags = {}});
  if (!(again == config)) std::abort();
  return Outcome::loaded;
}

inline Outcome fuzz_config_toml(std::string text) {
  return load_or_refuse({.files = {}, .texts = {{"fuzz.toml", std::move(text)}}, .flags = {}});
}

// A flag a line.
inline Outcome fuzz_config_flags(const std::string& lines) {
  ConfigSources sources;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    sources.flags.push_back(lines.substr(begin, end - begin));
    begin = end + 1;
  }
  return load_or_refuse(sources);
}

}  // namespace quaver::test
