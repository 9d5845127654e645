// One GPU as the operations see it: its stream, its properties, and memory they need while they run. Operations are
// enqueued and return at once; workspace is reused in stream order, so an operation may use a slot without waiting for
// its previous user.
#pragma once

#include <array>
#include <cstddef>
#include <cuda_runtime.h>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "engine/cuda/workspace_sizes.h"

namespace quaver::cuda {

// Throws Error with what failed, where, and CUDA's message.
void check(cudaError_t status, const char* what);

// After every kernel launch.
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

// Rows and columns as kernels count them. Throws where a matrix has more than fit.
int to_int(Size count);

class Gpu {
 public:
  using Listener = std::function<void(const std::string&)>;
  Gpu(int index, Listener listener);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Where operations are enqueued: its own stream, but for what is put aside (side_stream.h).
  cudaStream_t stream() const { return stream_; }
  cudaStream_t switch_stream(cudaStream_t stream) { return std::exchange(stream_, stream); }  // returns the last one
  int multiprocessors() const { return multiprocessors_; }
  int architecture() const { return architecture_; }  // 90 for Hopper
  const std::string& name() const { return name_; }
  Size shared_memory() const { return shared_memory_; }  // bytes per block at most

  // At least this many bytes, 256-byte aligned, with undefined contents. Does not grow while a graph is captured.
  std::byte* workspace(Slot slot, std::size_t bytes);
  template <class T>
  T* workspace(Slot slot, Size count) {
    return reinterpret_cast<T*>(workspace(slot, static_cast<std::size_t>(count) * sizeof(T)));
  }
  std::size_t workspace_bytes() const;
  std::size_t workspace_moves() const {
    return workspace_moves_;
  }  // how often a slot was reallocated: graphs captured before are invalid

  void synchronize();

  // True while the stream's work is captured and not run: nothing may be allocated, timed or waited for.
  bool capturing() const { return capturing_; }
  void set_capturing(bool capturing) { capturing_ = capturing; }

  // Reported once per subject: what is slower or different than a user may expect, with the remedy.
  void notice(const std::string& text, const std::string& subject);
  void notice(const std::string& text) { notice(text, text); }

 private:
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  cudaStream_t stream_ = nullptr;
  int multiprocessors_ = 0;
  int architecture_ = 0;
  std::string name_;
  Size shared_memory_ = 0;
  bool capturing_ = false;
  std::array<Block, static_cast<std::size_t>(Slot::count)> workspace_{};
  std::size_t workspace_moves_ = 0;
  Listener listener_;
  std::set<std::string> told_;
};

}  // namespace quaver::cuda
