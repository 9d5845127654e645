// Patches of feature maps, batch norm and average pooling.
#include <cmath>
#include <omp.h>
#include <vector>

#include "engine/cpu/cpu_engine.h"
#include "engine/cpu/site_writer.h"
#include "formats/simd.h"

namespace quaver {

namespace {

// Where a position of the window is: its image, and its first pixel, which may lie outside.
struct Position {
  Size image;
  Size y;
  Size x;

  Position(const PatchWindow& window, Size index)
      : image(index / (window.out_width() * window.out_height())),
        y(index / window.out_width() % window.out_height() * window.stride - window.padding()),
        x(index % window.out_width() * window.stride - window.padding()) {}
};

bool is_inside(const PatchWindow& window, Size y, Size x) {
  return y >= 0 && y < window.height && x >= 0 && x < window.width;
}

void copy_patch(const PatchWindow& window, const float* pixels, Size index, Size cols, float* out) {
  const Position at(window, index);
  const Size channels = window.channels;
  float* to = out;
  for (Size ky = 0; ky < window.kernel; ++ky) {
    for (Size kx = 0; kx < window.kernel; ++kx, to += channels) {
      if (is_inside(window, at.y + ky, at.x + kx)) {
        const Size pixel = (at.image * window.height + at.y + ky) * window.width + at.x + kx;
        std::copy_n(pixels + pixel * channels, channels, to);
      } else {
        std::fill_n(to, channels, 0.0F);
      }
    }
  }
  std::fill(to, out + cols, 0.0F);
}

// The window's row (or column) of which tap `k` is pixel row `y`; −1: none.
Size position_along(Size y, Size k, const PatchWindow& window, Size count) {
  const Size first = y + window.padding() - k;
  return first >= 0 && first % window.stride == 0 && first / window.stride < count ? first / window.stride : -1;
}

QUAVER_SIMD void add_row(const float* x, Size n, float* sum) {
  for (Size i = 0; i < n; ++i) sum[i] += x[i];
}

void gather_pixel(const PatchesBackward& op, Size pixel) {
  const PatchWindow& window = op.window;
  const Size channels = window.channels;
  const Size y = pixel / window.width % window.height;
  const Size x = pixel % window.width;
  const Size image = pixel / (window.width * window.height);
  float* out = op.gradient.f32() + pixel * channels;
  if (op.next.empty()) {
    std::fill_n(out, channels, 0.0F);
  } else if (op.next.data != op.gradient.data) {
    std::copy_n(op.next.f32() + pixel * channels, channels, out);
  }
  for (Size ky = 0; ky < window.kernel; ++ky) {
    const Size row = position_along(y, ky, window, window.out_height());
    if (row < 0) continue;
    for (Size kx = 0; kx < window.kernel; ++kx) {
      const Size col = position_along(x, kx, window, window.out_width());
      if (col < 0) continue;
      const Size position = (image * window.out_height() + row) * window.out_width() + col;
      const float* patch = op.patches_gradient.f32() + position * op.patches_gradient.cols;
      add_row(patch + (ky * window.kernel + kx) * channels, channels, out);
    }
  }
}

// Sums over rows in double precision, `width` of them for each thread, added up in the order of the threads.
template <class AddRow>
std::vector<double> sum_rows(Size rows, Size width, const AddRow& add) {
  const auto threads = static_cast<std::size_t>(omp_get_max_threads());
  std::vector<std::vector<double>> parts(threads);
#pragma omp parallel
  {
    std::vector<double>& sums = parts[static_cast<std::size_t>(omp_get_thread_num())];
    sums.assign(static_cast<std::size_t>(width), 0.0);
#pragma omp for schedule(static)
    for (Size row = 0; row < rows; ++row) add(row, sums.data());
  }
  std::vector<double> total(static_cast<std::size_t>(width), 0.0);
  for (const std::vector<double>& sums : parts) {
    for (std::size_t i = 0; i < sums.size(); ++i) total[i] += sums[i];
  }
  return total;
}

QUAVER_SIMD void add_values(const float* x, Size n, double* sums) {
  for (Size c = 0; c < n; ++c) sums[c] += x[c];
}

QUAVER_SIMD void add_squares(const float* x, const double* means, Size n, double* sums) {
  for (Size c = 0; c < n; ++c) sums[c] += (x[c] - means[c]) * (x[c] - means[c]);
}

float inverse_std(double variance, float eps) { return static_cast<float>(1 / std::sqrt(variance + eps)); }

void use_running_moments(const BatchNorm& op) {
  const Size channels = op.x.cols;
  float* stats = op.stats.f32();
  for (Size c = 0; c < channels; ++c) {
    stats[c] = op.running.mean.f32()[c];
    stats[channels + c] = inverse_std(op.running.variance.f32()[c], op.eps);
  }
}

void measure_batch(const BatchNorm& op) {
  const Size rows = op.x.rows;
  const Size channels = op.x.cols;
  const auto count = static_cast<double>(rows);
  std::vector<double> means = sum_rows(
      rows, channels, [&](Size row, double* sums) { add_values(op.x.f32() + row * channels, channels, sums); });
  for (double& mean : means) mean /= count;
  const std::vector<double> squares = sum_rows(rows, channels, [&](Size row, double* sums) {
    add_squares(op.x.f32() + row * channels, means.data(), channels, sums);
  });
  float* stats = op.stats.f32();
  for (Size c = 0; c < channels; ++c) {
    const double mean = means[static_cast<std::size_t>(c)];
    const double square = squares[static_cast<std::size_t>(c)];
    stats[c] = static_cast<float>(mean);
    stats[channels + c] = inverse_std(square / count, op.eps);
    if (op.sums.mean.empty()) continue;
    op.sums.mean.f32()[c] += static_cast<float>(mean);
    op.sums.variance.f32()[c] += static_cast<float>(square / std::max(1.0, count - 1));
  }
}

QUAVER_SIMD void normalize_channels(const float* x, const BatchNorm& op, const float* residual, float* out) {
  const Size channels = op.x.cols;
  const float* mean = op.stats.f32();
  const float* inverse = mean + channels;
  const float* gain = op.gain.f32();
  const float* shift = op.shift.f32();
  for (Size c = 0; c < channels; ++c) out[c] = (x[c] - mean[c]) * inverse[c] * gain[c] + shift[c];
  if (residual != nullptr) {
    for (Size c = 0; c < channels; ++c) out[c] += residual[c];
  }
  if (op.rectifier == Rectifier::none) return;
  for (Size c = 0; c < channels; ++c) out[c] = out[c] > 0 ? out[c] : 0.0F * out[c];  // NaN stays
}

// g · x̂ and g of a row, added to the sums: those of the gain's gradient, then of the shift's.
QUAVER_SIMD void add_norm_sums(const float* x, const float* g, const float* out, const float* stats, Size channels,
                               double* sums) {
  for (Size c = 0; c < channels; ++c) {
    const float passed = out == nullptr || out[c] > 0 ? g[c] : 0.0F;
    sums[c] += passed * ((x[c] - stats[c]) * stats[channels + c]);
    sums[channels + c] += passed;
  }
}

// What the backward pass of one row reads beside x and the gradient; the last two are means over all rows.
struct ChannelFactors {
  const float* stats;
  const float* gain;
  const float* mean_dot;  // of g · x̂
  const float* mean;      // of g
};

QUAVER_SIMD void normalize_channels_backward(const float* x, const float* g, const ChannelFactors& factors,
                                             Size channels, float* out) {
  const float* inverse = factors.stats + channels;
  for (Size c = 0; c < channels; ++c) {
    const float normed = (x[c] - factors.stats[c]) * inverse[c];
    out[c] = factors.gain[c] * inverse[c] * (g[c] - factors.mean[c] - normed * factors.mean_dot[c]);
  }
}

QUAVER_SIMD void rectify_gradient(const float* g, const float* out, Size n, float* passed) {
  for (Size c = 0; c < n; ++c) passed[c] = out[c] > 0 ? g[c] : 0.0F;
}

}  // namespace

void CpuOperations::run(const Patches& op) {
  const Size cols = op.out.cols_count();
  SiteWriter(workspace_, op.out, op.casting).write([&](Size first, Size rows, float* tile, int) {
    for (Size r = 0; r < rows; ++r) copy_patch(op.window, op.x.f32(), first + r, cols, tile + r * cols);
  });
}

void CpuOperations::run(const PatchesBackward& op) {
#pragma omp parallel for schedule(static)
  for (Size pixel = 0; pixel < op.window.pixels(); ++pixel) gather_pixel(op, pixel);
}

void CpuOperations::run(const BatchNorm& op) {
  op.running.mean.empty() ? measure_batch(op) : use_running_moments(op);
  const Size channels = op.x.cols;
#pragma omp parallel for schedule(static)
  for (Size row = 0; row < op.x.rows; ++row) {
    const float* residual = op.residual.empty() ? nullptr : op.residual.f32() + row * channels;
    normalize_channels(op.x.f32() + row * channels, op, residual, op.out.f32() + row * channels);
  }
}

void CpuOperations::run(const BatchNormBackward& op) {
  const Size channels = op.x.cols;
  const auto row_of = [&](const View& matrix, Size row) {
    return matrix.empty() ? nullptr : matrix.f32() + row * channels;
  };
  const std::vector<double> sums = sum_rows(op.x.rows, 2 * channels, [&](Size row, double* into) {
    add_norm_sums(row_of(op.x, row), row_of(op.out_gradient, row), row_of(op.out, row), op.stats.f32(), channels, into);
  });
  std::vector<float> means;
  for (Size i = 0; i < 2 * channels; ++i) {
    const double sum = sums[static_cast<std::size_t>(i)];
    float* gradient = i < channels ? op.gain_gradient.f32() + i : op.shift_gradient.f32() + i - channels;
    *gradient += static_cast<float>(sum);
    means.push_back(static_cast<float>(sum / static_cast<double>(op.x.rows)));
  }
  const ChannelFactors factors{op.stats.f32(), op.gain.f32(), means.data(), means.data() + channels};
  SiteWriter(workspace_, op.in_gradient, op.casting).write([&](Size first, Size rows, float* tile, int) {
    for (Size r = 0; r < rows; ++r) {
      const float* g = row_of(op.out_gradient, first + r);
      float* out = tile + r * channels;
      if (!op.out.empty()) {
        rectify_gradient(g, row_of(op.out, first + r), channels, out);
        g = out;
      }
      if (!op.residual_gradient.empty()) std::copy_n(g, channels, row_of(op.residual_gradient, first + r));
      normalize_channels_backward(row_of(op.x, first + r), g, factors, channels, out);
    }
  });
}

void CpuOperations::run(const AveragePool& op) {
  const Size channels = op.x.cols;
  const Size pixels = op.x.rows / op.out.rows_count();
  SiteWriter(workspace_, op.out, op.casting).write([&](Size first, Size rows, float* tile, int) {
    for (Size r = 0; r < rows; ++r) {
      float* out = tile + r * channels;
      std::fill_n(out, channels, 0.0F);
      for (Size p = 0; p < pixels; ++p) add_row(op.x.f32() + ((first + r) * pixels + p) * channels, channels, out);
      for (Size c = 0; c < channels; ++c) out[c] /= static_cast<float>(pixels);
    }
  });
}

void CpuOperations::run(const AveragePoolBackward& op) {
  const Size channels = op.gradient.cols;
  const Size pixels = op.gradient.rows / op.out_gradient.rows;
#pragma omp parallel for schedule(static)
  for (Size row = 0; row < op.gradient.rows; ++row) {
    const float* from = op.out_gradient.f32() + row / pixels * channels;
    float* to = op.gradient.f32() + row * channels;
    for (Size c = 0; c < channels; ++c) to[c] = from[c] / static_cast<float>(pixels);
  }
}

void CpuOperations::run(const MovingAverage& op) {
  if (op.summary->skip != 0) return;
  for (Size i = 0; i < op.average.count(); ++i) {
    float& average = op.average.f32()[i];
    average += op.momentum * (op.share * op.sum.f32()[i] - average);
  }
}

}  // namespace quaver
