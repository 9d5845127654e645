// Adds up the time that a GPU spends between pairs of points of its streams. The points are kernels, so that they are
// captured into graphs and measure every replay.
#pragma once

#include "engine/cuda/runtime/gpu.h"

namespace quaver::cuda {

class StreamStopwatch {
 public:
  StreamStopwatch();
  ~StreamStopwatch();
  StreamStopwatch(const StreamStopwatch&) = delete;
  StreamStopwatch& operator=(const StreamStopwatch&) = delete;

  void start(cudaStream_t stream);
  void stop(cudaStream_t stream);                                       // behind what lies between
  const unsigned long long* nanoseconds() const { return clock_ + 1; }  // in device memory

 private:
  unsigned long long* clock_ = nullptr;  // when it was started, and the sum
};

}  // namespace quaver::cuda
