// cuBLASLt's GEMMs and the algorithm of each: cuBLASLt proposes several, a large GEMM benchmarks them once, and the
// choice is kept in a file for the next run. The file is a hint and never trusted: cuBLASLt checks an algorithm before
// it runs.
#pragma once

#include <compare>
#include <cstdint>
#include <cublasLt.h>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/cuda/gemm/gemm_kernels.h"
#include "engine/cuda/runtime/gpu.h"
#include "engine/gemm_cache_file.h"
#include "engine/tensor_cores.h"

namespace quaver::cuda {

// An operand as stored, in cuBLASLt's column-major terms: `rows` run contiguously.
struct Factor {
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  // from column to column, `rows` at least
  cublasOperation_t operation = CUBLAS_OP_N;
  std::uint32_t alignment = 16;  // of its memory, in bytes, 16 at most

  auto operator<=>(const Factor&) const = default;  // NOLINT(modernize-use-nullptr): a false alarm
};

enum class Scalars : std::uint8_t { host, device };  // where alpha and beta are stored
enum class Sums : std::uint8_t { split, fast };      // of FP8: split or fast accumulation
enum class BiasBy : std::uint8_t { nobody, library };

// D[m × n] = alpha · left[m × k] · right[k × n] (+ bias) (+ D), column-major: all that the choice of an algorithm may
// depend on.
struct Problem {
  Factor left;
  Factor right;
  Scaling left_scaling = Scaling::none;
  Scaling right_scaling = Scaling::none;
  cudaDataType_t out_type = CUDA_R_32F;
  std::uint32_t out_alignment = 16;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t out_stride = 0;  // from column to column, m at least
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  Scalars scalars = Scalars::host;
  Sums sums = Sums::split;
  BiasBy bias = BiasBy::nobody;
  Store store = Store::replace;

  auto operator<=>(const Problem&) const = default;  // NOLINT(modernize-use-nullptr): a false alarm
  std::string key() const;                           // one line of printable characters: in the file and in errors
  std::size_t out_bytes() const;
  bool is_large() const;  // enough for a measured choice to pay
};

struct Arguments {
  const void* left = nullptr;
  const void* right = nullptr;
  void* out = nullptr;
  const float* left_scales = nullptr;
  const float* right_scales = nullptr;
  const void* bias = nullptr;      // [m], of the type of the result
  float alpha = 1;                 // with Scalars::host
  const float* scalars = nullptr;  // alpha and beta, with Scalars::device
};

class GemmAlgorithms {
 public:
  explicit GemmAlgorithms(Gpu& gpu);
  ~GemmAlgorithms();
  GemmAlgorithms(const GemmAlgorithms&) = delete;
  GemmAlgorithms& operator=(const GemmAlgorithms&) = delete;

  // Whether cuBLASLt has a kernel for it.
  bool supports(const Problem& problem) { return !entry(problem).candidates.empty(); }

  // Enqueues it; unless a CUDA graph is being captured, the algorithms of a large problem are benchmarked before its
  // first run. Only for supported problems; throws Error where cuBLASLt fails all the same.
  void run(const Problem& problem, const Arguments& arguments);

  std::string library() const;  // "cuBLASLt 13.1.0"

  // fix: takes these choices in place of its own and measures nothing any more; a problem without one runs with
  // cuBLASLt's first proposal.
  const GemmChoices& choices() const { return known_; }
  void fix(GemmChoices choices);

 private:
  using Candidate = cublasLtMatmulHeuristicResult_t;
  struct TimedCandidate {
    float milliseconds = 0;
    Candidate candidate{};
  };
  struct Entry {
    std::vector<Candidate> candidates;  // the first is used; empty: not supported
    bool settled = false;               // nothing is left to measure
  };

  Entry& entry(const Problem& problem);
  std::vector<Candidate> proposals(const Problem& problem) const;
  bool recall(const Problem& problem, Candidate& candidate) const;
  void settle(const Problem& problem, Arguments arguments, Entry& entry);
  void measure(const Problem& problem, const Arguments& arguments, Entry& entry);
  float milliseconds(const Problem& problem, const Arguments& arguments, const Candidate& candidate, float limit) const;
  float timed_runs(const Problem& problem, const Arguments& arguments, const Candidate& candidate, int count) const;
  cublasStatus_t enqueue(const Problem& problem, const Arguments& arguments, const Candidate& candidate) const;
  void remember(const std::string& key, const GemmChoice& choice);

  Gpu& gpu_;
  cublasLtHandle_t library_ = nullptr;
  std::byte* workspace_ = nullptr;
  std::filesystem::path file_;  // empty: no place for one
  GemmChoices known_;           // what the file holds, and what was measured
  bool measures_ = true;
  std::map<Problem, Entry> entries_;
};

}  // namespace quaver::cuda
