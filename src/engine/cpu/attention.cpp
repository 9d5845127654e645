// Causal attention by blocks of query rows: the logits of a block against all keys it may see, never the whole square.
// Each (sequence, group of heads that share a key head) is one task, so that no two threads write the same gradient.
#include <algorithm>
#include <cblas.h>
#include <cmath>
#include <omp.h>

#include "engine/cpu/cpu_engine.h"
#include "engine/cpu/vector_math.h"
#include "formats/simd.h"

namespace quaver {

namespace {

constexpr Size query_rows = 64;

// Row-major out = alpha · op(a)·op(b) + beta · out with leading dimensions, on the calling thread.
void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, Size m, Size n, Size k, float alpha, const float* a, Size lda,
          const float* b, Size ldb, float beta, float* out, Size ldo) {
  cblas_sgemm(CblasRowMajor, ta, tb, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(lda), b, static_cast<int>(ldb), beta, out, static_cast<int>(ldo));
}

// logits[0, visible) → probabilities in place, zeros up to `width`; returns log Σ exp.
QUAVER_SIMD float softmax_row(float* logits, Size visible, Size width) {
  float top = logits[0];
#pragma omp simd reduction(max : top)
  for (Size j = 0; j < visible; ++j) top = logits[j] > top ? logits[j] : top;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Size j = 0; j < visible; ++j) {
    logits[j] = vector_exp(logits[j] - top);
    sum += logits[j];
  }
  const float inverse = 1.0F / sum;
  for (Size j = 0; j < visible; ++j) logits[j] *= inverse;
  for (Size j = visible; j < width; ++j) logits[j] = 0;
  return top + std::log(sum);
}

// logits[0, visible) → probabilities from the saved log Σ exp.
QUAVER_SIMD void probabilities_row(float* logits, Size visible, Size width, float log_sum) {
  for (Size j = 0; j < visible; ++j) logits[j] = vector_exp(logits[j] - log_sum);
  for (Size j = visible; j < width; ++j) logits[j] = 0;
}

// dp → ds = p · (dp − Σ p·dp), in place
QUAVER_SIMD void softmax_row_backward(const float* p, float* dp, Size visible, Size width) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (Size j = 0; j < visible; ++j) dot += p[j] * dp[j];
  for (Size j = 0; j < visible; ++j) dp[j] = p[j] * (dp[j] - dot);
  for (Size j = visible; j < width; ++j) dp[j] = 0;
}

// Where the pieces of one query head lie.
struct Head {
  Size row0;   // first token of the sequence
  Size query;  // column of its queries in qkv
  Size key;
  Size value;
  Size index;  // batch · heads + head
  Size out;    // column in the result
};

Head locate(const HeadLayout& layout, Size sequence, Size head) {
  const Size group = layout.heads / layout.kv_heads;
  const Size kv = head / group;
  return {sequence * layout.sequence,
          head * layout.head_size,
          (layout.heads + kv) * layout.head_size,
          (layout.heads + layout.kv_heads + kv) * layout.head_size,
          sequence * layout.heads + head,
          head * layout.head_size};
}

void forward_head(const Attention& op, const Head& head, float* logits) {
  const Size t = op.layout.sequence;
  const Size e = op.layout.head_size;
  const Size stride = op.qkv.cols;
  const float* base = op.qkv.f32() + head.row0 * stride;
  float* result = op.result.f32() + head.row0 * op.result.cols + head.out;
  float* log_sum = op.log_sum.f32() + head.index * t;
  for (Size first = 0; first < t; first += query_rows) {
    const Size rows = std::min(query_rows, t - first);
    const Size keys = first + rows;
    gemm(CblasNoTrans, CblasTrans, rows, keys, e, op.scale, base + first * stride + head.query, stride, base + head.key,
         stride, 0, logits, keys);
    for (Size r = 0; r < rows; ++r) log_sum[first + r] = softmax_row(logits + r * keys, first + r + 1, keys);
    gemm(CblasNoTrans, CblasNoTrans, rows, e, keys, 1, logits, keys, base + head.value, stride, 0,
         result + first * op.result.cols, op.result.cols);
  }
}

void backward_head(const AttentionBackward& op, const Head& head, float beta_kv, float* p, float* ds) {
  const Size t = op.layout.sequence;
  const Size e = op.layout.head_size;
  const Size stride = op.qkv.cols;
  const float* base = op.qkv.f32() + head.row0 * stride;
  float* gradient = op.qkv_gradient.f32() + head.row0 * stride;
  const float* d_result = op.result_gradient.f32() + head.row0 * op.result.cols + head.out;
  const float* log_sum = op.log_sum.f32() + head.index * t;
  // From the last block of rows to the first: the last one sees every key, so it sets what the others add to.
  for (Size first = (t - 1) / query_rows * query_rows; first >= 0; first -= query_rows) {
    const Size rows = std::min(query_rows, t - first);
    const Size keys = first + rows;
    const float beta = keys == t ? beta_kv : 1.0F;
    const float* query = base + first * stride + head.query;
    const float* dy = d_result + first * op.result.cols;
    gemm(CblasNoTrans, CblasTrans, rows, keys, e, op.scale, query, stride, base + head.key, stride, 0, p, keys);
    for (Size r = 0; r < rows; ++r) probabilities_row(p + r * keys, first + r + 1, keys, log_sum[first + r]);
    gemm(CblasTrans, CblasNoTrans, keys, e, rows, 1, p, keys, dy, op.result.cols, beta, gradient + head.value, stride);
    gemm(CblasNoTrans, CblasTrans, rows, keys, e, 1, dy, op.result.cols, base + head.value, stride, 0, ds, keys);
    for (Size r = 0; r < rows; ++r) softmax_row_backward(p + r * keys, ds + r * keys, first + r + 1, keys);
    gemm(CblasNoTrans, CblasNoTrans, rows, e, keys, op.scale, ds, keys, base + head.key, stride, 0,
         gradient + first * stride + head.query, stride);
    gemm(CblasTrans, CblasNoTrans, keys, e, rows, op.scale, ds, keys, query, stride, beta, gradient + head.key, stride);
  }
}

}  // namespace

void CpuEngine::attention(const Attention& op) {
  const HeadLayout& layout = op.layout;
  const Size block = query_rows * layout.sequence;
  float* memory = workspace_.floats(Workspace::Slot::heads, block * omp_get_max_threads());
#pragma omp parallel for collapse(2) schedule(static)
  for (Size sequence = 0; sequence < layout.batch; ++sequence) {
    for (Size head = 0; head < layout.heads; ++head) {
      forward_head(op, locate(layout, sequence, head), memory + block * omp_get_thread_num());
    }
  }
  if (op.max_logit == nullptr) return;
  const float* log_sum = op.log_sum.f32();
  *op.max_logit = std::max(*op.max_logit, *std::max_element(log_sum, log_sum + op.log_sum.count()));
}

void CpuEngine::attention_backward(const AttentionBackward& op) {
  const HeadLayout& layout = op.layout;
  const Size block = query_rows * layout.sequence;
  const Size group = layout.heads / layout.kv_heads;
  float* memory = workspace_.floats(Workspace::Slot::heads, 2 * block * omp_get_max_threads());
#pragma omp parallel for collapse(2) schedule(static)
  for (Size sequence = 0; sequence < layout.batch; ++sequence) {
    for (Size kv = 0; kv < layout.kv_heads; ++kv) {
      float* p = memory + 2 * block * omp_get_thread_num();
      for (Size member = 0; member < group; ++member) {
        backward_head(op, locate(layout, sequence, kv * group + member), member == 0 ? 0.0F : 1.0F, p, p + block);
      }
    }
  }
}

}  // namespace quaver
