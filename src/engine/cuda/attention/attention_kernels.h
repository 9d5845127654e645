// Our own causal attention, forward and backward, for matrices in any high precision, any sequence, grouped heads and
// heads of up to 256: the logits of a tile at a time, nothing added by atomics. Heads of a multiple of 8 up to 128 run
// on tensor cores in BF16, FP16 and, where FP32 may be rounded to it, TF32; the rest in FP32 arithmetic.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

// float_as: what FP32 is multiplied in, f32 or tf32.
void own_attention(Gpu& gpu, const Attention& op, Format float_as);  // all but max_logit
void own_attention_backward(Gpu& gpu, const AttentionBackward& op, Format float_as);

// *target = max(*target, all of x), x in FP32
void raise_to_largest(Gpu& gpu, View x, float* target);

// The arguments of both families of kernels. T is the element type: float, BF16 or FP16.
template <class T>
struct AttentionArguments {
  const T* qkv = nullptr;
  T* result = nullptr;                 // forward only
  float* log_sum = nullptr;            // written forward, read backward
  const T* result_gradient = nullptr;  // and these backward only
  const float* row_dots = nullptr;     // Σ result · result_gradient of each row, laid out as log_sum
  T* qkv_gradient = nullptr;
  const std::int32_t* document_starts = nullptr;  // null: a row is one document
  int batch = 0;
  int sequence = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;
  float scale = 1;
};

// In attention_fp32.cu: any head size up to 256.
template <class T>
void plain_forward(Gpu& gpu, const AttentionArguments<T>& arguments);
template <class T>
void plain_backward(Gpu& gpu, const AttentionArguments<T>& arguments);

// In attention_tensor_cores.cu: FP32 is rounded to TF32.
template <class T>
bool tensor_cores_support(const Gpu& gpu, int head_size);
template <class T>
void tensor_core_forward(Gpu& gpu, const AttentionArguments<T>& arguments);
template <class T>
void tensor_core_backward(Gpu& gpu, const AttentionArguments<T>& arguments);

// Offsets of the parts of one head, in elements.
struct HeadPlace {
  Size qkv_stride;
  Size query;  // of position 0 in qkv and its gradient
  Size key;
  Size value;
  Size result_stride;
  Size result;
  Size row;  // of position 0 in log_sum
};

template <class T>
__host__ __device__ HeadPlace locate_head(const AttentionArguments<T>& a, int sequence_index, int head) {
  const Size e = a.head_size;
  const Size width = (Size{a.heads} + 2 * Size{a.kv_heads}) * e;
  const Size first = Size{sequence_index} * a.sequence;
  const Size kv = head / (a.heads / a.kv_heads);
  return {width,
          first * width + head * e,
          first * width + (a.heads + kv) * e,
          first * width + (a.heads + a.kv_heads + kv) * e,
          a.heads * e,
          first * a.heads * e + head * e,
          (Size{sequence_index} * a.heads + head) * a.sequence};
}

// Whether rows hold several documents, which do not see each other. Kernels for one document have no trace of it.
enum class Packing : std::uint8_t { none, documents };

// The first key that a query sees; the last query's for those past the sequence.
template <Packing P, class T>
__device__ int first_key(const AttentionArguments<T>& a, int sequence_index, int query) {
  if constexpr (P == Packing::none) return 0;
  return a.document_starts[Size{sequence_index} * a.sequence + min(query, a.sequence - 1)];
}

// One past the last query that sees a key. Starts ascend, so it is found by bisection.
template <Packing P, class T>
__device__ int end_of_queries(const AttentionArguments<T>& a, int sequence_index, int key) {
  if constexpr (P == Packing::none) return a.sequence;
  const std::int32_t* starts = a.document_starts + Size{sequence_index} * a.sequence;
  int inside = min(key, a.sequence - 1);
  int behind = a.sequence;
  while (behind - inside > 1) {
    const int middle = inside + (behind - inside) / 2;
    (starts[middle] <= key ? inside : behind) = middle;
  }
  return behind;
}

// Which gradient a kernel computes, and so what its rows are: keys (with values) or queries. The columns are the other.
enum class Side : std::uint8_t { keys, queries };

}  // namespace quaver::cuda
