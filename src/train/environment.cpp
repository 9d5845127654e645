#include "train/environment.h"

#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace quaver {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string compiler_name() {
#ifdef __clang__
  return fmt::format("clang++ {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return "g++ " __VERSION__;
#endif
}

std::string environment_json(const Engine& engine, int ranks) {
  return nlohmann::ordered_json{
      {"quaver", QUAVER_VERSION}, {"compiler", compiler_name()},
      {"processor", cpu_model()}, {"engine", engine.name()},
      {"ranks", ranks},           {"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))}}
      .dump(1);
}

}  // namespace quaver
