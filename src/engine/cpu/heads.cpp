// QK-norm and rotary embedding on the heads of a qkv matrix.
#include <algorithm>
#include <cmath>
#include <omp.h>
#include <vector>

#include "engine/cpu/cpu_engine.h"
#include "engine/cpu/workspace_sizes.h"

namespace quaver {

namespace {

// cos and sin of position · frequency, [rows × head_size/2] each; empty where nothing is rotated. A row of the table is
// a place in every sequence, or, where they begin at positions of their own, a token.
struct RotaryTable {
  explicit RotaryTable(const PrepareHeads& op) : half(op.layout.head_size / 2), rows(rotary_table_rows(op)) {
    cosine.resize(static_cast<std::size_t>(rows * half));
    sine.resize(cosine.size());
    for (Size t = 0; t < rows; ++t) {
      const Size first = op.first.empty() ? 0 : op.first[static_cast<std::size_t>(t / op.layout.sequence)];
      const auto position = static_cast<double>(first + t % op.layout.sequence);
      for (Size i = 0; i < half; ++i) {
        const double angle = position * rotary_frequency(op.theta, op.scaling, i, half);
        cosine[static_cast<std::size_t>(t * half + i)] = static_cast<float>(std::cos(angle));
        sine[static_cast<std::size_t>(t * half + i)] = static_cast<float>(std::sin(angle));
      }
    }
  }
  Size half;
  Size rows;
  std::vector<float> cosine;
  std::vector<float> sine;
};

enum class Direction : std::uint8_t { forward, backward };

void rotate_head(const RotaryTable& table, Size token, Direction direction, float* head) {
  const float* cosine = table.cosine.data() + token % table.rows * table.half;
  const float* sine = table.sine.data() + token % table.rows * table.half;
  const float sign = direction == Direction::forward ? 1.0F : -1.0F;
  for (Size i = 0; i < table.half; ++i) {
    const float a = head[i];
    const float b = head[table.half + i];
    head[i] = a * cosine[i] - sign * b * sine[i];
    head[table.half + i] = b * cosine[i] + sign * a * sine[i];
  }
}

float inverse_rms(const float* x, Size n, float eps) {
  float square = 0;
  for (Size i = 0; i < n; ++i) square += x[i] * x[i];
  return 1.0F / std::sqrt(square / static_cast<float>(n) + eps);
}

// dx of y = x · r(x) · gain, in place of dy; the gain's gradient is added to `sums`.
void norm_head_backward(const float* x, const float* gain, float eps, Size n, float* dy, float* sums) {
  const float r = inverse_rms(x, n, eps);
  float dot = 0;
  for (Size i = 0; i < n; ++i) dot += dy[i] * gain[i] * x[i] * r;
  dot /= static_cast<float>(n);
  for (Size i = 0; i < n; ++i) {
    const float y = x[i] * r;
    sums[i] += dy[i] * y;
    dy[i] = r * (dy[i] * gain[i] - y * dot);
  }
}

const float* gain_of(const PrepareHeads& op, Size head) {
  const View& gain = head < op.layout.heads ? op.query_gain : op.key_gain;
  return gain.empty() ? nullptr : gain.f32();
}

}  // namespace

void CpuOperations::run(const PrepareHeads& op) {
  const Size e = op.layout.head_size;
  const Size rotated = op.layout.heads + op.layout.kv_heads;
  const RotaryTable table(op);
#pragma omp parallel for schedule(static) if (op.in.count() > worth_waking)
  for (Size row = 0; row < op.in.rows; ++row) {
    const float* in = op.in.f32() + row * op.in.cols;
    float* out = op.out.f32() + row * op.in.cols;
    if (out != in) std::copy_n(in, op.in.cols, out);
    for (Size head = 0; head < rotated; ++head) {
      float* x = out + head * e;
      if (const float* gain = gain_of(op, head)) {
        const float r = inverse_rms(x, e, op.eps);
        for (Size i = 0; i < e; ++i) x[i] *= r * gain[i];
      }
      if (op.theta > 0) rotate_head(table, row, Direction::forward, x);
    }
  }
}

void CpuOperations::run(const PrepareHeadsBackward& op) {
  const PrepareHeads& forward = op.forward;
  const Size e = forward.layout.head_size;
  const Size rotated = forward.layout.heads + forward.layout.kv_heads;
  const RotaryTable table(forward);
  const int threads = omp_get_max_threads();
  std::vector<float> sums(static_cast<std::size_t>(2 * e * threads), 0.0F);
#pragma omp parallel for schedule(static)
  for (Size row = 0; row < op.gradient.rows; ++row) {
    for (Size head = 0; head < rotated; ++head) {
      float* dy = op.gradient.f32() + row * op.gradient.cols + head * e;
      if (forward.theta > 0) rotate_head(table, row, Direction::backward, dy);
      if (const float* gain = gain_of(forward, head)) {
        float* of_thread = sums.data() + 2 * e * omp_get_thread_num() + (head < forward.layout.heads ? 0 : e);
        norm_head_backward(forward.in.f32() + row * forward.in.cols + head * e, gain, forward.eps, e, dy, of_thread);
      }
    }
  }
  for (int thread = 0; thread < threads; ++thread) {
    for (Size i = 0; i < e; ++i) {
      const float* of_thread = sums.data() + 2 * e * thread;
      if (!op.query_gain_gradient.empty()) op.query_gain_gradient.f32()[i] += op.factor * of_thread[i];
      if (!op.key_gain_gradient.empty()) op.key_gain_gradient.f32()[i] += op.factor * of_thread[e + i];
    }
  }
}

}  // namespace quaver
