// Layer norm and RMS norm, fused with the residual stream's additions, forward and backward.
#include <cmath>
#include <omp.h>

#include "engine/cpu/cpu_engine.h"
#include "engine/cpu/site_writer.h"
#include "formats/simd.h"

namespace quaver {

namespace {

struct RowStats {
  float mean;
  float inverse_std;
};

QUAVER_SIMD void combine_row(const float* residual, const float* branch, float keep, float add, Size d, float* out) {
  for (Size c = 0; c < d; ++c) out[c] = keep * residual[c] + add * branch[c];
}

QUAVER_SIMD RowStats row_stats(const float* x, Size d, NormKind kind, float eps) {
  float mean = 0;
  if (kind == NormKind::layer) {
#pragma omp simd reduction(+ : mean)
    for (Size c = 0; c < d; ++c) mean += x[c];
    mean /= static_cast<float>(d);
  }
  float square = 0;
#pragma omp simd reduction(+ : square)
  for (Size c = 0; c < d; ++c) square += (x[c] - mean) * (x[c] - mean);
  return {mean, 1.0F / std::sqrt(square / static_cast<float>(d) + eps)};
}

QUAVER_SIMD void normalize_row(const float* x, RowStats stats, const float* gain, const float* shift, Size d,
                               float* out) {
  for (Size c = 0; c < d; ++c) {
    const float y = (x[c] - stats.mean) * stats.inverse_std * gain[c];
    out[c] = shift != nullptr ? y + shift[c] : y;
  }
}

// One row's part in the backward pass.
struct RowBackward {
  const float* x;
  RowStats stats;
  const float* dy;
  const float* next;  // may be null
  float keep;
  float add;
  float* out;
};

struct RowSums {
  float* gain;
  float* shift;
};

// out = keep · next + add · (d norm/d x)ᵀ · dy; gain and shift gradients are added to the thread's sums.
QUAVER_SIMD void normalize_row_backward(const NormParameters& norm, const RowBackward& row, Size d, RowSums sums) {
  const float* x = row.x;
  const float* dy = row.dy;
  const float* next = row.next;
  const float* gain = norm.gain.f32();
  const RowStats stats = row.stats;
  const float keep = row.keep;
  float* out = row.out;
  float* gain_sums = sums.gain;
  float* shift_sums = sums.shift;
  float dot = 0;
  float mean = 0;
#pragma omp simd reduction(+ : dot, mean)
  for (Size c = 0; c < d; ++c) {
    const float y = (x[c] - stats.mean) * stats.inverse_std;
    const float g = dy[c] * gain[c];
    dot += g * y;
    mean += g;
  }
  dot /= static_cast<float>(d);
  mean = norm.kind == NormKind::layer ? mean / static_cast<float>(d) : 0.0F;
  const float factor = row.add * stats.inverse_std;
#pragma omp simd
  for (Size c = 0; c < d; ++c) {
    const float y = (x[c] - stats.mean) * stats.inverse_std;
    gain_sums[c] += dy[c] * y;
    shift_sums[c] += dy[c];
    const float dx = factor * (dy[c] * gain[c] - mean - y * dot);
    out[c] = next != nullptr ? keep * next[c] + dx : dx;
  }
}

// Sums over tokens of the gain's and the shift's gradient, one pair of rows per thread, added up in a fixed order.
class NormSums {
 public:
  explicit NormSums(Size d) : d_(d), sums_(static_cast<std::size_t>(2 * d * omp_get_max_threads()), 0.0F) {}

  RowSums of(int thread) {
    float* gain = sums_.data() + 2 * d_ * thread;
    return {gain, gain + d_};
  }

  void add_to(const NormGradients& gradients) {
    for (int thread = 0; thread < omp_get_max_threads(); ++thread) {
      const RowSums sums = of(thread);
      add(sums.gain, gradients.gain, gradients.factor);
      add(sums.shift, gradients.shift, gradients.factor);
    }
  }

 private:
  void add(const float* sums, const View& out, float factor) const {
    if (out.empty()) return;
    for (Size c = 0; c < d_; ++c) out.f32()[c] += factor * sums[c];
  }

  Size d_;
  std::vector<float> sums_;
};

const float* optional_row(const View& x) { return x.empty() ? nullptr : x.f32(); }

RowStats* stats_of(const View& stats) { return reinterpret_cast<RowStats*>(stats.f32()); }

}  // namespace

void CpuOperations::run(const AddNorm& op) {
  const Size d = op.residual.cols;
  RowStats* stats = stats_of(op.stats);
  SiteWriter(workspace_, op.out, op.casting).write([&](Size first, Size rows, float* tile, int) {
    for (Size r = 0; r < rows; ++r) {
      const Size row = first + r;
      const float* x = op.residual.f32() + row * d;
      if (!op.branch.empty()) {
        combine_row(x, op.branch.f32() + row * d, op.keep, op.add, d, op.sum.f32() + row * d);
        x = op.sum.f32() + row * d;
      } else if (!op.sum_is_residual()) {
        std::copy_n(x, d, op.sum.f32() + row * d);
      }
      stats[row] = row_stats(x, d, op.norm.kind, op.norm.eps);
      normalize_row(x, stats[row], op.norm.gain.f32(), optional_row(op.norm.shift), d, tile + r * d);
    }
  });
}

void CpuOperations::run(const AddNormBackward& op) {
  const Size d = op.sum.cols;
  const RowStats* stats = stats_of(op.stats);
  NormSums sums(d);
  const auto row_backward = [&](Size row, int thread) {
    normalize_row_backward(op.norm,
                           {.x = op.sum.f32() + row * d,
                            .stats = stats[row],
                            .dy = op.out_gradient.f32() + row * d,
                            .next = op.next.empty() ? nullptr : op.next.f32() + row * d,
                            .keep = op.keep,
                            .add = op.add,
                            .out = op.gradient.f32() + row * d},
                           d, sums.of(thread));
  };
  if (op.branch_gradient == nullptr) {
#pragma omp parallel for schedule(static)
    for (Size row = 0; row < op.sum.rows; ++row) row_backward(row, omp_get_thread_num());
  } else {
    SiteWriter(workspace_, *op.branch_gradient, op.casting).write([&](Size first, Size rows, float* tile, int thread) {
      for (Size r = 0; r < rows; ++r) row_backward(first + r, thread);
      std::copy_n(op.gradient.f32() + first * d, rows * d, tile);
    });
  }
  sums.add_to(op.gradients);
  if (op.out == nullptr) return;
  const Casting unobserved = op.casting.unobserved();
  SiteWriter(workspace_, *op.out, unobserved).write([&](Size first, Size rows, float* tile, int) {
    for (Size r = 0; r < rows; ++r) {
      normalize_row(op.sum.f32() + (first + r) * d, stats[first + r], op.norm.gain.f32(), optional_row(op.norm.shift),
                    d, tile + r * d);
    }
  });
}

void CpuOperations::run(const NormAdd& op) {
  const Size d = op.residual.cols;
  RowStats* stats = stats_of(op.stats);
  const auto row_forward = [&](Size row, float* normed) {
    const float* x = op.branch.f32() + row * d;
    stats[row] = row_stats(x, d, op.norm.kind, op.norm.eps);
    normalize_row(x, stats[row], op.norm.gain.f32(), optional_row(op.norm.shift), d, normed);
    combine_row(op.residual.f32() + row * d, normed, op.keep, op.add, d, op.sum.f32() + row * d);
  };
  if (op.out == nullptr) {
    float* memory = workspace_.floats(Workspace::Slot::tiles, d * omp_get_max_threads());
#pragma omp parallel for schedule(static)
    for (Size row = 0; row < op.residual.rows; ++row) row_forward(row, memory + d * omp_get_thread_num());
    return;
  }
  SiteWriter(workspace_, *op.out, op.casting).write([&](Size first, Size rows, float* tile, int) {
    for (Size r = 0; r < rows; ++r) {
      row_forward(first + r, tile + r * d);
      std::copy_n(op.sum.f32() + (first + r) * d, d, tile + r * d);
    }
  });
}

void CpuOperations::run(const Combine& op) {
  const Size d = op.x.cols;
#pragma omp parallel for schedule(static)
  for (Size row = 0; row < op.x.rows; ++row) {
    combine_row(op.x.f32() + row * d, op.y.f32() + row * d, op.keep, op.add, d, op.out.f32() + row * d);
  }
}

void CpuOperations::run(const NormAddBackward& op) {
  const Size d = op.branch.cols;
  const RowStats* stats = stats_of(op.stats);
  NormSums sums(d);
  SiteWriter(workspace_, op.branch_gradient, op.casting).write([&](Size first, Size rows, float* tile, int thread) {
    for (Size r = 0; r < rows; ++r) {
      const Size row = first + r;
      float* gradient = op.gradient.f32() + row * d;
      if (op.next.empty()) {
        combine_row(op.input_gradient.f32() + row * d, op.input_gradient.f32() + row * d, op.add, 0, d, gradient);
      } else {
        combine_row(op.next.f32() + row * d, op.input_gradient.f32() + row * d, op.keep, op.add, d, gradient);
      }
      normalize_row_backward(op.norm,
                             {.x = op.branch.f32() + row * d,
                              .stats = stats[row],
                              .dy = gradient,
                              .next = nullptr,
                              .keep = 0,
                              .add = op.factor,
                              .out = tile + r * d},
                             d, sums.of(thread));
    }
  });
  sums.add_to(op.gradients);
}

}  // namespace quaver
