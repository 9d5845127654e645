// Host data on its way to the device: copied into pinned memory at once, so that the caller may reuse its own, and from
// there by the stream. Small uploads share a buffer: the host waits only where all buffers are still on their way.
#pragma once

#include <array>

#include "engine/cuda/runtime/gpu.h"

namespace quaver::cuda {

class Uploads {
 public:
  explicit Uploads(Gpu& gpu);
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  void copy(const void* host, void* device, std::size_t bytes);

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{4} << 20;
  struct Buffer {
    std::byte* memory = nullptr;
    cudaEvent_t free = nullptr;  // the stream has passed the copies out of it
  };
  std::byte* place(std::size_t bytes);

  Gpu& gpu_;
  std::array<Buffer, 4> buffers_;
  std::size_t current_ = 0;
  std::size_t used_ = 0;  // of the current buffer
};

}  // namespace quaver::cuda
