#include "engine/cuda/convolution/batch_norm.h"
#include "engine/cuda/convolution/tiles.cuh"

namespace quaver::cuda {

namespace {

constexpr int threads = 256;
constexpr int strip_cols = static_cast<int>(batch_norm_cols);
constexpr int threads_across = strip_cols / group_size;
constexpr int rows_at_once = threads / threads_across;

// A thread's eight channels, and the rows that it visits.
struct Strip {
  int col;
  int valid;
  int first;
  int step;

  __device__ explicit Strip(int cols)
      : col(static_cast<int>(blockIdx.x) * strip_cols + static_cast<int>(threadIdx.x) % threads_across * group_size),
        valid(cols - col),
        first(static_cast<int>(blockIdx.y) * rows_at_once + static_cast<int>(threadIdx.x) / threads_across),
        step(static_cast<int>(gridDim.y) * rows_at_once) {}
};

dim3 grid_of(const View& x) {
  return {static_cast<unsigned>(ceil_div(x.cols, batch_norm_cols)),
          static_cast<unsigned>(batch_norm_strips(x.rows, x.cols))};
}

// Adds up two sums per channel over the block's rows and leaves them in partials[strip][2][cols].
__device__ void leave_sums(const Strip& strip, const float (&first)[group_size], const float (&second)[group_size],
                           int cols, float* partials) {
  __shared__ float sums[2][rows_at_once][strip_cols];
  const int row = static_cast<int>(threadIdx.x) / threads_across;
  const int lane = static_cast<int>(threadIdx.x) % threads_across * group_size;
#pragma unroll
  for (int i = 0; i < group_size; ++i) {
    sums[0][row][lane + i] = first[i];
    sums[1][row][lane + i] = second[i];
  }
  __syncthreads();
  const int which = static_cast<int>(threadIdx.x) / strip_cols;
  const int c = static_cast<int>(threadIdx.x) % strip_cols;
  const int col = static_cast<int>(blockIdx.x) * strip_cols + c;
  if (which >= 2 || col >= cols) return;
  float total = 0;
  for (int r = 0; r < rows_at_once; ++r) total += sums[which][r][c];
  partials[(static_cast<std::int64_t>(blockIdx.y) * 2 + which) * cols + col] = total;
}

// Sums of x − x₀ and of its square, with x₀ the channel's first element: little cancels.
template <class T>
__global__ void __launch_bounds__(threads)
    moments_kernel(const T* x, int rows, int cols, bool aligned, float* partials) {
  const Strip strip(cols);
  float sum[group_size] = {};
  float squares[group_size] = {};
  if (strip.valid > 0) {
    float origin[group_size];
    load8(x + strip.col, strip.valid, aligned, origin);
#pragma unroll 4
    for (int row = strip.first; row < rows; row += strip.step) {
      float v[group_size];
      load8(x + offset_of(row, cols) + strip.col, strip.valid, aligned, v);
#pragma unroll
      for (int i = 0; i < group_size; ++i) {
        const float difference = v[i] - origin[i];
        sum[i] += difference;
        squares[i] += difference * difference;
      }
    }
  }
  leave_sums(strip, sum, squares, cols, partials);
}

constexpr int lanes_down = 32;

// Two sums of a channel from those of the strips, in a fixed order. Valid in threads with threadIdx.y = 0.
__device__ double2 sum_of_strips(const float* partials, int strips, int cols, int col) {
  __shared__ double2 sums[lanes_down][33];
  double2 sum{0, 0};
  if (col < cols) {
    for (int strip = static_cast<int>(threadIdx.y); strip < strips; strip += lanes_down) {
      const float* at = partials + static_cast<std::int64_t>(strip) * 2 * cols + col;
      sum.x += at[0];
      sum.y += at[cols];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  double2 total{0, 0};
  for (int i = 0; i < lanes_down && threadIdx.y == 0; ++i) {
    total.x += sums[i][threadIdx.x].x;
    total.y += sums[i][threadIdx.x].y;
  }
  return total;
}

struct Moments {
  const float* partials;
  int strips;
  int rows;
  int cols;
  float eps;
  float* stats;
  float* mean_sum;  // may be null
  float* variance_sum;
};

template <class T>
__global__ void finish_moments_kernel(const Moments op, const T* x) {
  const int col = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  const double2 sums = sum_of_strips(op.partials, op.strips, op.cols, col);
  if (threadIdx.y != 0 || col >= op.cols) return;
  const double offset = sums.x / op.rows;
  const double mean = static_cast<double>(to_float(x[col])) + offset;
  const double square = fmax(0.0, sums.y - sums.x * offset);
  op.stats[col] = static_cast<float>(mean);
  op.stats[op.cols + col] = static_cast<float>(1 / sqrt(square / op.rows + static_cast<double>(op.eps)));
  if (op.mean_sum == nullptr) return;
  op.mean_sum[col] += static_cast<float>(mean);
  op.variance_sum[col] += static_cast<float>(square / max(1, op.rows - 1));
}

__global__ void running_moments_kernel(const float* mean, const float* variance, float eps, int cols, float* stats) {
  const int col = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (col >= cols) return;
  stats[col] = mean[col];
  stats[cols + col] = static_cast<float>(1 / sqrt(static_cast<double>(variance[col]) + static_cast<double>(eps)));
}

template <class T>
struct Normalize {
  const T* x;
  const T* residual;  // may be null
  T* out;
  const float* gain;
  const float* shift;
  const float* stats;
  int rows;
  int cols;
  bool aligned;
  bool rectify;
};

template <class T>
__global__ void __launch_bounds__(threads) normalize_kernel(const Normalize<T> op) {
  const Strip strip(op.cols);
  if (strip.valid <= 0) return;
  float mean[group_size];
  float inverse[group_size];
  float gain[group_size];
  float shift[group_size];
  load8(op.stats + strip.col, strip.valid, false, mean);
  load8(op.stats + op.cols + strip.col, strip.valid, false, inverse);
  load8(op.gain + strip.col, strip.valid, false, gain);
  load8(op.shift + strip.col, strip.valid, false, shift);
#pragma unroll 4
  for (int row = strip.first; row < op.rows; row += strip.step) {
    const std::int64_t at = offset_of(row, op.cols) + strip.col;
    float v[group_size];
    float added[group_size] = {};
    load8(op.x + at, strip.valid, op.aligned, v);
    if (op.residual != nullptr) load8(op.residual + at, strip.valid, op.aligned, added);
#pragma unroll
    for (int i = 0; i < group_size; ++i) {
      v[i] = (v[i] - mean[i]) * inverse[i] * gain[i] + shift[i] + added[i];
      if (op.rectify) v[i] = v[i] > 0 ? v[i] : 0.0F * v[i];  // NaN stays
    }
    store8(op.out + at, strip.valid, op.aligned, v);
  }
}

template <class T>
struct Backward {
  const T* x;
  const T* out;  // null: not rectified
  const T* dy;
  T* residual_gradient;  // may be null, or dy
  const float* gain;
  const float* stats;
  int rows;
  int cols;
  bool aligned;

  // The gradient before the rectifier.
  __device__ void gradient_at(std::int64_t at, int valid, float (&g)[group_size]) const {
    load8(dy + at, valid, aligned, g);
    if (out == nullptr) return;
    float y[group_size];
    load8(out + at, valid, aligned, y);
#pragma unroll
    for (int i = 0; i < group_size; ++i) g[i] = y[i] > 0 ? g[i] : 0.0F;
  }
};

template <class T>
__global__ void __launch_bounds__(threads) backward_sums_kernel(const Backward<T> op, float* partials) {
  const Strip strip(op.cols);
  float dots[group_size] = {};
  float sums[group_size] = {};
  if (strip.valid > 0) {
    float mean[group_size];
    float inverse[group_size];
    load8(op.stats + strip.col, strip.valid, false, mean);
    load8(op.stats + op.cols + strip.col, strip.valid, false, inverse);
#pragma unroll 2
    for (int row = strip.first; row < op.rows; row += strip.step) {
      const std::int64_t at = offset_of(row, op.cols) + strip.col;
      float v[group_size];
      float g[group_size];
      load8(op.x + at, strip.valid, op.aligned, v);
      op.gradient_at(at, strip.valid, g);
#pragma unroll
      for (int i = 0; i < group_size; ++i) {
        dots[i] += g[i] * ((v[i] - mean[i]) * inverse[i]);
        sums[i] += g[i];
      }
    }
  }
  leave_sums(strip, dots, sums, op.cols, partials);
}

struct BackwardSums {
  const float* partials;
  int strips;
  int rows;
  int cols;
  float* gain_gradient;
  float* shift_gradient;
  float* means;  // [2 × cols]
};

__global__ void finish_backward_kernel(const BackwardSums op) {
  const int col = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  const double2 sums = sum_of_strips(op.partials, op.strips, op.cols, col);
  if (threadIdx.y != 0 || col >= op.cols) return;
  op.gain_gradient[col] += static_cast<float>(sums.x);
  op.shift_gradient[col] += static_cast<float>(sums.y);
  op.means[col] = static_cast<float>(sums.x / op.rows);
  op.means[op.cols + col] = static_cast<float>(sums.y / op.rows);
}

template <class T>
struct InputGradient {
  Backward<T> op;
  const float* means;

  struct Columns {
    const Backward<T>& op;
    int col;
    int valid;
    float mean[group_size];
    float inverse[group_size];
    float factor[group_size];
    float mean_dot[group_size];
    float mean_gradient[group_size];

    __device__ void values(int row, float (&v)[group_size]) const {
      const std::int64_t at = offset_of(row, op.cols) + col;
      float g[group_size];
      load8(op.x + at, valid, op.aligned, v);
      op.gradient_at(at, valid, g);
      if (op.residual_gradient != nullptr) store8(op.residual_gradient + at, valid, op.aligned, g);
#pragma unroll
      for (int i = 0; i < group_size; ++i) {
        const float normed = (v[i] - mean[i]) * inverse[i];
        v[i] = factor[i] * (g[i] - mean_gradient[i] - normed * mean_dot[i]);
      }
    }
  };
  __device__ Columns columns(int col, int valid) const {
    Columns made{op, col, valid};
    load8(op.stats + col, valid, false, made.mean);
    load8(op.stats + op.cols + col, valid, false, made.inverse);
    load8(op.gain + col, valid, false, made.factor);
    load8(means + col, valid, false, made.mean_dot);
    load8(means + op.cols + col, valid, false, made.mean_gradient);
#pragma unroll
    for (int i = 0; i < group_size; ++i) made.factor[i] *= made.inverse[i];
    return made;
  }
};

template <class T>
Backward<T> backward_of(const BatchNormBackward& op) {
  const auto aligned = [](const View& matrix) { return matrix.empty() || rows_aligned(matrix); };
  return {.x = static_cast<const T*>(op.x.data),
          .out = static_cast<const T*>(op.out.data),
          .dy = static_cast<const T*>(op.out_gradient.data),
          .residual_gradient = static_cast<T*>(op.residual_gradient.data),
          .gain = op.gain.f32(),
          .stats = op.stats.f32(),
          .rows = to_int(op.x.rows),
          .cols = to_int(op.x.cols),
          .aligned = aligned(op.x) && aligned(op.out) && aligned(op.out_gradient) && aligned(op.residual_gradient)};
}

unsigned blocks_of_32(Size cols) { return static_cast<unsigned>(ceil_div(cols, 32)); }

__global__ void moving_average_kernel(const MovingAverage op, float* average, const float* sum, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count || op.summary->skip != 0) return;
  average[i] += op.momentum * (op.share * sum[i] - average[i]);
}

template <class T>
void measure(Gpu& gpu, const BatchNorm& op) {
  const int rows = to_int(op.x.rows);
  const int cols = to_int(op.x.cols);
  const auto* x = static_cast<const T*>(op.x.data);
  const dim3 grid = grid_of(op.x);
  auto* partials = reinterpret_cast<float*>(
      gpu.workspace(Slot::sums, static_cast<std::size_t>(batch_norm_bytes(op.x.rows, op.x.cols))));
  moments_kernel<T><<<grid, threads, 0, gpu.stream()>>>(x, rows, cols, rows_aligned(op.x), partials);
  const Moments moments{.partials = partials,
                        .strips = static_cast<int>(grid.y),
                        .rows = rows,
                        .cols = cols,
                        .eps = op.eps,
                        .stats = op.stats.f32(),
                        .mean_sum = op.sums.mean.empty() ? nullptr : op.sums.mean.f32(),
                        .variance_sum = op.sums.variance.empty() ? nullptr : op.sums.variance.f32()};
  finish_moments_kernel<T><<<blocks_of_32(cols), dim3(32, lanes_down), 0, gpu.stream()>>>(moments, x);
  check_launch("batch_norm_moments");
}

}  // namespace

void batch_norm(Gpu& gpu, const BatchNorm& op) {
  if (op.x.count() == 0) return;
  with_high_precision(op.x.format, [&]<class T>(T) {
    if (op.running.mean.empty()) {
      measure<T>(gpu, op);
    } else {
      running_moments_kernel<<<blocks_of_32(op.x.cols), 32, 0, gpu.stream()>>>(
          op.running.mean.f32(), op.running.variance.f32(), op.eps, to_int(op.x.cols), op.stats.f32());
    }
    const bool aligned =
        rows_aligned(op.x) && rows_aligned(op.out) && (op.residual.empty() || rows_aligned(op.residual));
    normalize_kernel<T>
        <<<grid_of(op.x), threads, 0, gpu.stream()>>>({.x = static_cast<const T*>(op.x.data),
                                                       .residual = static_cast<const T*>(op.residual.data),
                                                       .out = static_cast<T*>(op.out.data),
                                                       .gain = op.gain.f32(),
                                                       .shift = op.shift.f32(),
                                                       .stats = op.stats.f32(),
                                                       .rows = to_int(op.x.rows),
                                                       .cols = to_int(op.x.cols),
                                                       .aligned = aligned,
                                                       .rectify = op.rectifier == Rectifier::relu});
  });
  check_launch("batch_norm");
}

const float* batch_norm_backward_means(Gpu& gpu, const BatchNormBackward& op) {
  const dim3 grid = grid_of(op.x);
  auto* partials = reinterpret_cast<float*>(
      gpu.workspace(Slot::sums, static_cast<std::size_t>(batch_norm_bytes(op.x.rows, op.x.cols))));
  const BackwardSums sums{.partials = partials,
                          .strips = static_cast<int>(grid.y),
                          .rows = to_int(op.x.rows),
                          .cols = to_int(op.x.cols),
                          .gain_gradient = op.gain_gradient.f32(),
                          .shift_gradient = op.shift_gradient.f32(),
                          .means = partials + static_cast<Size>(grid.y) * 2 * op.x.cols};
  if (op.x.count() == 0) return sums.means;
  with_high_precision(op.x.format, [&]<class T>(T) {
    backward_sums_kernel<T><<<grid, threads, 0, gpu.stream()>>>(backward_of<T>(op), partials);
  });
  finish_backward_kernel<<<blocks_of_32(op.x.cols), dim3(32, lanes_down), 0, gpu.stream()>>>(sums);
  check_launch("batch_norm_backward_means");
  return sums.means;
}

void batch_norm_backward(Gpu& gpu, const BatchNormBackward& op, const float* means, const FusedTarget& in_gradient) {
  if (op.x.count() == 0) return;
  with_high_precision(op.x.format, [&]<class T>(T) {
    tiles::write<T>(gpu, op.x.rows, op.x.cols, in_gradient, InputGradient<T>{backward_of<T>(op), means});
  });
}

void moving_average(Gpu& gpu, const MovingAverage& op) {
  const int count = to_int(op.average.count());
  if (count == 0) return;
  moving_average_kernel<<<static_cast<unsigned>(ceil_div(count, threads)), threads, 0, gpu.stream()>>>(
      op, op.average.f32(), op.sum.f32(), count);
  check_launch("moving_average");
}

}  // namespace quaver::cuda
