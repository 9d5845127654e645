#include "engine/cuda/runtime/side_stream.h"

namespace quaver::cuda {

// Communication goes first where both streams have work: it is short, and others wait for it.
SideStream::SideStream(Gpu& gpu) : gpu_(gpu) {
  int lowest = 0;
  int highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for priorities of streams");
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest), "making a stream");
  check(cudaEventCreateWithFlags(&begin_, cudaEventDisableTiming), "making an event");
}

SideStream::~SideStream() {
  cudaStreamSynchronize(stream_);
  for (cudaEvent_t event : ends_) cudaEventDestroy(event);
  cudaEventDestroy(begin_);
  cudaStreamDestroy(stream_);
}

cudaEvent_t SideStream::end_of(Device::Place place) {
  const std::size_t i = place - first_ - 1;
  while (ends_.size() <= i) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    ends_.push_back(event);
  }
  return ends_[i];
}

Device::Place SideStream::run(const std::function<void()>& work) {
  check(cudaEventRecord(begin_, gpu_.stream()), "recording an event");
  check(cudaStreamWaitEvent(stream_, begin_), "putting work aside");
  struct Return {
    Gpu& gpu;
    cudaStream_t stream;
    ~Return() { gpu.switch_stream(stream); }
  } const back{gpu_, gpu_.switch_stream(stream_)};
  work();
  ++last_;
  check(cudaEventRecord(end_of(last_), stream_), "recording an event");
  return last_;
}

void SideStream::wait_for(Device::Place place) {
  if (place <= waited_) return;
  check(cudaStreamWaitEvent(gpu_.stream(), end_of(place)), "waiting for what was put aside");
  waited_ = place;
  if (waited_ == last_) first_ = last_;  // their events are free
}

}  // namespace quaver::cuda
