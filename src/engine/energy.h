// Joules that a device has used: of a GPU by NVML's counter, of a CPU by RAPL's, where the system lets us read it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

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

}  // namespace quaver
