// The engine of linear layers and quantized matrices. Those of one GPU share it: its workspace, its cuBLASLt and the
// GEMMs it has measured.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/cuda_module.h"
#include "nn/registry.h"
#include "quaver/device.h"

namespace quaver {

class LayerEngine {
 public:
  static std::shared_ptr<LayerEngine> of(DeviceKind device, int gpu, int threads = 0);

  explicit LayerEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  explicit LayerEngine(std::unique_ptr<GpuEngine> engine) : gpu_(engine.get()), engine_(std::move(engine)) {}

  bool is_gpu() const { return gpu_ != nullptr; }

  // Calls work(engine), one thread at a time; on a GPU its operations go onto the stream, by default the engine's own.
  using Stream = std::optional<void*>;
  void run(Stream stream, const std::function<void(Engine&)>& work);

  // A site for one cast, and back. One that comes back keeps its statistics until they are asked for: there is a wait
  // for those of many at once. take_site: within run.
  std::unique_ptr<Site> take_site(Engine& engine);
  void give_back(std::unique_ptr<Site> site);

  // A layer ends. A GPU's engine knows sites by their addresses, which therefore stay taken as long as it is there.
  void retire(std::unique_ptr<Registry> registry);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Registry>> retired_;
  std::vector<std::unique_ptr<Site>> clean_sites_;
  std::vector<std::unique_ptr<Site>> used_sites_;
  GpuEngine* gpu_ = nullptr;  // null: a CPU
  std::unique_ptr<Engine> engine_;
};

}  // namespace quaver
