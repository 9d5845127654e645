// Causal attention by blocks of query rows: the logits of a block against all keys it may see, never the whole sequence
// × sequence matrix, nor keys before the documents of a block. Each (sequence, group of heads that share a key head) is
// one task, so that no two threads write the same gradient.
#include <algorithm>
#include <cblas.h>
#include <cmath>
#include <omp.h>

#include "engine/cpu/cpu_engine.h"
#include "engine/cpu/vector_math.h"
#include "engine/cpu/workspace_sizes.h"
#include "formats/simd.h"

namespace quaver {

namespace {

// A row-major matrix within another: [rows × cols], its rows `stride` elements apart.
template <class T>
struct Part {
  T* data;
  Size rows;
  Size cols;
  Size stride;
};
using Input = Part<const float>;
using Output = Part<float>;

enum class As : std::uint8_t { stored, transposed };

struct Factor {
  Input part;
  As as = As::stored;
};

// out = alpha · a·b + beta · out, on the calling thread.
void multiply(const Factor& a, const Factor& b, float alpha, float beta, const Output& out) {
  const auto of = [](As as) { return as == As::stored ? CblasNoTrans : CblasTrans; };
  const Size k = a.as == As::stored ? a.part.cols : a.part.rows;
  cblas_sgemm(CblasRowMajor, of(a.as), of(b.as), static_cast<int>(out.rows), static_cast<int>(out.cols),
              static_cast<int>(k), alpha, a.part.data, static_cast<int>(a.part.stride), b.part.data,
              static_cast<int>(b.part.stride), beta, out.data, static_cast<int>(out.stride));
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

// Offsets of the parts of one query head.
struct Head {
  const std::int32_t* starts;  // of the sequence's documents, token by token; null: it is one document
  Size row0;                   // first token of the sequence
  Size query;                  // column of its queries in qkv
  Size key;
  Size value;
  Size index;  // batch · heads + head
  Size out;    // column in the result
};

Head locate(const HeadLayout& layout, DocumentStarts starts, Size sequence, Size head) {
  const Size group = layout.heads / layout.kv_heads;
  const Size kv = head / group;
  return {starts.empty() ? nullptr : starts.data() + sequence * layout.sequence,
          sequence * layout.sequence,
          head * layout.head_size,
          (layout.heads + kv) * layout.head_size,
          (layout.heads + layout.kv_heads + kv) * layout.head_size,
          sequence * layout.heads + head,
          head * layout.head_size};
}

// A block of query rows, and the keys that one of them sees.
struct Block {
  Block(const Head& head, Size first_row, Size sequence)
      : starts(head.starts),
        first(first_row),
        rows(std::min(query_rows, sequence - first_row)),
        first_key(starts != nullptr ? starts[first_row] : 0),
        keys(first_row + rows - first_key) {}

  // The keys that row r sees, counted from first_key.
  Size begin(Size r) const { return starts != nullptr ? starts[first + r] - first_key : 0; }
  Size end(Size r) const { return first + r + 1 - first_key; }

  // Calls work(row's keys that are seen, their number, the row's rest) for each row of a matrix [rows × keys]; what is
  // before them becomes 0.
  template <class Work>
  void for_rows(float* matrix, const Work& work) const {
    for (Size r = 0; r < rows; ++r) {
      float* row = matrix + r * keys;
      std::fill_n(row, begin(r), 0.0F);
      work(r, row + begin(r), end(r) - begin(r), keys - begin(r));
    }
  }

  const std::int32_t* starts;
  Size first;
  Size rows;
  Size first_key;
  Size keys;
};

void forward_head(const Attention& op, const Head& head, float* logits) {
  const Size t = op.layout.sequence;
  const Size e = op.layout.head_size;
  const Size stride = op.qkv.cols;
  const float* base = op.qkv.f32() + head.row0 * stride;
  float* result = op.result.f32() + head.row0 * op.result.cols + head.out;
  float* log_sum = op.log_sum.f32() + head.index * t;
  for (Size first = 0; first < t; first += query_rows) {
    const Block block(head, first, t);
    const Size rows = block.rows;
    const Size keys = block.keys;
    const float* keys_base = base + block.first_key * stride;
    const Input query{base + first * stride + head.query, rows, e, stride};
    const Input key{keys_base + head.key, keys, e, stride};
    const Input value{keys_base + head.value, keys, e, stride};
    multiply({query}, {key, As::transposed}, op.scale, 0, {logits, rows, keys, keys});
    block.for_rows(logits, [&](Size r, float* row, Size visible, Size width) {
      log_sum[first + r] = softmax_row(row, visible, width);
    });
    multiply({{logits, rows, keys, keys}}, {value}, 1, 0, {result + first * op.result.cols, rows, e, op.result.cols});
  }
}

void clear_keys(const AttentionBackward& op, const Head& head) {
  for (Size t = 0; t < op.layout.sequence; ++t) {
    float* row = op.qkv_gradient.f32() + (head.row0 + t) * op.qkv.cols;
    std::fill_n(row + head.key, op.layout.head_size, 0.0F);
    std::fill_n(row + head.value, op.layout.head_size, 0.0F);
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
  // From the last block of rows to the first: the last one sees every key, so it sets what the others add to. Where
  // there are documents it does not, and they are cleared first.
  if (head.starts != nullptr && beta_kv == 0) clear_keys(op, head);
  for (Size first = (t - 1) / query_rows * query_rows; first >= 0; first -= query_rows) {
    const Block block(head, first, t);
    const Size rows = block.rows;
    const Size keys = block.keys;
    const float beta = first + rows == t && head.starts == nullptr ? beta_kv : 1.0F;
    const float* keys_base = base + block.first_key * stride;
    float* keys_gradient = gradient + block.first_key * stride;
    const Input query{base + first * stride + head.query, rows, e, stride};
    const Input key{keys_base + head.key, keys, e, stride};
    const Input value{keys_base + head.value, keys, e, stride};
    const Input dy{d_result + first * op.result.cols, rows, e, op.result.cols};
    const Input probabilities{p, rows, keys, keys};
    const Input dlogits{ds, rows, keys, keys};
    multiply({query}, {key, As::transposed}, op.scale, 0, {p, rows, keys, keys});
    block.for_rows(p, [&](Size r, float* row, Size visible, Size width) {
      probabilities_row(row, visible, width, log_sum[first + r]);
    });
    multiply({probabilities, As::transposed}, {dy}, 1, beta, {keys_gradient + head.value, keys, e, stride});
    multiply({dy}, {value, As::transposed}, 1, 0, {ds, rows, keys, keys});
    block.for_rows(ds, [&](Size r, float* row, Size visible, Size width) {
      softmax_row_backward(p + r * keys + block.begin(r), row, visible, width);
    });
    multiply({dlogits}, {key}, op.scale, 0, {gradient + first * stride + head.query, rows, e, stride});
    multiply({dlogits, As::transposed}, {query}, op.scale, beta, {keys_gradient + head.key, keys, e, stride});
  }
}

}  // namespace

void CpuOperations::run(const Attention& op) {
  const HeadLayout& layout = op.layout;
  const Size block = attention_block_floats(layout);
  float* memory = workspace_.floats(Workspace::Slot::heads, block * omp_get_max_threads());
#pragma omp parallel for collapse(2) schedule(static)
  for (Size sequence = 0; sequence < layout.batch; ++sequence) {
    for (Size head = 0; head < layout.heads; ++head) {
      forward_head(op, locate(layout, op.document_starts, sequence, head), memory + block * omp_get_thread_num());
    }
  }
  if (op.max_logit == nullptr) return;
  const float* log_sum = op.log_sum.f32();
  *op.max_logit = std::max(*op.max_logit, *std::max_element(log_sum, log_sum + op.log_sum.count()));
}

void CpuOperations::run(const AttentionBackward& op) {
  const HeadLayout& layout = op.layout;
  const Size block = attention_block_floats(layout);
  const Size group = layout.heads / layout.kv_heads;
  float* memory = workspace_.floats(Workspace::Slot::heads, 2 * block * omp_get_max_threads());
#pragma omp parallel for collapse(2) schedule(static)
  for (Size sequence = 0; sequence < layout.batch; ++sequence) {
    for (Size kv = 0; kv < layout.kv_heads; ++kv) {
      float* p = memory + 2 * block * omp_get_thread_num();
      for (Size member = 0; member < group; ++member) {
        const Head head = locate(layout, op.document_starts, sequence, kv * group + member);
        backward_head(op, head, member == 0 ? 0.0F : 1.0F, p, p + block);
      }
    }
  }
}

}  // namespace quaver
