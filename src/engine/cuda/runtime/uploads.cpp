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

void Uploads::copy(const void* host, void* device, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes; done += buffer_bytes) {
    const std::size_t part = std::min(buffer_bytes, bytes - done);
    Buffer& buffer = buffers_[next_++ % buffers_.size()];
    check(cudaEventSynchronize(buffer.free), "waiting for an upload");
    std::memcpy(buffer.memory, static_cast<const std::byte*>(host) + done, part);
    check(cudaMemcpyAsync(static_cast<std::byte*>(device) + done, buffer.memory, part, cudaMemcpyHostToDevice,
                          gpu_.stream()),
          "uploading");
    check(cudaEventRecord(buffer.free, gpu_.stream()), "recording an upload");
  }
}

}  // namespace quaver::cuda
