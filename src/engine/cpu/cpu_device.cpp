#include "engine/cpu/cpu_device.h"

#include <chrono>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <vector>

namespace quaver {

std::shared_ptr<std::byte> CpuDevice::allocate(std::size_t bytes) {
  constexpr std::align_val_t alignment{256};
  auto* memory = static_cast<std::byte*>(::operator new(bytes + 1, alignment));
  std::memset(memory, 0, bytes);
  return {memory, [](std::byte* p) { ::operator delete(p, alignment); }};
}

void CpuDevice::upload(const void* host, void* device, std::size_t bytes) { std::memcpy(device, host, bytes); }

void CpuDevice::read(const void* device, std::size_t bytes, const Use& use) {
  // A copy, as on a GPU: one that asked for too little must not find the rest behind it.
  const auto* data = static_cast<const std::byte*>(device);
  const std::vector<std::byte> copy(data, data + bytes);
  use(copy.data());
}

void CpuDevice::time(const std::function<void()>& work, const UseSeconds& use) {
  const auto start = std::chrono::steady_clock::now();
  work();
  use(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

void CpuDevice::download(const void* device, void* host, std::size_t bytes) { std::memcpy(host, device, bytes); }

void CpuDevice::replay(std::uint64_t, const std::function<void()>& work) { work(); }

// The memory that the kernel says this process may still allocate.
std::size_t CpuDevice::free_memory() const {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::size_t kilobytes = 0;
  std::string unit;
  while (file >> key >> kilobytes >> unit) {
    if (key == "MemAvailable:") return kilobytes * 1024;
  }
  return 0;
}

}  // namespace quaver
