#include "engine/cuda/runtime/graph_cache.h"

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

GraphCache::~GraphCache() { forget_all(); }

void GraphCache::forget_all() {
  for (const auto& [key, entry] : graphs_) {
    if (entry.executable != nullptr) cudaGraphExecDestroy(entry.executable);
  }
  graphs_.clear();
}

void GraphCache::replay(std::uint64_t key, const std::function<void()>& work) {
  if (!enabled_) return work();
  const auto found = graphs_.find(key);
  if (found == graphs_.end()) {
    if (graphs_.size() >= most) forget_all();
    graphs_[key] = {};
    return work();
  }
  Graph& entry = found->second;
  if (entry.executable != nullptr && entry.moves != gpu_.workspace_moves()) {
    cudaGraphExecDestroy(entry.executable);
    entry = {};
  }
  if (entry.executable == nullptr) entry = {capture(work), gpu_.workspace_moves()};
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
