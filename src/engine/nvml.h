// The GPU's sensors during a run: power, clock, temperature, memory, energy, utilization. They are read through NVML,
// the driver's own library, which is optional and loaded at run time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace quaver {

// The few functions of libnvidia-ml.so.1 that are called, with the types of its binary interface: every function
// returns 0 where it succeeded, a device is an opaque pointer.
namespace nvml {

using Device = void*;
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct Utilization {
  unsigned int gpu;  // percent of the last sampling period in which a kernel ran
  unsigned int memory;
};

struct Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned int) = nullptr;
  int (*device_count)(unsigned int*) = nullptr;
  int (*device_by_index)(unsigned int, Device*) = nullptr;
  int (*device_by_bus)(const char*, Device*) = nullptr;
  int (*device_name)(Device, char*, unsigned int) = nullptr;
  int (*power)(Device, unsigned int*) = nullptr;             // milliwatts
  int (*power_limit)(Device, unsigned int*) = nullptr;       // milliwatts
  int (*clock)(Device, int, unsigned int*) = nullptr;        // MHz
  int (*temperature)(Device, int, unsigned int*) = nullptr;  // °C
  int (*memory)(Device, Memory*) = nullptr;                  // bytes
  int (*energy)(Device, unsigned long long*) = nullptr;      // millijoules since the driver was loaded
  int (*utilization)(Device, Utilization*) = nullptr;
};

// The driver's library; empty where there is none or it lacks one of the functions.
std::optional<Functions> load();

}  // namespace nvml

// One sample of the GPU. Values that a GPU does not report are empty.
struct GpuReading {
  std::optional<double> watts;
  std::optional<int> sm_mhz;
  std::optional<int> celsius;
  std::optional<std::uint64_t> memory_used;  // bytes, of all processes
  std::optional<double> joules;              // since the driver was loaded
  std::optional<int> busy_percent;
};

struct GpuCard {
  std::string name;
  std::uint64_t memory_total = 0;
  std::uint64_t memory_free = 0;
  std::optional<double> watts_limit;
};

class GpuMeter {
 public:
  // Of the GPU with this PCI bus id ("0000:65:00.0"), or of the first. Finds nothing where there is no NVML.
  explicit GpuMeter(const std::string& pci_bus_id = "") : GpuMeter(nvml::load(), pci_bus_id) {}
  GpuMeter(const std::optional<nvml::Functions>& functions, const std::string& pci_bus_id);
  ~GpuMeter();
  GpuMeter(const GpuMeter&) = delete;
  GpuMeter& operator=(const GpuMeter&) = delete;

  bool found() const { return device_ != nullptr; }

  // Cheap enough for every step: within half a second of the last sample that sample is returned.
  std::optional<GpuReading> read();
  std::optional<GpuReading> read_now();

  std::optional<GpuCard> card() const;
  std::string driver_version() const;  // "580.159.03"; empty where there is no NVML

 private:
  GpuReading look() const;

  std::optional<nvml::Functions> functions_;  // set where NVML was started
  nvml::Device device_ = nullptr;
  std::optional<GpuReading> last_;
  std::chrono::steady_clock::time_point last_time_;
};

}  // namespace quaver
