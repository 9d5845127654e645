#include "engine/cuda/comm/stream_stopwatch.h"

namespace quaver::cuda {

namespace {

__device__ unsigned long long now() {
  unsigned long long time = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

__global__ void start_clock(unsigned long long* clock, unsigned long long* told) {
  *told = ++clock[2];
  clock[0] = now();
}
__global__ void stop_clock(unsigned long long* clock, unsigned long long* told) {
  clock[1] += now() - clock[0];
  *told = ++clock[3];
}

unsigned long long* on_device(std::atomic<std::uint64_t>& count) {
  void* pointer = nullptr;
  check(cudaHostGetDevicePointer(&pointer, &count, 0), "sharing memory with the GPU");
  return static_cast<unsigned long long*>(pointer);
}

}  // namespace

static_assert(sizeof(std::atomic<std::uint64_t>) == sizeof(unsigned long long));

StreamStopwatch::StreamStopwatch(std::shared_ptr<Whereabouts> told) : told_(std::move(told)) {
  constexpr std::size_t bytes = 4 * sizeof(unsigned long long);
  check(cudaHostRegister(told_.get(), sizeof(Whereabouts), cudaHostRegisterMapped), "sharing memory with the GPU");
  started_ = on_device(told_->collectives_entered);
  stopped_ = on_device(told_->collectives_left);
  check(cudaMalloc(reinterpret_cast<void**>(&clock_), bytes), "allocating memory");
  check(cudaMemset(clock_, 0, bytes), "clearing memory");
}

StreamStopwatch::~StreamStopwatch() {
  cudaFree(clock_);
  cudaHostUnregister(told_.get());
}

void StreamStopwatch::start(cudaStream_t stream) {
  start_clock<<<1, 1, 0, stream>>>(clock_, started_);
  check(cudaGetLastError(), "starting a clock");
}

void StreamStopwatch::stop(cudaStream_t stream) {
  stop_clock<<<1, 1, 0, stream>>>(clock_, stopped_);
  check(cudaGetLastError(), "stopping a clock");
}

}  // namespace quaver::cuda
