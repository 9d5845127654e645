#include "train/environment.h"

#include <ctime>
#include <fmt/chrono.h>
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

std::string environment_json(const Engine& engine) {
  return nlohmann::ordered_json{{"quaver", QUAVER_VERSION},
                                {"compiler", __VERSION__},
                                {"processor", cpu_model()},
                                {"engine", engine.name()},
                                {"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))}}
      .dump(1);
}

}  // namespace quaver
