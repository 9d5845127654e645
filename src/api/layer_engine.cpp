#include "api/layer_engine.h"

#include <map>

#include "quaver/error.h"

namespace quaver {

namespace {

// It stays until the process ends: making one takes time, and layers and matrices come and go. Nothing is freed then,
// for CUDA may have ended before.
std::shared_ptr<LayerEngine> engine_of_gpu(int gpu) {
  if (gpu < 0) throw Error("there is no GPU number " + std::to_string(gpu), "GPUs are numbered from 0");
  static std::mutex mutex;
  static auto& engines = *new std::map<int, std::shared_ptr<LayerEngine>>;  // NOLINT(cppcoreguidelines-owning-memory)
  const std::lock_guard lock(mutex);
  std::shared_ptr<LayerEngine>& engine = engines[gpu];
  if (engine == nullptr) {
    engine = std::make_shared<LayerEngine>(make_cuda_engine({.device = gpu, .notice = [](const auto&) {}}));
  }
  return engine;
}

}  // namespace

std::shared_ptr<LayerEngine> LayerEngine::of(DeviceKind device, int gpu, int threads) {
  const bool automatic = device == DeviceKind::automatic;
  const bool on_gpu = device == DeviceKind::cuda || (automatic && inspect_cuda().state == CudaState::ready);
  if (on_gpu) return engine_of_gpu(gpu);
  return std::make_shared<LayerEngine>(make_cpu_engine(threads));
}

void LayerEngine::run(Stream stream, const std::function<void(Engine&)>& work) {
  const std::lock_guard lock(mutex_);
  if (gpu_ == nullptr) return work(*engine_);
  gpu_->on_stream(stream.value_or(gpu_->own_stream()), [&] { work(*engine_); });
}

std::unique_ptr<Site> LayerEngine::take_site(Engine& engine) {
  constexpr std::size_t many = 1024;
  if (clean_sites_.empty() && used_sites_.size() >= many) {
    std::vector<Site*> used;
    for (const auto& site : used_sites_) used.push_back(site.get());
    engine.wait_for_statistics(used);
    clean_sites_.swap(used_sites_);
  }
  if (clean_sites_.empty()) return std::make_unique<Site>();
  std::unique_ptr<Site> site = std::move(clean_sites_.back());
  clean_sites_.pop_back();
  site->seen = {};
  return site;
}

void LayerEngine::give_back(std::unique_ptr<Site> site) {
  const std::lock_guard lock(mutex_);
  used_sites_.push_back(std::move(site));
}

void LayerEngine::retire(std::unique_ptr<Registry> registry) {
  const std::lock_guard lock(mutex_);
  if (gpu_ != nullptr) retired_.push_back(std::move(registry));
}

}  // namespace quaver
