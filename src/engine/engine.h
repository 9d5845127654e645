// The whole contract with a device: every operation once, fused where speed needs it. Arguments are structs with named
// members; a result that feeds a product is written *into a site*, so the producer casts it in the pass it makes
// anyway. The CPU engine (cpu/) is the readable reference that other engines must agree with: casts bit for bit, sums
// within a stated tolerance.
//
// "Wide" matrices (View) carry everything that is not an operand, in the engine's wide format: FP32 on the CPU, BF16 on
// GPUs where speed counts. Matrices are row-major, one token a row. Gradients of parameters are FP32 and accumulate
// (+=); the trainer clears them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tensor/quantized_tensor.h"
#include "tensor/view.h"

namespace quaver {

// How the casts of this micro-step behave.
struct Casting {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;                     // of the random streams
  const std::uint32_t* micro_step = nullptr;  // in engine memory, added to step: what differs between repetitions
  Detail detail = Detail::counts;             // what statistics to gather
  bool observe = true;                        // false in evaluation: sites keep no trace of it

  Casting unobserved() const {
    Casting same = *this;
    same.observe = false;
    return same;
  }
};

// What each of a layer's three products sums in. The head's input gradient is a case of its own: a sum over the
// vocabulary of one large term, the target's, and thousands of small ones that matter together.
struct Accumulators {
  Accumulator forward = Accumulator::fp32;
  Accumulator input_gradient = Accumulator::fp32;
  Accumulator head_input_gradient = Accumulator::fp32;
  Accumulator weight_gradient = Accumulator::fp32;
};

// out[M × N] = alpha · a[M × K] · b[N × K]ᵀ (+ bias) (+ out)
struct Matmul {
  Operand a;
  Operand b;
  View out;
  View bias = {};  // [1 × N], or empty
  float alpha = 1;
  bool accumulate = false;
  Accumulator accumulator = Accumulator::fp32;
};

// out[t] = factor · (table[tokens[t]] + positions[t mod sequence])
struct Embed {
  std::span<const std::int32_t> tokens;  // in engine memory
  Size sequence;
  View table;
  View positions = {};  // empty with rotary embeddings
  float factor = 1;
  View out;
};
struct EmbedBackward {
  std::span<const std::int32_t> tokens;
  Size sequence;
  View gradient;
  float factor = 1;
  View table_gradient;
  View positions_gradient = {};
};

enum class NormKind : std::uint8_t { layer, rms };

struct NormParameters {
  NormKind kind = NormKind::layer;
  View gain;        // [1 × d]
  View shift = {};  // [1 × d], or empty
  float eps = 1e-5F;
};
struct NormGradients {
  View gain;
  View shift = {};
  float factor = 1;
};

// sum = keep · residual + add · branch (branch may be empty: sum = residual); out ← norm(sum)
struct AddNorm {
  NormParameters norm;
  View residual;
  View branch = {};
  float keep = 1;
  float add = 1;
  View sum;    // may be `residual`'s own memory
  View stats;  // [tokens × 2]: mean and 1/std, kept for backward
  QuantizedTensor& out;
  const Casting& casting;

  // Nothing is added, and the sum stays where it is.
  bool sum_is_residual() const { return branch.empty() && sum.data == residual.data; }
};
// gradient = keep · next + add · (d norm(sum)/d sum)ᵀ · out_gradient, cast into branch_gradient too
struct AddNormBackward {
  NormParameters norm;
  View sum;
  View stats;
  View out_gradient;
  View next = {};  // gradient of the residual stream behind this point; empty at its end
  float keep = 1;
  float add = 1;
  View gradient;                               // may be `next`'s own memory
  QuantizedTensor* branch_gradient = nullptr;  // is_own_codes(): `gradient` itself; null where no branch ends here
  QuantizedTensor* out = nullptr;              // where given: norm(sum) is requantized (and not observed again)
  NormGradients gradients;
  const Casting& casting;
};

// The norm at the end of a branch: sum = keep · residual + add · norm(branch); out ← sum. branch is kept for backward.
struct NormAdd {
  NormParameters norm;
  View residual;
  View branch;
  float keep = 1;
  float add = 1;
  View sum;
  View stats;
  QuantizedTensor* out = nullptr;  // null at the end of the stack
  const Casting& casting;
};
// gradient = keep · next + add · input_gradient; branch_gradient ← factor · (d norm(branch)/d branch)ᵀ · gradient
struct NormAddBackward {
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

// out = keep · x + add · y, both in place where wanted
struct Combine {
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

// RMS norm of each query and key head (where gains are given), then rotary embedding on half-splits (where theta > 0).
struct PrepareHeads {
  HeadLayout layout;
  float theta = 0;
  View query_gain = {};  // [1 × head_size]
  View key_gain = {};
  float eps = 1e-5F;
  View in;
  View out;

  bool is_in_place() const { return in.data == out.data; }  // values are not touched then
};
struct PrepareHeadsBackward {
  PrepareHeads forward;  // `in` as it was; `out` is not read
  View gradient;         // of out; becomes the gradient of in
  View query_gain_gradient = {};
  View key_gain_gradient = {};
  float factor = 1;
};

// Causal attention: result = softmax(scale · q·kᵀ)·v
struct Attention {
  HeadLayout layout;
  View qkv;
  float scale = 1;
  View result;   // [tokens × heads·head_size]
  View log_sum;  // [batch·heads × sequence]: log Σ exp of each row of logits, FP32
  // Raised to the largest log_sum: never below the largest logit, and above it by log(sequence) at most. Null: not
  // wanted.
  float* max_logit = nullptr;
};
struct AttentionBackward {
  HeadLayout layout;
  View qkv;
  View result;
  View log_sum;
  View result_gradient;
  float scale = 1;
  View qkv_gradient;
};

enum class ActivationKind : std::uint8_t { gelu, relu, swiglu };  // swiglu reads [gate | up], twice as wide

// out ← clip(factor · f(x), ±limit)
struct Activation {
  ActivationKind kind;
  View x;
  float factor = 1;
  float limit = 0;  // 0: none
  QuantizedTensor& out;
  const Casting& casting;
};
// in_gradient ← factor · f′(x) · out_gradient, zero where the forward clipped
struct ActivationBackward {
  ActivationKind kind;
  View x;
  View out_gradient;
  float forward_factor = 1;
  float factor = 1;
  float limit = 0;
  QuantizedTensor& in_gradient;
  QuantizedTensor* out = nullptr;  // where given: the forward pass's result is requantized (and not observed again)
  const Casting& casting;
};

// Head and loss in chunks of rows, so that the logits never exist whole. Where dlogits are cast under scales of their
// own, these are the chunk's.
//   logits = logit_factor · x·wᵀ;  loss += Σ −log softmax(logits)[target]
//   dlogits = gradient_factor · (softmax − onehot)
//   x_gradient = input_factor · dlogits·w;  weight_gradient += weight_factor · dlogitsᵀ·x
struct CrossEntropy {
  const QuantizedTensor& x;
  const QuantizedTensor& w;
  Site* logits_gradient = nullptr;        // how dlogits is cast for its products; null: loss only, as are the gradients
  std::span<const std::int32_t> targets;  // in engine memory; negative: ignored
  float logit_factor = 1;
  float gradient_factor = 1;
  const float* gradient_scale = nullptr;  // in engine memory, multiplies gradient_factor; null: 1
  float input_factor = 1;
  float weight_factor = 1;
  float z_loss = 0;  // weight of (log Σ exp logits)²
  double* loss_sum = nullptr;
  View x_gradient = {};
  View weight_gradient = {};
  Accumulators accumulators = {};
  const Casting& casting;
};

enum class Clip : std::uint8_t { none, global_norm, group_norm, value };

struct GradientSummary {
  double norm = 0;  // of all gradients together, unscaled, before clipping
  std::uint64_t nonfinite = 0;
};

// The norm of the gradients, and for each the factor that unscales and clips it.
struct MeasureGradients {
  std::span<const View> gradients;
  std::span<const float> ratios;  // stored gradient over true gradient, for the norm: unit-scaled models differ from 1
  float unscale = 1;
  Clip clip = Clip::global_norm;
  float limit = 1;
  float* factors;   // one per gradient
  double* squares;  // one per gradient: its unscaled norm, squared
  GradientSummary* summary;
};

// What an update did to a weight.
struct UpdateStatistics {
  double weight2 = 0;         // Σ w²
  double update2 = 0;         // Σ Δw²
  std::uint64_t unmoved = 0;  // weights whose stored value did not change though the update was not zero
  std::uint64_t count = 0;
};

// AdamW on one parameter: update, round, store, and cast the new weight into its site. Does nothing to the weight when
// summary->nonfinite is not zero. v is stored as its square root.
struct AdamW {
  View weight;
  View gradient;
  CodeMatrix moment1;
  CodeMatrix moment2_root;
  const float* gradient_factor;
  const GradientSummary* summary;
  float value_limit = 0;  // clip by value after unscaling; 0: none
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon;
  float decay;             // weight −= decay · weight, already multiplied by the learning rate where it should be
  float bias_correction1;  // 1 − β₁ᵗ
  float bias_correction2;
  Rounding rounding = Rounding::nearest_even;  // of the stored weight
  RandomKey random;
  UpdateStatistics* statistics = nullptr;
  QuantizedTensor* quantized = nullptr;  // the weight's site; null where no product reads it
  const Casting* casting = nullptr;
};

// How a product of two operands runs on a device: as they lie, by way of a wider format, or not at all.
enum class SupportLevel : std::uint8_t { native, emulated, unavailable };

struct Support {
  SupportLevel level = SupportLevel::native;
  std::string how = {};  // in words: by what, or through what and why
};

// What an engine runs on, as far as its need of memory depends on it.
enum class HardwareKind : std::uint8_t { processors, gpu };

struct Hardware {
  HardwareKind kind = HardwareKind::processors;
  int threads = 0;       // of the processors; 0: all
  int architecture = 0;  // of the GPU: 90 for Hopper
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string name() const = 0;
  virtual Hardware hardware() const { return {}; }

  // What matmul does with operands stored so, whatever their shapes. Unless an engine says otherwise they are decoded
  // to FP32, which holds them exactly.
  virtual Support support(const QuantSpec& a, const QuantSpec& b) {
    const bool as_they_are = a.format == Format::f32 && b.format == Format::f32;
    if (as_they_are) return {SupportLevel::native, "FP32 products"};
    return {SupportLevel::emulated, "decoded to FP32, which holds every value exactly"};
  }

  // What wide matrices are stored in, and whether narrow codes are needed once for each product that reads them (tensor
  // cores read FP8 along the reduction only) or may be shared where that is exact.
  virtual Format wide_format() const { return Format::f32; }
  virtual Sharing sharing() const { return Sharing::where_exact; }

  // What products sum in unless a config says otherwise.
  virtual Accumulators accumulators() const { return {}; }

  // Memory of the device, aligned for any use, cleared to zero. Views and every pointer and span in an operation point
  // into such memory (but for the lists of measure_gradients); the host reaches it through upload and download alone.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
  virtual void upload(const void* host, void* device, std::size_t bytes) = 0;
  virtual void download(const void* device, void* host, std::size_t bytes) = 0;

  virtual void synchronize() {}                     // waits for what was asked for
  virtual std::size_t free_memory() const = 0;      // bytes that allocate() could still give
  virtual std::size_t workspace_bytes() const = 0;  // taken by operations for themselves

  // Sites are host objects. publish: casts from now on use the sites' present scales. collect: adds what casts saw to
  // the sites' `seen`. Between the two nothing about scales or statistics leaves the device.
  virtual void publish(std::span<Site* const>) {}
  virtual void collect(std::span<Site* const>) {}

  // Calls work(), which only calls operations below. An engine may record what they do the first time and repeat the
  // recording when the same key comes again: the key stands for all that the calls depend on, except the contents of
  // engine memory and the published scales.
  virtual void repeat(std::uint64_t key, const std::function<void()>& work) {
    static_cast<void>(key);
    work();
  }

  virtual void fill_zero(View x) = 0;
  // out ← factor · x: the cast nothing could absorb
  virtual void quantize(View x, QuantizedTensor& out, const Casting& casting, float factor = 1) = 0;
  virtual void sum_columns(View x, View sums) = 0;  // sums [1 × cols] += the sum of x's rows
  virtual void matmul(const Matmul& op) = 0;
  virtual void embed(const Embed& op) = 0;
  virtual void embed_backward(const EmbedBackward& op) = 0;
  virtual void add_norm(const AddNorm& op) = 0;
  virtual void add_norm_backward(const AddNormBackward& op) = 0;
  virtual void norm_add(const NormAdd& op) = 0;
  virtual void norm_add_backward(const NormAddBackward& op) = 0;
  virtual void combine(const Combine& op) = 0;
  virtual void prepare_heads(const PrepareHeads& op) = 0;
  virtual void prepare_heads_backward(const PrepareHeadsBackward& op) = 0;
  virtual void attention(const Attention& op) = 0;
  virtual void attention_backward(const AttentionBackward& op) = 0;
  virtual void activation(const Activation& op) = 0;
  virtual void activation_backward(const ActivationBackward& op) = 0;
  virtual void cross_entropy(const CrossEntropy& op) = 0;
  virtual void measure_gradients(const MeasureGradients& op) = 0;
  virtual void adamw(const AdamW& op) = 0;
};

// The engine of this machine's processors. threads = 0: all cores.
std::unique_ptr<Engine> make_cpu_engine(int threads);

}  // namespace quaver
