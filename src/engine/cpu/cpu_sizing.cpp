// What the CPU engine's operations take for themselves, slot by slot as they ask for it (workspace.h).
#include <omp.h>

#include "engine/cpu/matmul.h"
#include "engine/cpu/workspace.h"
#include "engine/sizing_engine.h"

namespace quaver {

namespace {

class CpuSizing final : public SizingEngine {
 public:
  explicit CpuSizing(int threads)
      : SizingEngine(Format::f32, Sharing::where_exact), threads_(threads > 0 ? threads : omp_get_max_threads()) {}

  Hardware hardware() const override { return {.kind = HardwareKind::processors, .threads = threads_}; }

  void quantize(View, QuantizedTensor& out, const Casting&, float) override {
    if (!out.is_own_codes()) write(out);
  }

  void matmul(const Matmul& op) override {
    decode(Workspace::Slot::operand_a, op.a.matrix);
    decode(Workspace::Slot::operand_b, op.b.matrix);
    if (accumulator_of(op) == Accumulator::fp32) return;
    const Size m = op.a.extent();
    const Size n = op.b.extent();
    const Size k = op.a.reduction();
    pass(4 * (m * n + (op.a.transposed ? k * m : 0) + (op.b.transposed ? 0 : n * k)));
  }

  void add_norm(const AddNorm& op) override { write(op.out); }
  void add_norm_backward(const AddNormBackward& op) override {
    if (op.branch_gradient != nullptr) write(*op.branch_gradient);
    if (op.out != nullptr) write(*op.out);
  }
  void norm_add(const NormAdd& op) override {
    if (op.out == nullptr) return floats(Workspace::Slot::tiles, op.residual.cols * threads_);
    write(*op.out);
  }
  void norm_add_backward(const NormAddBackward& op) override { write(op.branch_gradient); }
  void activation(const Activation& op) override { write(op.out); }
  void activation_backward(const ActivationBackward& op) override {
    write(op.in_gradient);
    if (op.out != nullptr) write(*op.out);
  }

  void attention(const Attention& op) override { heads(op.layout, 1); }
  void attention_backward(const AttentionBackward& op) override { heads(op.layout, 2); }

  void prepare_heads(const PrepareHeads& op) override { rotary(op); }
  void prepare_heads_backward(const PrepareHeadsBackward& op) override { rotary(op.forward); }

  void cross_entropy(const CrossEntropy& op) override;

  void adamw(const AdamW& op) override {
    floats(Workspace::Slot::tiles, 4 * tile_rows * op.weight.cols * threads_);
    if (op.quantized != nullptr) quantize(op.weight, *op.quantized, *op.casting, 1);
  }

 private:
  void floats(Workspace::Slot slot, Size count) { keep(static_cast<std::size_t>(slot), 4 * count); }

  void decode(Workspace::Slot slot, const CodeMatrix& matrix) {
    const Format format = matrix.spec.format;
    if (format != Format::f32 && format != Format::tf32) floats(slot, matrix.rows * matrix.cols);
  }

  void heads(const HeadLayout& layout, Size blocks) {
    constexpr Size query_rows = 64;
    floats(Workspace::Slot::heads, blocks * query_rows * layout.sequence * threads_);
  }

  void rotary(const PrepareHeads& op) {
    if (op.theta > 0) pass(4 * op.layout.sequence * op.layout.head_size);
  }

  static bool waits_for_whole(QuantSpec spec, Side side, float scale) {
    const bool waits = spec.policy == ScalePolicy::delayed || spec.policy == ScalePolicy::fixed;
    if (waits && scale == 0) spec.policy = ScalePolicy::current;
    return needs_whole_tensor(spec, side);
  }

  // As SiteWriter does.
  void write(const QuantizedTensor& out) {
    const Site& site = out.site();
    const Size cols = out.cols_count();
    const bool whole = (out.has_rows() && waits_for_whole(site.spec.rows, Side::rows, site.scale)) ||
                       (out.has_own_columns() && waits_for_whole(site.spec.columns, Side::columns, site.scale));
    const bool direct = out.has_rows() && site.spec.rows.format == Format::f32 && !out.has_own_columns();
    if (!direct && whole) floats(Workspace::Slot::staging, out.rows_count() * cols);
    if (!direct && !whole) floats(Workspace::Slot::tiles, tile_rows * cols * threads_);
    if (!out.column_sums.empty()) floats(Workspace::Slot::reductions, cols * threads_);
  }

  int threads_;
};

void CpuSizing::cross_entropy(const CrossEntropy& op) {
  const Size tokens = op.x.rows_count();
  const Size vocab = op.w.rows_count();
  const bool train = op.logits_gradient != nullptr;
  const Size chunk = train && op.x.has_own_columns() ? tokens : std::min<Size>(tokens, 1024);
  floats(Workspace::Slot::logits, chunk * vocab);
  const Hold codes(*this, train ? chunk * vocab * 16 + 4096 : 0);
  const CodeMatrix x_rows = slice_rows(op.x.rows_matrix(), 0, chunk);
  const View logits{&nowhere, Format::f32, chunk, vocab};
  matmul({.a = {x_rows, false}, .b = op.w.rows(), .out = logits, .accumulator = op.accumulators.forward});
  if (!train) return;
  const QuantizedTensor gradient(*op.logits_gradient, chunk, vocab, Copies::both, Sharing::where_exact,
                                 [](std::size_t) { return &nowhere; });
  write(gradient);
  matmul({.a = gradient.rows(),
          .b = op.w.columns(),
          .out = op.x_gradient.row_range(0, chunk),
          .accumulator = op.accumulators.head_input_gradient});
  matmul({.a = gradient.columns(),
          .b = op.x.has_own_columns() ? op.x.columns() : Operand{x_rows, true},
          .out = op.weight_gradient,
          .accumulate = true,
          .accumulator = op.accumulators.weight_gradient});
}

}  // namespace

std::unique_ptr<SizingEngine> make_cpu_sizing(int threads) { return std::make_unique<CpuSizing>(threads); }

}  // namespace quaver
