#include "api/layer_engine.h"

#include <map>

#include "quaver/error.h"

namespace quaver {

namespace {

std::shared_ptr<LayerEngine> engine_of_gpu(int gpu) {
  if (gpu < 0) throw Error("there is no GPU number " + std::to_string(gpu), "GPUs are numbered from 0");
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<LayerEngine>> engines;
  const std::lock_guard lock(mutex);
  std::shared_ptr<LayerEngine> engine = engines[gpu].lock();
  if (engine == nullptr) {
    engine = std::make_shared<LayerEngine>(make_cuda_engine({.device = gpu, .notice = [](const auto&) {}}));
    engines[gpu] = engine;
  }
  return engine;
}

}  // namespace

std::shared_ptr<LayerEngine> LayerEngine::of(const LinearSettings& settings) {
  const bool automatic = settings.device == LinearDevice::automatic;
  const bool on_gpu = settings.device == LinearDevice::cuda || (automatic && inspect_cuda().state == CudaState::ready);
  if (on_gpu) return engine_of_gpu(settings.gpu);
  return std::make_shared<LayerEngine>(make_cpu_engine(settings.threads));
}

void LayerEngine::run(Stream stream, const std::function<void(Engine&)>& work) {
  const std::lock_guard lock(mutex_);
  if (gpu_ == nullptr) return work(*engine_);
  gpu_->on_stream(stream.value_or(gpu_->own_stream()), [&] { work(*engine_); });
}

void LayerEngine::retire(std::unique_ptr<Registry> registry) {
  const std::lock_guard lock(mutex_);
  if (gpu_ != nullptr) retired_.push_back(std::move(registry));
}

}  // namespace quaver
