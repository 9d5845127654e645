#include "engine/sizing_engine.h"

#include <cerrno>
#include <cstring>
#include <numeric>
#include <sys/mman.h>

#include "quaver/error.h"

namespace quaver {

std::shared_ptr<std::byte> SizingDevice::allocate(std::size_t bytes) {
  const std::size_t mapped = bytes + 1;
  void* place = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) {
    throw Error(std::string("cannot reserve addresses for planning: ") + std::strerror(errno),
                "raise the limit on virtual memory (ulimit -v)");
  }
  allocated_ += bytes;
  return {static_cast<std::byte*>(place), [mapped](std::byte* p) { munmap(p, mapped); }};
}

std::size_t SizingDevice::workspace_bytes() const {
  return static_cast<std::size_t>(std::accumulate(slots_.begin(), slots_.end(), Size{0}));
}

std::unique_ptr<SizingEngine> make_sizing_engine(const Hardware& hardware, Format high) {
  if (hardware.kind == HardwareKind::gpu) return make_cuda_sizing(hardware.architecture, high);
  return make_cpu_sizing(hardware.threads);
}

}  // namespace quaver
