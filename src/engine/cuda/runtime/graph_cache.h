// Micro-steps as CUDA graphs. The first time a key comes, its work runs as it is (GEMM algorithms are chosen, the
// workspace grows); the second time it is captured; from then on the graph is launched.
#pragma once

#include <functional>
#include <unordered_map>

#include "engine/cuda/runtime/gpu.h"

namespace quaver::cuda {

class GraphCache {
 public:
  explicit GraphCache(Gpu& gpu);
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  void replay(std::uint64_t key, const std::function<void()>& work);

 private:
  struct Graph {
    cudaGraphExec_t executable = nullptr;
    std::size_t moves = 0;   // of the workspace when it was captured: its addresses are in the graph
    std::uint64_t used = 0;  // when it was, in replays
  };
  cudaGraphExec_t capture(const std::function<void()>& work);
  void forget(std::uint64_t key);
  void forget_oldest();

  static constexpr std::size_t most = 16;
  Gpu& gpu_;
  bool enabled_;
  std::unordered_map<std::uint64_t, Graph> graphs_;
  std::uint64_t replays_ = 0;
};

}  // namespace quaver::cuda
