// The kinds of operations in words: of benchmarks, and of a profiler's ranges.
#pragma once

#include <string_view>

#include "engine/casting.h"

namespace quaver {

// Ends with a NUL, as literals do.
constexpr std::string_view name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::gemm_fprop:
      return "GEMM, fprop";
    case OperationKind::gemm_dgrad:
      return "GEMM, dgrad";
    case OperationKind::gemm_wgrad:
      return "GEMM, wgrad";
    case OperationKind::attention:
      return "attention";
    case OperationKind::norm:
      return "norms";
    case OperationKind::activation:
      return "activations";
    case OperationKind::cast:
      return "casts";
    case OperationKind::loss:
      return "head and loss";
    case OperationKind::embedding:
      return "embedding";
    case OperationKind::heads:
      return "heads";
    case OperationKind::optimizer:
      return "optimizer";
    case OperationKind::copy:
      return "copies";
  }
  return "";
}

}  // namespace quaver
