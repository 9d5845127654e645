#include "engine/cuda/runtime/uploads.h"

#include <algorithm>
#include <cstring>

namespace quaver::cuda {

Uploads::Uploads(Gpu& gpu) : gpu_(gpu) {
  for (Buffer& buffer : buffers_) {
    check(cudaMallocHost(reinterpret_cast<void**>(&buffer.memory), buffer_bytes), "allocating pinned memory");
    check(cudaEventCreateWithFlags(&buffer.free, cudaEventDisableTiming), "making an event");
  }
}

Uploads::~Uploads() {
  for (const Buffer& buffer : buffers_) {
    cudaEventDestroy(buffer.free);
    cudaFreeHost(buffer.memory);
  }
}

std::byte* Uploads::place(std::size_t bytes) {
  if (used_ + bytes > buffer_bytes) {
    check(cudaEventRecord(buffers_[current_].free, gpu_.stream()), "recording an upload");
    current_ = (current_ + 1) % buffers_.size();
    used_ = 0;
    check(cudaEventSynchronize(buffers_[current_].free), "waiting for an upload");
  }
  std::byte* memory = buffers_[current_].memory + used_;
  used_ = std::min(buffer_bytes, used_ + static_cast<std::size_t>(round_up_256(static_cast<Size>(bytes))));
  return memory;
}

void Uploads::copy(const void* host, void* device, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes; done += buffer_bytes) {
    const std::size_t part = std::min(buffer_bytes, bytes - done);
    std::byte* memory = place(part);
    std::memcpy(memory, static_cast<const std::byte*>(host) + done, part);
    check(cudaMemcpyAsync(static_cast<std::byte*>(device) + done, memory, part, cudaMemcpyHostToDevice, gpu_.stream()),
          "uploading");
  }
}

}  // namespace quaver::cuda
