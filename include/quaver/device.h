// Where arrays are that a program hands over in place, and where the work on them goes.
#pragma once

#include <cstdint>

#include "quaver/quant_spec.h"

namespace quaver {

// automatic: a GPU where there is one that the CUDA engine can use, else the CPU.
enum class DeviceKind : std::uint8_t { automatic, cpu, cuda };

// A matrix in the memory of a device, contiguous and row-major: f32, or on a GPU bf16 too, where it begins at a
// multiple of 16 bytes. A GPU's work goes onto the stream, a cudaStream_t (null: CUDA's default stream), and the calls
// return before it has run.
struct DeviceMatrix {
  void* values = nullptr;
  Format format = Format::f32;
  Size rows = 0;
  Size cols = 0;
  DeviceKind device = DeviceKind::cuda;
  int gpu = 0;  // its number among CUDA's devices
  void* stream = nullptr;
};

}  // namespace quaver
