#include <algorithm>
#include <cfloat>

#include "engine/cuda/device/vectors.cuh"
#include "engine/cuda/optimizer/muon.h"

namespace quaver::cuda {

namespace {

constexpr int threads = 256;
constexpr Size most_blocks = 2048;

__global__ void __launch_bounds__(threads) square_sums_kernel(const float* x, Size count, double* sums) {
  double sum = 0;
  for (Size i = static_cast<Size>(blockIdx.x) * threads + threadIdx.x; i < count;
       i += static_cast<Size>(gridDim.x) * threads) {
    const double value = x[i];
    sum += value * value;
  }
  sum = block_sum<threads>(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// a · x + b · y, of which out may be one.
struct Blend {
  float a;
  const __nv_bfloat16* x;
  float b;
  const float* y;
  Size count;
  bool aligned;
};

template <class Out>
__global__ void __launch_bounds__(threads) blend_kernel(Blend of, Out* out) {
  const Size stride = static_cast<Size>(gridDim.x) * threads * group_size;
  for (Size first = (static_cast<Size>(blockIdx.x) * threads + threadIdx.x) * group_size; first < of.count;
       first += stride) {
    const int valid = static_cast<int>(min(of.count - first, static_cast<Size>(group_size)));
    float x[group_size];
    float y[group_size];
    load8(of.x + first, valid, of.aligned, x);
    load8(of.y + first, valid, of.aligned, y);
#pragma unroll
    for (int i = 0; i < group_size; ++i) x[i] = of.a * x[i] + of.b * y[i];
    store8(out + first, valid, of.aligned, x);
  }
}

// out = x / ‖x‖, rounded to BF16. Every block adds the parts of the norm in the same order.
__global__ void __launch_bounds__(threads)
    normalize_kernel(const float* x, Size count, const double* sums, int parts, bool aligned, __nv_bfloat16* out) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < parts; i += threads) sum += sums[i];
  const double norm = sqrt(block_sum<threads>(sum));
  const float shrink = norm > 0 ? static_cast<float>(min(1 / norm, static_cast<double>(FLT_MAX))) : 0.0F;
  const Size stride = static_cast<Size>(gridDim.x) * threads * group_size;
  for (Size first = (static_cast<Size>(blockIdx.x) * threads + threadIdx.x) * group_size; first < count;
       first += stride) {
    const int valid = static_cast<int>(min(count - first, static_cast<Size>(group_size)));
    float values[group_size];
    load8(x + first, valid, aligned, values);
#pragma unroll
    for (int i = 0; i < group_size; ++i) values[i] *= shrink;
    store8(out + first, valid, aligned, values);
  }
}

unsigned blocks_of(Size count) {
  return static_cast<unsigned>(std::min(most_blocks, ceil_div(count, Size{threads} * group_size)));
}

void normalize(Gpu& gpu, const View& x, const View& out) {
  const Size parts = orthogonalize_parts(x.count());
  auto* sums = gpu.workspace<double>(Slot::sums, parts);
  square_sums_kernel<<<static_cast<unsigned>(parts), threads, 0, gpu.stream()>>>(x.f32(), x.count(), sums);
  check_launch("orthogonalize, norm");
  normalize_kernel<<<blocks_of(x.count()), threads, 0, gpu.stream()>>>(
      x.f32(), x.count(), sums, static_cast<int>(parts), aligned16(x.data) && aligned16(out.data),
      static_cast<__nv_bfloat16*>(out.data));
  check_launch("orthogonalize, normalization");
}

// out = a · x + b · y, for x in BF16 and as many elements of y, in FP32.
void blend(Gpu& gpu, float a, const View& x, float b, const View& y, const View& out) {
  const Blend of{a,         static_cast<const __nv_bfloat16*>(x.data),
                 b,         y.f32(),
                 x.count(), aligned16(x.data) && aligned16(y.data) && aligned16(out.data)};
  with_f32_or_bf16(out.format, [&]<class T>(T) {
    blend_kernel<T><<<blocks_of(of.count), threads, 0, gpu.stream()>>>(of, static_cast<T*>(out.data));
  });
  check_launch("orthogonalize, sum");
}

Operand operand_of(const View& matrix) {
  return {{.spec = {.format = matrix.format},
           .rows = matrix.rows,
           .cols = matrix.cols,
           .codes = static_cast<std::byte*>(matrix.data)},
          false};
}

// The reduction along its rows.
Operand transposed(const View& matrix) {
  Operand operand = operand_of(matrix);
  operand.transposed = true;
  return operand;
}

}  // namespace

// In a tall matrix the smaller Gram matrix is Xᵀ·X, and stands on the right: the same as the transpose of a wide one.
void orthogonalize(Gpu& gpu, Gemms& gemms, const Orthogonalize& op) {
  const View& x = op.x;
  if (x.count() == 0) return;
  const Size n = op.gram_size();
  const bool tall = x.rows > x.cols;
  const View now{gpu.workspace<__nv_bfloat16>(Slot::operand_a, x.count()), Format::bf16, x.rows, x.cols};
  std::byte* grams = gpu.workspace(Slot::operand_b, static_cast<std::size_t>(2 * gram_bytes(op)));
  const View gram{grams, Format::bf16, n, n};
  const View polynomial{grams + gram_bytes(op), Format::bf16, n, n};
  const View square{x.data, Format::f32, n, n};  // products are stored in x, which is not needed any more
  normalize(gpu, x, now);
  for (Size step = 0; step < op.steps; ++step) {
    const Operand across = tall ? transposed(now) : operand_of(now);
    gemms.run(Gemm{.a = across, .b = across, .out = gram});
    gemms.run(Gemm{.a = operand_of(gram), .b = transposed(gram), .out = square});
    blend(gpu, Orthogonalize::b, gram, Orthogonalize::c, square, polynomial);
    gemms.run(tall ? Gemm{.a = operand_of(now), .b = transposed(polynomial), .out = x}
                   : Gemm{.a = operand_of(polynomial), .b = transposed(now), .out = x});
    if (step + 1 < op.steps) blend(gpu, Orthogonalize::a, now, 1, x, now);
  }
  blend(gpu, op.factor * Orthogonalize::a, now, op.factor, x, x);
}

}  // namespace quaver::cuda
