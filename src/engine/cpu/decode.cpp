// Decoding one token per sequence: its key and value go into the cache, its query meets all that are there.
#include <algorithm>
#include <omp.h>

#include "engine/cpu/cpu_engine.h"
#include "engine/cpu/vector_math.h"
#include "engine/cpu/workspace_sizes.h"
#include "formats/simd.h"

namespace quaver {

namespace {

// Row of the cache where the keys (or values) of one head of a sequence begin.
Size cache_row(const HeadLayout& layout, const KeyValues& cache, Size slot, Size kv_head) {
  return (slot * layout.kv_heads + kv_head) * cache.capacity;
}

struct Query {
  const float* query;
  const float* keys;  // [count × size]
  const float* values;
  Size count;
  Size size;
  float scale;
};

QUAVER_SIMD float dot_product(const float* a, const float* b, Size n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Size i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

QUAVER_SIMD void add_multiple(float factor, const float* x, Size n, float* out) {
  for (Size i = 0; i < n; ++i) out[i] += factor * x[i];
}

// logits → exp(logits − largest); returns their sum.
QUAVER_SIMD float exponentials(float* logits, Size n) {
  float top = logits[0];
#pragma omp simd reduction(max : top)
  for (Size j = 0; j < n; ++j) top = logits[j] > top ? logits[j] : top;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Size j = 0; j < n; ++j) {
    logits[j] = vector_exp(logits[j] - top);
    sum += logits[j];
  }
  return sum;
}

void attend(const Query& q, float* logits, float* result) {
  for (Size j = 0; j < q.count; ++j) logits[j] = q.scale * dot_product(q.query, q.keys + j * q.size, q.size);
  const float inverse = 1.0F / exponentials(logits, q.count);
  std::fill_n(result, q.size, 0.0F);
  for (Size j = 0; j < q.count; ++j) add_multiple(logits[j] * inverse, q.values + j * q.size, q.size, result);
}

}  // namespace

void CpuOperations::run(const StoreKeyValues& op) {
  const HeadLayout& layout = op.layout;
  const Size e = layout.head_size;
#pragma omp parallel for schedule(static) if (op.qkv.count() > worth_waking)
  for (Size token = 0; token < layout.tokens(); ++token) {
    const auto sequence = static_cast<std::size_t>(token / layout.sequence);
    const Size position = op.at.first[sequence] + token % layout.sequence;
    const float* keys = op.qkv.f32() + token * op.qkv.cols + layout.heads * e;
    const float* values = keys + layout.kv_heads * e;
    for (Size kv = 0; kv < layout.kv_heads; ++kv) {
      const Size row = cache_row(layout, op.cache, op.at.slots[sequence], kv) + position;
      std::copy_n(keys + kv * e, e, op.cache.keys.f32() + row * e);
      std::copy_n(values + kv * e, e, op.cache.values.f32() + row * e);
    }
  }
}

void CpuOperations::run(const AttentionDecode& op) {
  const HeadLayout& layout = op.layout;
  const Size e = layout.head_size;
  const Size group = layout.heads / layout.kv_heads;
  float* memory = workspace_.floats(Workspace::Slot::heads, op.cache.capacity * omp_get_max_threads());
  const Size longest = 1 + *std::max_element(op.at.first.begin(), op.at.first.end());
#pragma omp parallel for collapse(2) schedule(static) if (longest * op.result.count() > worth_waking)
  for (Size sequence = 0; sequence < layout.batch; ++sequence) {
    for (Size head = 0; head < layout.heads; ++head) {
      const auto index = static_cast<std::size_t>(sequence);
      const Size row = cache_row(layout, op.cache, op.at.slots[index], head / group);
      attend({.query = op.qkv.f32() + sequence * op.qkv.cols + head * e,
              .keys = op.cache.keys.f32() + row * e,
              .values = op.cache.values.f32() + row * e,
              .count = op.at.first[index] + 1,
              .size = e,
              .scale = op.scale},
             memory + op.cache.capacity * omp_get_thread_num(), op.result.f32() + sequence * op.result.cols + head * e);
    }
  }
}

}  // namespace quaver
