// An engine around another one that tells where the time goes: while it watches, it waits for the device before and
// after every operation and adds the time to the operation's kind. While it is idle it passes everything on untouched.
#pragma once

#include <array>
#include <chrono>
#include <string_view>

#include "engine/engine.h"

namespace quaver {

enum class KernelKind : std::uint8_t {
  product_forward,
  product_input_gradient,
  product_weight_gradient,
  attention,
  norm,
  activation,
  cast,  // those that no other operation absorbed
  loss,  // with the head's products
  embedding,
  heads,
  optimizer,
  copy,  // transfers, clearing, sums of wide matrices
};
inline constexpr std::size_t kernel_kinds = 12;
std::string_view name_of(KernelKind kind);

struct KernelTime {
  double seconds = 0;
  Size calls = 0;
};

class TimedEngine final : public Engine {
 public:
  enum class Mode : std::uint8_t { idle, watching };

  explicit TimedEngine(Engine& engine) : engine_(engine) {}

  void set_mode(Mode mode) { mode_ = mode; }
  void reset() { times_ = {}; }
  const KernelTime& time(KernelKind kind) const { return times_[static_cast<std::size_t>(kind)]; }
  double total_seconds() const;

  std::string name() const override { return engine_.name(); }
  Hardware hardware() const override { return engine_.hardware(); }
  Support support(const QuantSpec& a, const QuantSpec& b) override { return engine_.support(a, b); }
  Format wide_format() const override { return engine_.wide_format(); }
  Sharing sharing() const override { return engine_.sharing(); }
  Accumulators accumulators() const override { return engine_.accumulators(); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return engine_.allocate(bytes); }
  void upload(const void* host, void* device, std::size_t bytes) override;
  void download(const void* device, void* host, std::size_t bytes) override;
  void synchronize() override { engine_.synchronize(); }
  std::size_t free_memory() const override { return engine_.free_memory(); }
  std::size_t workspace_bytes() const override { return engine_.workspace_bytes(); }
  void publish(std::span<Site* const> sites) override;
  void collect(std::span<Site* const> sites) override;
  void repeat(std::uint64_t key, const std::function<void()>& work) override;

  void fill_zero(View x) override;
  void quantize(View x, QuantizedTensor& out, const Casting& casting, float factor) override;
  void sum_columns(View x, View sums) override;
  void matmul(const Matmul& op) override;
  void embed(const Embed& op) override;
  void embed_backward(const EmbedBackward& op) override;
  void add_norm(const AddNorm& op) override;
  void add_norm_backward(const AddNormBackward& op) override;
  void norm_add(const NormAdd& op) override;
  void norm_add_backward(const NormAddBackward& op) override;
  void combine(const Combine& op) override;
  void prepare_heads(const PrepareHeads& op) override;
  void prepare_heads_backward(const PrepareHeadsBackward& op) override;
  void attention(const Attention& op) override;
  void attention_backward(const AttentionBackward& op) override;
  void activation(const Activation& op) override;
  void activation_backward(const ActivationBackward& op) override;
  void cross_entropy(const CrossEntropy& op) override;
  void measure_gradients(const MeasureGradients& op) override;
  void adamw(const AdamW& op) override;

 private:
  enum class Direction : std::uint8_t { forward, backward };

  KernelKind kind_of(const Matmul& op) const;

  template <class Operation>
  void timed(KernelKind kind, const Operation& operation) {
    if (mode_ == Mode::idle) {
      operation();
      return;
    }
    engine_.synchronize();
    const auto start = std::chrono::steady_clock::now();
    operation();
    engine_.synchronize();
    KernelTime& time = times_[static_cast<std::size_t>(kind)];
    time.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ++time.calls;
  }

  Engine& engine_;
  Mode mode_ = Mode::idle;
  Direction direction_ = Direction::forward;  // of the pass: the loss turns it round
  std::array<KernelTime, kernel_kinds> times_{};
};

}  // namespace quaver
