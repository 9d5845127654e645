#include "engine/cuda/comm/stream_stopwatch.h"

namespace quaver::cuda {

namespace {

__device__ unsigned long long now() {
  unsigned long long time = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}

__global__ void start_clock(unsigned long long* clock) { clock[0] = now(); }
__global__ void stop_clock(unsigned long long* clock) { clock[1] += now() - clock[0]; }

}  // namespace

StreamStopwatch::StreamStopwatch() {
  constexpr std::size_t bytes = 2 * sizeof(unsigned long long);
  check(cudaMalloc(reinterpret_cast<void**>(&clock_), bytes), "allocating memory");
  check(cudaMemset(clock_, 0, bytes), "clearing memory");
}

StreamStopwatch::~StreamStopwatch() { cudaFree(clock_); }

void StreamStopwatch::start(cudaStream_t stream) {
  start_clock<<<1, 1, 0, stream>>>(clock_);
  check(cudaGetLastError(), "starting a clock");
}

void StreamStopwatch::stop(cudaStream_t stream) {
  stop_clock<<<1, 1, 0, stream>>>(clock_);
  check(cudaGetLastError(), "stopping a clock");
}

}  // namespace quaver::cuda
