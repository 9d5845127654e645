#include "engine/cuda/runtime/stream_device.h"

#include <algorithm>
#include <utility>

namespace quaver::cuda {

StreamDevice::~StreamDevice() {
  for (const Buffer& buffer : buffers_) cudaFreeHost(buffer.memory);
  for (cudaEvent_t event : free_events_) cudaEventDestroy(event);
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
  if (bytes == 0) {
    pending_.emplace_back([use] { use(nullptr); });
    return;
  }
  std::byte* memory = pinned(bytes);
  check(cudaMemcpyAsync(memory, device, bytes, cudaMemcpyDeviceToHost, gpu_.stream()), "reading from the GPU");
  pending_.emplace_back([memory, use] { use(memory); });
}

cudaEvent_t StreamDevice::recorded_event() {
  cudaEvent_t event = nullptr;
  if (free_events_.empty()) {
    check(cudaEventCreate(&event), "making an event");
  } else {
    event = free_events_.back();
    free_events_.pop_back();
  }
  check(cudaEventRecord(event, gpu_.stream()), "recording the time");
  return event;
}

void StreamDevice::time(const std::function<void()>& work, const UseSeconds& use) {
  const cudaEvent_t start = recorded_event();
  try {
    work();
  } catch (...) {
    free_events_.push_back(start);
    throw;
  }
  const cudaEvent_t end = recorded_event();
  pending_.emplace_back([this, start, end, use] {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start, end), "reading the time");
    free_events_.insert(free_events_.end(), {start, end});
    use(static_cast<double>(milliseconds) / 1000);
  });
}

void StreamDevice::download(const void* device, void* host, std::size_t bytes) {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, gpu_.stream()), "downloading");
  synchronize();
}

// A reader may enqueue further reads: those belong to the next synchronize().
void StreamDevice::synchronize() {
  {
    const Wait wait(*whereabouts_, &Whereabouts::waits_for_device);
    side_.wait_for_all();
    gpu_.synchronize();
  }
  const auto arrived = std::exchange(pending_, {});
  for (const auto& use : arrived) use();
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
