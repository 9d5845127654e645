// The folder for what was measured on this machine, such as the fastest algorithm of each GEMM.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace quaver {

// QUAVER_CACHE_DIR, else the folder quaver in XDG_CACHE_HOME or in ~/.cache; empty where none of them is known.
inline std::filesystem::path cache_folder() {
  const auto given = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (auto own = given("QUAVER_CACHE_DIR"); !own.empty()) return own;
  if (const auto shared = given("XDG_CACHE_HOME"); !shared.empty()) return shared / "quaver";
  if (const auto home = given("HOME"); !home.empty()) return home / ".cache" / "quaver";
  return {};
}

}  // namespace quaver
