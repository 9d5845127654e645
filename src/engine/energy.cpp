#include "engine/energy.h"

#include <fstream>

namespace quaver {

namespace {

std::optional<double> read_number(const std::filesystem::path& path) {
  std::ifstream file(path);
  double value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

}  // namespace

EnergyMeter::EnergyMeter(HardwareKind kind, const std::filesystem::path& powercap) {
  if (kind == HardwareKind::gpu) {
    gpu_.emplace();
    const auto reading = gpu_->read_now();
    const bool counts = reading && reading->joules;
    source_ = counts ? "NVML" : "not available: NVML has no energy counter for this GPU";
    if (!counts) gpu_.reset();
    return;
  }
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(powercap, none)) {
    // intel-rapl:0 is a processor, intel-rapl:0:1 a part of it
    const std::string name = entry.path().filename().string();
    const bool package = name.starts_with("intel-rapl:") && name.find(':', 11) == std::string::npos;
    if (package && read_number(entry.path() / "energy_uj")) packages_.push_back(entry.path() / "energy_uj");
  }
  source_ = packages_.empty() ? "not available: RAPL's counters cannot be read here" : "RAPL";
}

std::optional<double> EnergyMeter::rapl() const {
  if (packages_.empty()) return std::nullopt;
  double sum = 0;
  for (const auto& path : packages_) {
    const std::optional<double> microjoules = read_number(path);
    if (!microjoules) return std::nullopt;
    sum += *microjoules * 1e-6;
  }
  return sum;
}

std::optional<double> EnergyMeter::joules() {
  if (!gpu_) return rapl();
  const auto reading = gpu_->read_now();
  return reading ? reading->joules : std::nullopt;
}

}  // namespace quaver
