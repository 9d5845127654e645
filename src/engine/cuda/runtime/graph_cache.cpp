#include "engine/cuda/runtime/graph_cache.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace quaver::cuda {

namespace {

bool wanted() {
  const char* choice = std::getenv("QUAVER_GRAPHS");
  return choice == nullptr || std::string_view(choice) != "off";
}

}  // namespace

GraphCache::GraphCache(Gpu& gpu) : gpu_(gpu), enabled_(wanted()) {}

GraphCache::~GraphCache() {
  while (!graphs_.empty()) forget(graphs_.begin()->first);
}

void GraphCache::forget(std::uint64_t key) {
  const auto found = graphs_.find(key);
  if (found->second.executable != nullptr) cudaGraphExecDestroy(found->second.executable);
  graphs_.erase(found);
}

void GraphCache::forget_oldest() {
  forget(std::ranges::min_element(graphs_, {}, [](const auto& entry) { return entry.second.used; })->first);
}

void GraphCache::replay(std::uint64_t key, const std::function<void()>& work) {
  if (!enabled_) return work();
  const auto found = graphs_.find(key);
  if (found == graphs_.end()) {
    if (graphs_.size() >= most) forget_oldest();
    graphs_[key] = {.used = ++replays_};
    return work();
  }
  Graph& entry = found->second;
  if (entry.executable != nullptr && entry.moves != gpu_.workspace_moves()) {
    cudaGraphExecDestroy(entry.executable);
    entry = {};
  }
  if (entry.executable == nullptr) entry = {capture(work), gpu_.workspace_moves()};
  entry.used = ++replays_;
  check(cudaGraphLaunch(entry.executable, gpu_.stream()), "launching a micro-step's graph");
}

cudaGraphExec_t GraphCache::capture(const std::function<void()>& work) {
  check(cudaStreamBeginCapture(gpu_.stream(), cudaStreamCaptureModeThreadLocal), "capturing a micro-step");
  gpu_.set_capturing(true);
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    gpu_.set_capturing(false);
    cudaStreamEndCapture(gpu_.stream(), &graph);
    cudaGraphDestroy(graph);
    throw;
  }
  gpu_.set_capturing(false);
  check(cudaStreamEndCapture(gpu_.stream(), &graph), "capturing a micro-step");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "instantiating a micro-step's graph");
  return executable;
}

}  // namespace quaver::cuda
