// The workspace of the CPU engine's operations, slot by slot (workspace.h), from the same sizes that the operations use
// (workspace_sizes.h).
#include <omp.h>

#include "engine/cpu/gemm.h"
#include "engine/cpu/site_writer.h"
#include "engine/sizing_engine.h"

namespace quaver {

namespace {

class CpuSizing final : public SizesEach<CpuSizing> {
 public:
  explicit CpuSizing(int threads)
      : SizesEach({.kind = HardwareKind::cpu, .threads = threads > 0 ? threads : omp_get_max_threads()}, Format::f32,
                  Sharing::where_exact),
        threads_(device().hardware().threads) {}

  void workspace(const Quantize& op) {
    if (!op.out.is_own_codes()) write(op.out);
  }

  void workspace(const Gemm& op) {
    floats(Slot::operand_a, decoded_floats(op.a.matrix));
    floats(Slot::operand_b,
           multiplies_rows_apart(op) ? decoded_tile_floats(op) * threads_ : decoded_floats(op.b.matrix));
    if (accumulator_of(op) != Accumulator::fp32) device().take_transient(4 * emulated_gemm_floats(op));
  }

  void workspace(const AddNorm& op) { write(op.out); }
  void workspace(const AddNormBackward& op) {
    if (op.branch_gradient != nullptr) write(*op.branch_gradient);
    if (op.out != nullptr) write(*op.out);
  }
  void workspace(const NormAdd& op) {
    if (op.out == nullptr) return floats(Slot::tiles, op.residual.cols * threads_);
    write(*op.out);
  }
  void workspace(const NormAddBackward& op) { write(op.branch_gradient); }
  void workspace(const Activation& op) { write(op.out); }
  void workspace(const ActivationBackward& op) {
    write(op.in_gradient);
    if (op.out != nullptr) write(*op.out);
  }

  void workspace(const Attention& op) { floats(Slot::heads, attention_block_floats(op.layout) * threads_); }
  void workspace(const AttentionBackward& op) { floats(Slot::heads, 2 * attention_block_floats(op.layout) * threads_); }

  void workspace(const AttentionDecode& op) { floats(Slot::heads, op.cache.capacity * threads_); }

  void workspace(const PrepareHeads& op) { device().take_transient(4 * rotary_table_floats(op)); }
  void workspace(const PrepareHeadsBackward& op) { workspace(op.forward); }

  void workspace(const CrossEntropy& op);

  void workspace(const Patches& op) { write(op.out); }
  void workspace(const BatchNormBackward& op) { write(op.in_gradient); }
  void workspace(const AveragePool& op) { write(op.out); }

  void workspace(const AdamW& op) {
    floats(Slot::tiles, adamw_tiles * update_tile_floats(op.weight) * threads_);
    if (op.quantized != nullptr) workspace(Quantize{op.weight, *op.quantized, *op.casting});
  }
  void workspace(const Orthogonalize& op) {
    floats(Slot::operand_a, op.x.count());
    floats(Slot::operand_b, gram_floats(op));
  }
  void workspace(const Muon& op) {
    floats(Slot::staging, op.weight.count());
    floats(Slot::tiles, muon_tiles * update_tile_floats(op.weight) * threads_);
    const View update{&nowhere, Format::f32, op.weight.rows, op.weight.cols};
    for_each_projection(op, update, [this](const Orthogonalize& part) { workspace(part); });
    if (op.quantized != nullptr) workspace(Quantize{op.weight, *op.quantized, *op.casting});
  }

 private:
  using Slot = Workspace::Slot;

  void floats(Slot slot, Size count) { device().take(static_cast<std::size_t>(slot), 4 * count); }

  void write(const QuantizedTensor& out) {
    const SiteWritePlan plan(out, threads_);
    floats(slot_of(plan.mode), plan.floats);
    floats(Slot::reductions, plan.sums_floats);
  }

  int threads_;
};

void CpuSizing::workspace(const CrossEntropy& op) {
  const Size vocab = op.w.rows_count();
  const Size chunk = logits_chunk(op);
  floats(Slot::logits, chunk * vocab);
  const SizingDevice::Hold codes(device(), logits_codes_bytes(op));
  const CodeMatrix x_rows = slice_rows(op.x.rows_matrix(), 0, chunk);
  const View logits{&nowhere, Format::f32, chunk, vocab};
  workspace(Gemm{.a = {x_rows, false}, .b = op.w.rows(), .out = logits, .accumulator = op.accumulators.fprop});
  if (op.logits_gradient == nullptr) return;
  const QuantizedTensor gradient(*op.logits_gradient, chunk, vocab, Copies::both, Sharing::where_exact,
                                 [](std::size_t) { return &nowhere; });
  write(gradient);
  workspace(Gemm{.a = gradient.rows(),
                 .b = op.w.columns(),
                 .out = op.x_gradient.row_range(0, chunk),
                 .accumulator = op.accumulators.head_dgrad});
  if (op.weight_gradient.empty()) return;
  workspace(Gemm{.a = gradient.columns(),
                 .b = op.x.has_own_columns() ? op.x.columns() : Operand{x_rows, true},
                 .out = op.weight_gradient,
                 .accumulate = true,
                 .accumulator = op.accumulators.wgrad});
}

}  // namespace

std::unique_ptr<SizingEngine> make_cpu_sizing(int threads) { return std::make_unique<CpuSizing>(threads); }

}  // namespace quaver
