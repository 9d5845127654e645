#include "engine/energy.h"

#include <chrono>
#include <fstream>

namespace quaver {

namespace {

constexpr std::chrono::milliseconds poll_interval{2};

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

PowerWatch::PowerWatch(EnergyMeter& meter) : meter_(meter), thread_([this] { watch(); }) {}

PowerWatch::~PowerWatch() { watts(); }

void PowerWatch::watch() {
  const auto start = std::chrono::steady_clock::now();
  std::optional<double> before = meter_.joules();
  while (before && !ended_) {
    std::this_thread::sleep_for(poll_interval);
    const std::optional<double> now = meter_.joules();
    if (!now || *now == *before) continue;
    before = now;
    last_ = {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), *now};
    if (!first_) first_ = last_;
  }
}

std::optional<double> PowerWatch::watts() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
  if (!first_ || last_.seconds <= first_->seconds) return std::nullopt;
  return (last_.joules - first_->joules) / (last_.seconds - first_->seconds);
}

}  // namespace quaver
