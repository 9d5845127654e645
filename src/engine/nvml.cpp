#include "engine/nvml.h"

#include <array>
#include <dlfcn.h>

namespace quaver {

namespace {

// Numbers of NVML's interface.
constexpr int sm_clock = 1;
constexpr int gpu_sensor = 0;

constexpr std::chrono::milliseconds fresh_for{500};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// The number that `function` reports through its last argument.
template <class Number, class Function, class... Arguments>
std::optional<Number> asked(Function function, Arguments... arguments) {
  Number number{};
  if (function(arguments..., &number) != 0) return std::nullopt;
  return number;
}

std::string text_of(const std::array<char, 128>& buffer) {
  std::string text;
  for (const char c : buffer) {
    if (c == '\0') break;
    text += c;
  }
  return text;
}

}  // namespace

std::optional<nvml::Functions> nvml::load() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);  // stays loaded: functions point into it
  if (library == nullptr) return std::nullopt;
  Functions functions;
  const bool complete = find(library, "nvmlInit_v2", functions.init) &&
                        find(library, "nvmlShutdown", functions.shutdown) &&
                        find(library, "nvmlSystemGetDriverVersion", functions.driver_version) &&
                        find(library, "nvmlDeviceGetCount_v2", functions.device_count) &&
                        find(library, "nvmlDeviceGetHandleByIndex_v2", functions.device_by_index) &&
                        find(library, "nvmlDeviceGetHandleByPciBusId_v2", functions.device_by_bus) &&
                        find(library, "nvmlDeviceGetName", functions.device_name) &&
                        find(library, "nvmlDeviceGetPowerUsage", functions.power) &&
                        find(library, "nvmlDeviceGetEnforcedPowerLimit", functions.power_limit) &&
                        find(library, "nvmlDeviceGetClockInfo", functions.clock) &&
                        find(library, "nvmlDeviceGetTemperature", functions.temperature) &&
                        find(library, "nvmlDeviceGetMemoryInfo", functions.memory) &&
                        find(library, "nvmlDeviceGetTotalEnergyConsumption", functions.energy) &&
                        find(library, "nvmlDeviceGetUtilizationRates", functions.utilization);
  if (!complete) return std::nullopt;
  return functions;
}

GpuMeter::GpuMeter(const std::optional<nvml::Functions>& functions, const std::string& pci_bus_id) {
  if (!functions || functions->init() != 0) return;
  functions_ = functions;
  const int status = pci_bus_id.empty() ? functions_->device_by_index(0, &device_)
                                        : functions_->device_by_bus(pci_bus_id.c_str(), &device_);
  if (status != 0) device_ = nullptr;
}

GpuMeter::~GpuMeter() {
  if (functions_) functions_->shutdown();
}

std::optional<GpuReading> GpuMeter::read() {
  if (device_ == nullptr) return std::nullopt;
  const auto now = std::chrono::steady_clock::now();
  if (last_ && now - last_time_ < fresh_for) return last_;
  return read_now();
}

std::optional<GpuReading> GpuMeter::read_now() {
  if (device_ == nullptr) return std::nullopt;
  last_ = look();
  last_time_ = std::chrono::steady_clock::now();
  return last_;
}

GpuReading GpuMeter::look() const {
  GpuReading reading;
  if (const auto milliwatts = asked<unsigned int>(functions_->power, device_)) reading.watts = *milliwatts / 1000.0;
  if (const auto mhz = asked<unsigned int>(functions_->clock, device_, sm_clock)) {
    reading.sm_mhz = static_cast<int>(*mhz);
  }
  if (const auto celsius = asked<unsigned int>(functions_->temperature, device_, gpu_sensor)) {
    reading.celsius = static_cast<int>(*celsius);
  }
  if (const auto memory = asked<nvml::Memory>(functions_->memory, device_)) reading.memory_used = memory->used;
  if (const auto millijoules = asked<unsigned long long>(functions_->energy, device_)) {
    reading.joules = static_cast<double>(*millijoules) / 1000.0;
  }
  if (const auto rates = asked<nvml::Utilization>(functions_->utilization, device_)) {
    reading.busy_percent = static_cast<int>(rates->gpu);
  }
  return reading;
}

std::optional<GpuCard> GpuMeter::card() const {
  if (device_ == nullptr) return std::nullopt;
  GpuCard card;
  std::array<char, 128> name{};
  if (functions_->device_name(device_, name.data(), name.size()) == 0) card.name = text_of(name);
  if (const auto memory = asked<nvml::Memory>(functions_->memory, device_)) {
    card.memory_total = memory->total;
    card.memory_free = memory->free;
  }
  if (const auto limit = asked<unsigned int>(functions_->power_limit, device_)) card.watts_limit = *limit / 1000.0;
  return card;
}

std::string GpuMeter::driver_version() const {
  std::array<char, 128> version{};
  if (!functions_ || functions_->driver_version(version.data(), version.size()) != 0) return "";
  return text_of(version);
}

}  // namespace quaver
