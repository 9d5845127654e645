// The engine of linear layers. Those of one GPU share it: its workspace, its cuBLASLt and the GEMMs it has measured.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/cuda_module.h"
#include "nn/registry.h"
#include "quaver/linear.h"

namespace quaver {

class LayerEngine {
 public:
  static std::shared_ptr<LayerEngine> of(const LinearSettings& settings);

  explicit LayerEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  explicit LayerEngine(std::unique_ptr<GpuEngine> engine) : gpu_(engine.get()), engine_(std::move(engine)) {}

  bool is_gpu() const { return gpu_ != nullptr; }

  // Calls work(engine), one thread at a time; on a GPU its operations go onto the stream, by default the engine's own.
  using Stream = std::optional<void*>;
  void run(Stream stream, const std::function<void(Engine&)>& work);

  // A layer ends. A GPU's engine knows sites by their addresses, which therefore stay taken as long as it is there.
  void retire(std::unique_ptr<Registry> registry);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Registry>> retired_;
  GpuEngine* gpu_ = nullptr;  // null: a CPU
  std::unique_ptr<Engine> engine_;
};

}  // namespace quaver
