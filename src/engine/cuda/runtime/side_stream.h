// The second stream of a GPU: what is put aside there runs beside the operations that follow on the first one. Both may
// be captured into one graph.
#pragma once

#include <functional>
#include <vector>

#include "engine/cuda/runtime/gpu.h"
#include "engine/device.h"

namespace quaver::cuda {

class SideStream {
 public:
  explicit SideStream(Gpu& gpu);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // As those of Device.
  Device::Place run(const std::function<void()>& work);
  void wait_for(Device::Place place);
  void wait_for_all() { wait_for(last_); }

 private:
  cudaEvent_t end_of(Device::Place place);

  Gpu& gpu_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  std::vector<cudaEvent_t> ends_;  // of the places behind first_
  Device::Place first_ = 0;        // the first stream has waited for all places up to this one
  Device::Place waited_ = 0;
  Device::Place last_ = 0;
};

}  // namespace quaver::cuda
