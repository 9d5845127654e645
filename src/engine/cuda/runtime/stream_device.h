// A GPU as a device: a stream on which transfers, graphs and operations follow each other, and one for what runs beside
// them.
#pragma once

#include <deque>
#include <vector>

#include "comm/whereabouts.h"
#include "engine/cuda/runtime/gpu.h"
#include "engine/cuda/runtime/graph_cache.h"
#include "engine/cuda/runtime/side_stream.h"
#include "engine/cuda/runtime/uploads.h"
#include "engine/device.h"

namespace quaver::cuda {

class StreamDevice final : public Device {
 public:
  explicit StreamDevice(Gpu& gpu) : gpu_(gpu), side_(gpu), uploads_(gpu), graphs_(gpu) {}
  ~StreamDevice() override;
  StreamDevice(const StreamDevice&) = delete;
  StreamDevice& operator=(const StreamDevice&) = delete;

  cudaStream_t stream() const { return gpu_.stream(); }
  void tell(std::shared_ptr<Whereabouts> whereabouts) { whereabouts_ = std::move(whereabouts); }  // of its host's waits

  Hardware hardware() const override { return {.kind = HardwareKind::gpu, .architecture = gpu_.architecture()}; }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void upload(const void* host, void* device, std::size_t bytes) override {
    const Wait wait(*whereabouts_, &Whereabouts::waits_for_device);  // until there is room for it
    uploads_.copy(host, device, bytes);
  }
  void read(const void* device, std::size_t bytes, const Use& use) override;
  void time(const std::function<void()>& work, const UseSeconds& use) override;
  void download(const void* device, void* host, std::size_t bytes) override;
  void synchronize() override;
  // What was put aside before is none of the graph's.
  void replay(std::uint64_t key, const std::function<void()>& work) override {
    side_.wait_for_all();
    graphs_.replay(key, work);
  }
  Place aside(const std::function<void()>& work) override { return side_.run(work); }
  void wait_for(Place place) override { side_.wait_for(place); }
  void wait_for_aside() override { side_.wait_for_all(); }
  std::size_t free_memory() const override;
  std::size_t workspace_bytes() const override { return gpu_.workspace_bytes(); }

 private:
  // Pinned host memory, filled from its start until the next synchronize().
  struct Buffer {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::size_t used = 0;
  };
  std::byte* pinned(std::size_t bytes);
  cudaEvent_t recorded_event();

  Gpu& gpu_;
  std::shared_ptr<Whereabouts> whereabouts_ = std::make_shared<Whereabouts>();
  SideStream side_;
  Uploads uploads_;
  GraphCache graphs_;
  std::vector<Buffer> buffers_;
  std::vector<cudaEvent_t> free_events_;
  std::deque<std::function<void()>> pending_;  // for the next synchronize()
};

}  // namespace quaver::cuda
