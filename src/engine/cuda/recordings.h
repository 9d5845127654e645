// Micro-steps recorded as CUDA graphs. The first time a key comes, its work runs as it is (products are tuned, working
// memory grows); the second time it is recorded; from then on the recording is launched.
#pragma once

#include <functional>
#include <unordered_map>

#include "engine/cuda/gpu.h"

namespace quaver::cuda {

class Recordings {
 public:
  explicit Recordings(Gpu& gpu);
  ~Recordings();
  Recordings(const Recordings&) = delete;
  Recordings& operator=(const Recordings&) = delete;

  void repeat(std::uint64_t key, const std::function<void()>& work);

 private:
  struct Recording {
    cudaGraphExec_t graph = nullptr;
    std::size_t moves = 0;  // of the workspace when it was made: its addresses are in the recording
  };
  cudaGraphExec_t record(const std::function<void()>& work);
  void forget_all();

  static constexpr std::size_t most = 16;
  Gpu& gpu_;
  bool enabled_;
  std::unordered_map<std::uint64_t, Recording> recordings_;
};

}  // namespace quaver::cuda
