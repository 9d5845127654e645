#include "engine/cuda/runtime/stream_device.h"

#include <algorithm>
#include <utility>

namespace quaver::cuda {

StreamDevice::~StreamDevice() {
  for (const Buffer& buffer : buffers_) cudaFreeHost(buffer.memory);
}

std::shared_ptr<std::byte> StreamDevice::allocate(std::size_t bytes) {
  std::byte* memory = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&memory), std::max<std::size_t>(bytes, 1)), "allocating memory");
  check(cudaMemsetAsync(memory, 0, bytes, gpu_.stream()), "clearing memory");
  return {memory, [](std::byte* p) { cudaFree(p); }};
}

std::byte* StreamDevice::pinned(std::size_t bytes) {
  for (Buffer& buffer : buffers_) {
    if (buffer.bytes - buffer.used < bytes) continue;
    std::byte* memory = buffer.memory + buffer.used;
    buffer.used += static_cast<std::size_t>(round_up_256(static_cast<Size>(bytes)));
    buffer.used = std::min(buffer.used, buffer.bytes);
    return memory;
  }
  constexpr std::size_t least = std::size_t{1} << 20;
  Buffer buffer{.bytes = std::max(least, bytes), .used = bytes};
  check(cudaMallocHost(reinterpret_cast<void**>(&buffer.memory), buffer.bytes), "allocating pinned memory");
  buffers_.push_back(buffer);
  return buffer.memory;
}

void StreamDevice::read(const void* device, std::size_t bytes, const Use& use) {
  std::byte* memory = pinned(bytes);
  check(cudaMemcpyAsync(memory, device, bytes, cudaMemcpyDeviceToHost, gpu_.stream()), "reading from the GPU");
  pending_.push_back({memory, use});
}

void StreamDevice::download(const void* device, void* host, std::size_t bytes) {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, gpu_.stream()), "downloading");
  synchronize();
}

// A reader may ask for more: what it asks for belongs to the next time.
void StreamDevice::synchronize() {
  gpu_.synchronize();
  const std::deque<Pending> arrived = std::exchange(pending_, {});
  for (const Pending& read : arrived) read.use(read.data);
  if (!pending_.empty()) return;
  for (Buffer& buffer : buffers_) buffer.used = 0;
}

std::size_t StreamDevice::free_memory() const {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  return free;
}

}  // namespace quaver::cuda
