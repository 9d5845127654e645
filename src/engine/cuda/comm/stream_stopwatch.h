// Adds up the time that a GPU spends in collectives, and tells the host when it comes to one and is through with it.
// The points are kernels, so that they are captured into graphs and measure every replay.
#pragma once

#include <memory>

#include "comm/whereabouts.h"
#include "engine/cuda/runtime/gpu.h"

namespace quaver::cuda {

class StreamStopwatch {
 public:
  explicit StreamStopwatch(std::shared_ptr<Whereabouts> told);
  ~StreamStopwatch();
  StreamStopwatch(const StreamStopwatch&) = delete;
  StreamStopwatch& operator=(const StreamStopwatch&) = delete;

  void start(cudaStream_t stream);
  void stop(cudaStream_t stream);                                       // behind what lies between
  const unsigned long long* nanoseconds() const { return clock_ + 1; }  // in device memory

 private:
  std::shared_ptr<Whereabouts> told_;    // host memory that the GPU writes to
  unsigned long long* clock_ = nullptr;  // when it was started, the sum, the number of starts and of stops
  unsigned long long* started_ = nullptr;
  unsigned long long* stopped_ = nullptr;
};

}  // namespace quaver::cuda
