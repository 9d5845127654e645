// GEMMs of code matrices: natively where tensor cores support the formats, their scales and sizes (gemm_shapes.h),
// otherwise of the decoded operands, which is exact and slower, and reported once. Native GEMMs are cuBLASLt's,
// blockwise ones on Hopper our own where that is faster; QUAVER_BLOCK_GEMM=own takes ours wherever it can,
// QUAVER_BLOCK_GEMM=cublaslt never.
#pragma once

#include <string>

#include "engine/cuda/gemm/gemm_algorithms.h"
#include "engine/cuda/gemm/gemm_shapes.h"
#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

class Gemms {
 public:
  explicit Gemms(Gpu& gpu);

  void run(const Gemm& op);

  // What run does with operands stored so, whatever their shapes.
  Support support(const QuantSpec& a, const QuantSpec& b);

  std::string describe() const { return cache_.library(); }  // cuBLASLt and its version

  std::string tuning() const { return render_gemm_choices(cache_.choices()); }
  void fix_tuning(const std::string& text) { cache_.fix(parse_gemm_choices(text)); }

 private:
  enum class BlockGemmBy : std::uint8_t { fastest, own, library };

  // What cuBLASLt multiplies in place of an operand: its codes, or their decoded values.
  struct Source {
    const void* data;
    cudaDataType_t type;
    Scaling scaling;
    Size length;  // of a row: with the zeros behind it where it is codes
    Size stride;  // elements from row to row
  };
  struct Sources {
    Format format;  // of what is multiplied
    Source a;
    Source b;
    cublasComputeType_t compute;
    Scalars scalars;  // device: alpha includes the tensors' scales
  };
  // Parts of the workspace, laid out anew for each GEMM.
  struct Space {
    float* scalars;
    float* a_scales;
    float* b_scales;
    void* bias;
    float* result;  // before it is rounded
  };

  static Source stored(const CodeMatrix& matrix, Scaling scaling, Size length);
  static Factor factor_of(const Operand& operand, const Source& source, cublasOperation_t as_it_lies,
                          cublasOperation_t transposed);
  static Sources high_precision_sources(const Gemm& op);
  static Sources native_sources(const Gemm& op);
  static Problem problem_of(const Gemm& op, const Sources& sources);

  void run_part(const GemmPart& part);
  bool multiply_native(const Gemm& op);
  bool is_own(const Gemm& op) const;  // by our own kernel, whatever cuBLASLt has
  void multiply_blockwise(const Gemm& op);
  void multiply_high_precision(const Gemm& op);
  void multiply_decoded(const Gemm& op);
  Source decoded(const CodeMatrix& matrix, Format as, Slot slot);

  // False, with nothing done, where cuBLASLt has no kernel for it.
  bool multiply(const Gemm& op, const Sources& sources);
  Space arrange(const Gemm& op, const Sources& sources);
  Arguments arguments(const Gemm& op, const Sources& sources, const Problem& problem, const Space& space);

  Gpu& gpu_;
  GemmAlgorithms cache_;
  BlockGemmBy block_gemm_ = BlockGemmBy::fastest;
};

}  // namespace quaver::cuda
