// Products of code matrices, the engine's matmul: natively where the tensor cores know the formats and their scales,
// otherwise of the decoded operands, which is exact and slower, and said once.
#pragma once

#include <string>

#include "engine/cuda/gpu.h"
#include "engine/cuda/product_cache.h"
#include "engine/engine.h"

namespace quaver::cuda {

class Products {
 public:
  explicit Products(Gpu& gpu) : gpu_(gpu), cache_(gpu) {}

  void matmul(const Matmul& op);

  // What matmul does with operands stored so, whatever their shapes.
  Support support(const QuantSpec& a, const QuantSpec& b);

  std::string describe() const { return cache_.library(); }  // the library and its version

 private:
  // What the library multiplies in place of an operand: its codes, or their decoded values.
  struct Source {
    const void* data;
    cudaDataType_t type;
    Scaling scaling;
  };
  struct Sources {
    Source a;
    Source b;
    cublasComputeType_t compute;
    Scalars scalars;  // device: alpha takes the tensors' scales in
  };
  // Parts of the workspace, laid out anew for each product.
  struct Space {
    float* scalars;
    float* a_scales;
    float* b_scales;
    void* bias;
    float* product;  // where the result needs rounding
  };

  static Sources wide_sources(const Matmul& op);
  static Sources native_sources(const Matmul& op);
  static Problem problem_of(const Matmul& op, const Sources& sources);

  bool multiply_native(const Matmul& op);
  void multiply_wide(const Matmul& op);
  void multiply_decoded(const Matmul& op, const std::string& reason);
  Source decoded(const CodeMatrix& matrix, Format as, Slot slot);

  // False, with nothing done, where the library has no kernel for it.
  bool multiply(const Matmul& op, const Sources& sources);
  Space arrange(const Matmul& op, const Problem& problem, bool rounds);
  Arguments arguments(const Matmul& op, const Sources& sources, const Problem& problem, const Space& space);

  Gpu& gpu_;
  ProductCache cache_;
};

}  // namespace quaver::cuda
