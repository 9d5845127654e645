#include "engine/cuda/runtime/tensor_map.h"

#include "engine/cuda/runtime/gpu.h"
#include "quaver/error.h"

namespace quaver::cuda {

decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
          "looking for cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  if (encode != nullptr) return encode;
  throw Error("the NVIDIA driver has no cuTensorMapEncodeTiled", "install the driver of CUDA 12 or later");
}

}  // namespace quaver::cuda
