#include "engine/cuda/runtime/gpu.h"

#include "quaver/error.h"

namespace quaver::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const std::string why = std::string(cudaGetErrorName(status)) + ", " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) {
    throw Error(std::string(what) + ": the GPU's memory is full (" + why + ")",
                "lower train.batch and raise train.accumulation, or choose train.memory = \"small\"");
  }
  throw Error(std::string(what) + ": " + why, "`nvidia-smi` shows whether the GPU and its driver are well");
}

int to_int(Size count) {
  constexpr Size most = (Size{1} << 31) - (Size{1} << 24);  // room for a grid's steps beyond the end
  if (count <= most) return static_cast<int>(count);
  throw Error(
      "a matrix has " + std::to_string(count) + " rows or columns; the GPU's kernels count to " + std::to_string(most),
      "lower train.batch and raise train.accumulation");
}

Gpu::Gpu(int index, Listener listener) : listener_(std::move(listener)) {
  check(cudaSetDevice(index), "choosing the GPU");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "asking for the GPU's properties");
  multiprocessors_ = properties.multiProcessorCount;
  architecture_ = properties.major * 10 + properties.minor;
  name_ = properties.name;
  shared_memory_ = static_cast<Size>(properties.sharedMemPerBlockOptin);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}

Gpu::~Gpu() {
  cudaStreamSynchronize(stream_);
  for (const Block& block : workspace_) cudaFree(block.memory);
  cudaStreamDestroy(stream_);
}

std::byte* Gpu::workspace(Slot slot, std::size_t bytes) {
  Block& block = workspace_[static_cast<std::size_t>(slot)];
  if (block.bytes >= bytes) return block.memory;
  if (capturing_) {
    throw Error("an operation needs more workspace while a micro-step is captured than it did before",
                "this is a defect: the shapes of a captured micro-step must not change");
  }
  synchronize();
  check(cudaFree(block.memory), "freeing workspace");
  block = {};
  check(cudaMalloc(reinterpret_cast<void**>(&block.memory), bytes), "allocating workspace");
  block.bytes = bytes;
  ++workspace_moves_;
  return block.memory;
}

std::size_t Gpu::workspace_bytes() const {
  std::size_t total = 0;
  for (const Block& block : workspace_) total += block.bytes;
  return total;
}

void Gpu::synchronize() { check(cudaStreamSynchronize(stream_), "waiting for the GPU"); }

void Gpu::notice(const std::string& text, const std::string& subject) {
  if (told_.insert(subject).second && listener_) listener_(text);
}

}  // namespace quaver::cuda
