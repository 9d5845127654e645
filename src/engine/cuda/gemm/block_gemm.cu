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

// out += the sums of a tile's other parts, in their order: tile x of those that are split, 16 of its rows.
constexpr int add_threads = 256;
constexpr int add_rows = 16;
__global__ void add_partials_kernel(BlockGemmWork work, const float* partials, float* out, Size stride) {
  constexpr int tile_rows = BlockGemmSchedule::cluster_rows;
  constexpr int tile_cols = BlockGemmSchedule::tile_cols;
  constexpr int rows_at_once = add_threads / (tile_cols / 4);
  constexpr int rounds = add_rows / rows_at_once;
  const BlockGemmSchedule& schedule = work.schedule;
  const int tile = schedule.whole + static_cast<int>(blockIdx.x);
  const int row_in_tile = static_cast<int>(blockIdx.y) * add_rows + static_cast<int>(threadIdx.x) / (tile_cols / 4);
  const int col_in_tile = static_cast<int>(threadIdx.x) % (tile_cols / 4) * 4;
  const int row = tile / schedule.column_tiles * tile_rows + row_in_tile;
  const int col = tile % schedule.column_tiles * tile_cols + col_in_tile;
  if (col >= work.n) return;
  const float* from =
      partials + offset_of(static_cast<int>(blockIdx.x) * tile_rows + row_in_tile, tile_cols) + col_in_tile;
  float* to = out + offset_of(row, stride) + col;
  float4 sums[rounds];
  const auto for_rows = [&](auto body) {
#pragma unroll
    for (int i = 0; i < rounds; ++i) {
      if (row + i * rows_at_once < work.m) body(i);
    }
  };
  // Behind the last column lies memory too: rows begin at multiples of 16 bytes.
  for_rows([&](int i) { sums[i] = *reinterpret_cast<const float4*>(to + i * rows_at_once * stride); });
  for (int part = 1; part < schedule.parts(); ++part, from += offset_of(schedule.split() * tile_rows, tile_cols)) {
    for_rows([&](int i) {
      const float4 more = *reinterpret_cast<const float4*>(from + i * rows_at_once * tile_cols);
      sums[i].x += more.x, sums[i].y += more.y, sums[i].z += more.z, sums[i].w += more.w;
    });
  }
  for_rows([&](int i) {
    float* place = to + i * rows_at_once * stride;
    if (col + 4 <= work.n) {
      *reinterpret_cast<float4*>(place) = sums[i];
      return;
    }
    const float all[4] = {sums[i].x, sums[i].y, sums[i].z, sums[i].w};
    for (int j = 0; col + j < work.n; ++j) place[j] = all[j];
  });
}

void add_partials(const BlockGemm& op, const BlockGemmWork& work, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(work.schedule.split()), BlockGemmSchedule::cluster_rows / add_rows);
  add_partials_kernel<<<grid, add_threads, 0, stream>>>(work, op.partials, static_cast<float*>(op.out), op.out_stride);
  check_launch("adding partial sums");
}

template <class Out>
void launch(const BlockGemm& op, int multiprocessors, cudaStream_t stream) {
  constexpr const char* name = "blockwise GEMM";
  constexpr MatrixBox codes{CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, BlockGemmSchedule::tile_rows};
  constexpr MatrixBox result{sizeof(Out) == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                             sizeof(Out), hopper::group_rows};
  const auto [m, n, k] = op.shape;
  const BlockGemmSchedule schedule = block_gemm_schedule(op.shape, op.out_format, multiprocessors);
  const int partials = schedule.partials();
  BlockGemmMaps maps{.a = map_of({op.a, m, k, op.a_stride}, codes),
                     .b = map_of({op.b, n, k, op.b_stride}, codes),
                     .out = map_of({op.out, m, n, op.out_stride * result.element_bytes}, result),
                     .partials = {}};
  if (partials > 0) {
    constexpr Size cols = BlockGemmSchedule::tile_cols;
    maps.partials = map_of({op.partials, partials * BlockGemmSchedule::cluster_rows, cols, cols * 4}, result);
  }
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
  if (partials > 0) add_partials(op, work, stream);
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
