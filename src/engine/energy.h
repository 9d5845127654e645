// Joules that a device has used: of a GPU by NVML's counter, of a CPU by RAPL's, where the system lets us read it.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "engine/device.h"
#include "engine/nvml.h"

namespace quaver {

class EnergyMeter {
 public:
  explicit EnergyMeter(HardwareKind kind, const std::filesystem::path& powercap = "/sys/class/powercap");

  // Since some fixed moment; none where the machine does not say. Counters move in steps of up to a tenth of a second.
  std::optional<double> joules();

  const std::string& source() const { return source_; }  // "NVML", "RAPL", or why there is none

 private:
  std::optional<double> rapl() const;

  std::optional<GpuMeter> gpu_;
  std::vector<std::filesystem::path> packages_;  // counters of processors
  std::string source_;
};

// The mean power between the first and the last movement of a meter's counter that it sees: what happens between two
// readings of a counter that moves ten times a second is known to a tenth of a second only. It polls on a thread.
class PowerWatch {
 public:
  explicit PowerWatch(EnergyMeter& meter);
  ~PowerWatch();
  PowerWatch(const PowerWatch&) = delete;
  PowerWatch& operator=(const PowerWatch&) = delete;

  // Ends the watch. None where the counter moved less than twice, or there is none.
  std::optional<double> watts();

 private:
  struct Moment {
    double seconds = 0;
    double joules = 0;
  };
  void watch();

  EnergyMeter& meter_;
  std::optional<Moment> first_;  // the thread's until it has ended
  Moment last_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

}  // namespace quaver
