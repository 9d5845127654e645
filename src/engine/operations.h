// The operations of an engine: each is a struct with named members, declared once, here (those of images in
// image_operations.h, the optimizer's in optimizer_operations.h), and listed at the end of this file. Every operand of
// a GEMM belongs to a site (tensor/site.h): x, w or dy of a layer, with its format, scale and statistics. An operation
// whose result feeds a GEMM quantizes it in its own pass: `out ← …` below writes the codes (the quantized values) and
// scales of a QuantizedTensor and adds amax and counts to its site.
//
// All other matrices (View) are stored in the engine's high precision: FP32 on the CPU; BF16, FP16 or FP32 on a GPU.
// All are row-major, one token per row. Gradients of parameters are FP32 and accumulate (+=); the trainer clears them.
#pragma once

#include <cstdint>
#include <span>

#include "engine/image_operations.h"
#include "engine/optimizer_operations.h"
#include "engine/rotary.h"
#include "tensor/view.h"

namespace quaver {

// What each of a layer's three GEMMs accumulates in. The head's dgrad is a case of its own: a sum over the vocabulary
// of one large term, the target's, and thousands of small ones that matter together.
struct Accumulators {
  Accumulator fprop = Accumulator::fp32;
  Accumulator dgrad = Accumulator::fp32;
  Accumulator head_dgrad = Accumulator::fp32;
  Accumulator wgrad = Accumulator::fp32;
};

struct FillZero {
  static constexpr OperationKind operation_kind = OperationKind::copy;
  View x;
};

// out ← factor · x: a cast that is not fused into what produced x
struct Quantize {
  static constexpr OperationKind operation_kind = OperationKind::cast;
  View x;
  QuantizedTensor& out;
  const Casting& casting;
  float factor = 1;
};

// out = the values that the codes stand for, decode(code) · block_scale · tensor_scale, with the rotation undone: FP32,
// or BF16 on a GPU.
struct Dequantize {
  static constexpr OperationKind operation_kind = OperationKind::cast;
  CodeMatrix from;
  RandomKey random = {};  // of the cast, for the signs of its rotation
  View out;
};

// to ← fromᵀ, with its scales: columnwise codes that are the rowwise ones the other way round. 8 bits a code.
struct TransposeCodes {
  static constexpr OperationKind operation_kind = OperationKind::cast;
  CodeMatrix from;
  CodeMatrix to;
};

// sums [1 × cols] += the sum of x's rows
struct SumColumns {
  static constexpr OperationKind operation_kind = OperationKind::cast;
  View x;
  View sums;
};

// Which of a layer's GEMMs: y = x·wᵀ, dx = dy·w, dw = dyᵀ·x.
enum class GemmPass : std::uint8_t { fprop, dgrad, wgrad };

// apart: a row's bits do not depend on how many others there are, and few of them are fast. What decoding asks for, so
// that a sequence does not depend on its batch; the CPU engine alone promises it.
enum class GemmRows : std::uint8_t { together, apart };

// out[M × N] = alpha · a[M × K] · b[N × K]ᵀ (+ bias) (+ out). Dequantization is part of it: a and b carry their scales.
struct Gemm {
  GemmPass pass = GemmPass::fprop;
  Operand a;
  Operand b;
  View out;
  View bias = {};  // [1 × N], or empty
  float alpha = 1;
  bool accumulate = false;
  Accumulator accumulator = Accumulator::fp32;
  GemmRows rows = GemmRows::together;
};

// Packed rows: for each token the position, within its row, at which its document begins; in device memory. Empty: a
// row is one document.
using DocumentStarts = std::span<const std::int32_t>;

// Position of a token in its document.
inline Size document_position(DocumentStarts starts, Size token, Size sequence) {
  return token % sequence - (starts.empty() ? 0 : starts[static_cast<std::size_t>(token)]);
}

// out[t] = factor · (table[tokens[t]] + positions[t mod sequence − start of its document])
struct Embed {
  static constexpr OperationKind operation_kind = OperationKind::embedding;
  std::span<const std::int32_t> tokens;  // in device memory
  DocumentStarts document_starts = {};
  Size sequence;
  View table;
  View positions = {};  // empty with rotary embeddings
  float factor = 1;
  View out;
  std::span<const std::int32_t> first = {};  // in device memory: each sequence's first position; empty: 0
};
struct EmbedBackward {
  static constexpr OperationKind operation_kind = OperationKind::embedding;
  std::span<const std::int32_t> tokens;
  DocumentStarts document_starts = {};
  Size sequence;
  View gradient;
  float factor = 1;
  View table_gradient;           // both may be empty: frozen
  View positions_gradient = {};  // … or not there
};

enum class NormKind : std::uint8_t { layer, rms };

struct NormParameters {
  NormKind kind = NormKind::layer;
  View gain;        // γ, [1 × d]
  View shift = {};  // β, [1 × d], or empty
  float eps = 1e-5F;
};
struct NormGradients {
  View gain;
  View shift = {};
  float factor = 1;
};

// sum = keep · residual + add · branch (branch may be empty: sum = residual); out ← norm(sum). The factors are 1 but in
// unit-scaled models.
struct AddNorm {
  static constexpr OperationKind operation_kind = OperationKind::norm;
  NormParameters norm;
  View residual;
  View branch = {};
  float keep = 1;
  float add = 1;
  View sum;    // may be `residual`'s own memory
  View stats;  // [tokens × 2], FP32: mean and 1/std of each row, kept for backward
  QuantizedTensor& out;
  const Casting& casting;

  // Nothing is added, and the sum stays where it is.
  bool sum_is_residual() const { return branch.empty() && sum.data == residual.data; }
};
// gradient = keep · next + add · (d norm(sum)/d sum)ᵀ · out_gradient, cast into branch_gradient too
struct AddNormBackward {
  static constexpr OperationKind operation_kind = OperationKind::norm;
  NormParameters norm;
  View sum;
  View stats;
  View out_gradient;
  View next = {};  // gradient of the residual stream from the layers after this point; empty after the last one
  float keep = 1;
  float add = 1;
  View gradient;                               // may be `next`'s own memory
  QuantizedTensor* branch_gradient = nullptr;  // dy of the branch before; null: there is none. May be `gradient` itself
  QuantizedTensor* out = nullptr;              // where given: norm(sum) is requantized, without statistics
  NormGradients gradients;
  const Casting& casting;
};

// The norm at the end of a branch: sum = keep · residual + add · norm(branch); out ← sum. branch is kept for backward.
struct NormAdd {
  static constexpr OperationKind operation_kind = OperationKind::norm;
  NormParameters norm;
  View residual;
  View branch;
  float keep = 1;
  float add = 1;
  View sum;
  View stats;
  QuantizedTensor* out = nullptr;  // null after the last branch
  const Casting& casting;
};
// gradient = keep · next + add · input_gradient; branch_gradient ← factor · (d norm(branch)/d branch)ᵀ · gradient
struct NormAddBackward {
  static constexpr OperationKind operation_kind = OperationKind::norm;
  NormParameters norm;
  View branch;
  View stats;
  View input_gradient;  // of the branch that read `out`
  View next = {};
  float keep = 1;
  float add = 1;
  float factor = 1;
  View gradient;
  QuantizedTensor& branch_gradient;
  NormGradients gradients;
  const Casting& casting;
};

// out = keep · x + add · y; out may be the memory of x or y
struct Combine {
  static constexpr OperationKind operation_kind = OperationKind::copy;
  View x;
  View y;
  float keep = 1;
  float add = 1;
  View out;
};

// Queries, keys and values lie side by side: [tokens × (heads + 2·kv_heads)·head_size].
struct HeadLayout {
  Size batch = 0;
  Size sequence = 0;
  Size heads = 0;
  Size kv_heads = 0;
  Size head_size = 0;

  Size tokens() const { return batch * sequence; }
  Size width() const { return (heads + 2 * kv_heads) * head_size; }
};

// QK-norm: RMS norm of each query and key head (where gains are given). Then rotary embedding (where theta > 0), which
// pairs element i with i + head_size / 2.
struct PrepareHeads {
  static constexpr OperationKind operation_kind = OperationKind::heads;
  HeadLayout layout;
  float theta = 0;
  View query_gain = {};  // [1 × head_size]
  View key_gain = {};
  float eps = 1e-5F;
  View in;
  View out;
  RotaryScaling scaling = {};
  std::span<const std::int32_t> first = {};  // in device memory: each sequence's first position; empty: 0
  Size positions = 0;                        // with `first`: all positions are below it

  bool is_in_place() const { return in.data == out.data; }  // values are not touched then
};
struct PrepareHeadsBackward {
  static constexpr OperationKind operation_kind = OperationKind::heads;
  PrepareHeads forward;  // `in` as it was; `out` is not read
  View gradient;         // of out; becomes the gradient of in
  View query_gain_gradient = {};
  View key_gain_gradient = {};
  float factor = 1;
};

// Causal attention within each document: result = softmax(scale · q·kᵀ)·v
struct Attention {
  static constexpr OperationKind operation_kind = OperationKind::attention;
  HeadLayout layout;
  View qkv;
  float scale = 1;
  View result;   // [tokens × heads·head_size]
  View log_sum;  // [batch·heads × sequence], FP32: log Σ exp of each row of logits (LSE), kept for backward
  // max_logit ← max(max_logit, largest LSE): an upper bound of the largest logit, by at most log(sequence). May be
  // null.
  float* max_logit = nullptr;
  DocumentStarts document_starts = {};
};
struct AttentionBackward {
  static constexpr OperationKind operation_kind = OperationKind::attention;
  HeadLayout layout;
  View qkv;
  View result;
  View log_sum;
  View result_gradient;
  float scale = 1;
  View qkv_gradient;
  DocumentStarts document_starts = {};
};

// The keys and values of a layer's earlier tokens, which decoding reads in place of computing them again:
// [sequences · kv_heads · capacity × head_size] each.
struct KeyValues {
  View keys;
  View values;
  Size capacity = 0;  // tokens of a sequence
};

// Where the sequences of a batch are stored, one of each per sequence, in device memory.
struct CachedSequences {
  std::span<const std::int32_t> slots;  // the sequence's number in the cache
  std::span<const std::int32_t> first;  // the position of its first token in this batch
};

// The keys and values of qkv go into the cache, each token's at its position.
struct StoreKeyValues {
  static constexpr OperationKind operation_kind = OperationKind::attention;
  HeadLayout layout;
  View qkv;
  KeyValues cache;
  CachedSequences at;
};

// Attention of one new token per sequence, whose own key and value are in the cache already, to all up to itself.
struct AttentionDecode {
  static constexpr OperationKind operation_kind = OperationKind::attention;
  HeadLayout layout;  // sequence is 1
  View qkv;           // of which the queries are read
  KeyValues cache;
  CachedSequences at;
  float scale = 1;
  View result;  // [batch × heads·head_size]
};

enum class ActivationKind : std::uint8_t { gelu, relu, swiglu };  // swiglu reads [gate | up], twice as wide

// out ← clip(factor · f(x), ±limit)
struct Activation {
  static constexpr OperationKind operation_kind = OperationKind::activation;
  ActivationKind kind;
  View x;
  float factor = 1;
  float limit = 0;  // 0: none
  QuantizedTensor& out;
  const Casting& casting;
};
// in_gradient ← factor · f′(x) · out_gradient, zero where the forward clipped
struct ActivationBackward {
  static constexpr OperationKind operation_kind = OperationKind::activation;
  ActivationKind kind;
  View x;
  View out_gradient;
  float forward_factor = 1;
  float factor = 1;
  float limit = 0;
  QuantizedTensor& in_gradient;
  QuantizedTensor* out = nullptr;  // where given: the forward pass's result is requantized, without statistics
  const Casting& casting;

  // The forward pass again, into `out`.
  Activation recompute(const Casting& unobserved) const {
    return {.kind = kind, .x = x, .factor = forward_factor, .limit = limit, .out = *out, .casting = unobserved};
  }
};

// Language-model head and loss in chunks of tokens, so that the logits are never stored whole. With current scaling
// dlogits has one scale per chunk.
//   logits = logit_factor · x·wᵀ;  loss += Σ −log softmax(logits)[target]
//   dlogits = gradient_factor · (softmax − onehot)
//   x_gradient = input_factor · dlogits·w;  weight_gradient += weight_factor · dlogitsᵀ·x
struct CrossEntropy {
  static constexpr OperationKind operation_kind = OperationKind::loss;
  const QuantizedTensor& x;
  const QuantizedTensor& w;
  Site* logits_gradient = nullptr;        // how dlogits is cast for its GEMMs; null: loss only, as are the gradients
  std::span<const std::int32_t> targets;  // in device memory; negative: ignored
  float logit_factor = 1;
  float gradient_factor = 1;
  const float* gradient_scale = nullptr;  // in device memory, multiplies gradient_factor; null: 1
  float input_factor = 1;
  float weight_factor = 1;
  float z_loss = 0;  // weight of (log Σ exp logits)²
  double* loss_sum = nullptr;
  double* row_losses = nullptr;      // each row's loss, 0 of an ignored one; null: not wanted
  std::uint64_t* correct = nullptr;  // += the rows whose target has the largest logit, the first of equal ones
  View x_gradient = {};
  View weight_gradient = {};  // empty: the weight is frozen
  Accumulators accumulators = {};
  const Casting& casting;
};

template <class... Each>
struct OperationList {};

// All of them. Engine::run, timing and memory planning follow from this list.
using Operations =
    OperationList<FillZero, Quantize, Dequantize, TransposeCodes, SumColumns, Gemm, Embed, EmbedBackward, AddNorm,
                  AddNormBackward, NormAdd, NormAddBackward, Combine, PrepareHeads, PrepareHeadsBackward, Attention,
                  AttentionBackward, StoreKeyValues, AttentionDecode, Activation, ActivationBackward, CrossEntropy,
                  SumInOrder, MeasureGradients, ClipGradients, AdamW, Orthogonalize, Muon, Patches, PatchesBackward,
                  BatchNorm, BatchNormBackward, AveragePool, AveragePoolBackward, MovingAverage>;

template <class Operation>
constexpr OperationKind kind_of(const Operation&) {
  return Operation::operation_kind;
}
constexpr OperationKind kind_of(const Gemm& op) {
  switch (op.pass) {
    case GemmPass::fprop:
      return OperationKind::gemm_fprop;
    case GemmPass::dgrad:
      return OperationKind::gemm_dgrad;
    case GemmPass::wgrad:
      break;
  }
  return OperationKind::gemm_wgrad;
}

}  // namespace quaver
