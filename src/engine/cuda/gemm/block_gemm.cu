#include "engine/cuda/gemm/block_gemm.cuh"
#include "engine/cuda/runtime/tensor_map.h"
#include "quaver/error.h"

namespace quaver::cuda {
namespace {

using hopper::BlockGemmLayout;
using hopper::BlockGemmMaps;
using hopper::BlockGemmWork;

struct MatrixBox {
  CUtensorMapDataType type;
  int element_bytes;
  cuuint32_t rows;
};

struct Matrix {
  const void* data;
  Size rows;
  Size cols;
  Size row_bytes;  // from row to row
};

// A row-major matrix, read or written in boxes of 128 bytes of `box.rows` rows.
CUtensorMap map_of(const Matrix& matrix, const MatrixBox& box) {
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(matrix.cols), static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.row_bytes)};
  const cuuint32_t sides[] = {static_cast<cuuint32_t>(128 / box.element_bytes), box.rows};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map;
  const CUresult status = tensor_map_encoder()(&map, box.type, 2, const_cast<void*>(matrix.data), extents, strides,
                                               sides, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Error("blockwise GEMM: CUDA cannot describe a matrix of " + std::to_string(matrix.rows) + " × " +
                    std::to_string(matrix.cols) + " (error " + std::to_string(static_cast<int>(status)) + ")",
                "QUAVER_BLOCK_GEMM=cublaslt multiplies without this kernel");
  }
  return map;
}

template <class Out>
void launch(const BlockGemm& op, int multiprocessors, cudaStream_t stream) {
  constexpr const char* name = "blockwise GEMM";
  constexpr MatrixBox codes{CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, BlockGemmSchedule::tile_rows};
  constexpr MatrixBox result{sizeof(Out) == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                             sizeof(Out), hopper::group_rows};
  const auto [m, n, k] = op.shape;
  const BlockGemmSchedule schedule = block_gemm_schedule(op.shape, multiprocessors);
  const BlockGemmMaps maps{.a = map_of({op.a, m, k, op.a_stride}, codes),
                           .b = map_of({op.b, n, k, op.b_stride}, codes),
                           .out = map_of({op.out, m, n, op.out_stride * result.element_bytes}, result)};
  const BlockGemmWork work{.schedule = schedule,
                           .m = to_int(m),
                           .n = to_int(n),
                           .a_scales = op.a_scales,
                           .b_scales = op.b_scales,
                           .bias = op.bias,
                           .alpha = op.alpha,
                           .store = op.store};
  constexpr int bytes = BlockGemmLayout<Out>::total;
  const auto kernel = hopper::block_gemm_kernel<Out>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
  kernel<<<static_cast<unsigned>(2 * schedule.clusters), hopper::gemm_threads, bytes, stream>>>(maps, work);
  check_launch(name);
}

}  // namespace

void run_block_gemm(const BlockGemm& op, int multiprocessors, cudaStream_t stream) {
  if (op.out_format == Format::f32) return launch<float>(op, multiprocessors, stream);
  if (op.out_format == Format::bf16 && op.store == Store::replace) {
    return launch<__nv_bfloat16>(op, multiprocessors, stream);
  }
  throw Error("blockwise GEMMs write bf16 or f32, and add to f32 only",
              "this is a defect of the GEMM that asked for it");
}

}  // namespace quaver::cuda
