// The workspace of the CUDA engine's operations, slot by slot, from the same sizes and rules that the engine uses
// (cuda/workspace_sizes.h, cuda/attention/attention_sizes.h, cuda/fusion.h, tensor_cores.h). Slots of a few kilobytes
// are left out.
#include "engine/cuda/attention/attention_sizes.h"
#include "engine/cuda/convolution/patch_codes.h"
#include "engine/cuda/gemm/gemm_shapes.h"
#include "engine/cuda/workspace_sizes.h"
#include "engine/cuda_module.h"
#include "engine/gemm_cache_file.h"
#include "engine/sizing_engine.h"

namespace quaver {

namespace {

using cuda::Slot;

class CudaSizing final : public SizesEach<CudaSizing> {
 public:
  CudaSizing(int architecture, Format high)
      : SizesEach({.kind = HardwareKind::gpu, .architecture = architecture}, high, Sharing::apart),
        architecture_(architecture) {
    take(Slot::blas, static_cast<Size>(gemm_workspace_limit));
  }

  Accumulators accumulators() const override { return gpu_accumulators(); }

  void workspace(const Quantize& op) {
    if (op.out.is_own_codes()) return;
    const bool fp8 = is_low_precision(op.out.site().spec.rows.format);
    if (fuses(op.out, op.casting) && (fp8 || op.x.format == high_precision())) return;
    cast(op.out, op.casting);
  }

  void workspace(const Gemm& op) {
    for (const cuda::GemmPart& part : cuda::gemm_parts(architecture_, op)) part_workspace(part.op);
  }
  void workspace(const EmbedBackward& op) {
    if (op.table_gradient.empty()) return;
    const auto tokens = static_cast<Size>(op.tokens.size());
    take(Slot::sorting, cuda::sorting_bytes(tokens));
    take(Slot::sums, cuda::embedding_sums_bytes(tokens, op.gradient.cols));
  }
  void workspace(const AttentionBackward& op) {
    const bool packed = !op.document_starts.empty();  // on kernels that need no more
    take(Slot::large, packed ? cuda::row_dots_bytes(op.layout)
                             : cuda::attention_backward_bytes(op.layout, high_precision(), architecture_));
  }
  void workspace(const AttentionDecode& op) {
    take(Slot::large, cuda::attention_decode_bytes(op.layout, op.cache.capacity));
  }
  void workspace(const CrossEntropy& op);

  void workspace(const AddNorm& op) { write(op.out, op.casting); }
  void workspace(const AddNormBackward& op) {
    if (op.branch_gradient != nullptr && !fuses(*op.branch_gradient, op.casting)) cast(*op.branch_gradient, op.casting);
    if (op.out != nullptr) write(*op.out, op.casting.unobserved());
  }
  void workspace(const NormAdd& op) {
    stage(op.branch.rows, op.branch.cols);
    if (op.out != nullptr) workspace(Quantize{op.sum, *op.out, op.casting});
  }
  void workspace(const NormAddBackward& op) {
    stage(op.branch.rows, op.branch.cols);
    cast(op.branch_gradient, op.casting);
  }
  void workspace(const Activation& op) { write(op.out, op.casting); }
  void workspace(const ActivationBackward& op) {
    write(op.in_gradient, op.casting);
    if (op.out != nullptr) write(*op.out, op.casting.unobserved());
  }
  void workspace(const Patches& op) {
    write(op.out, op.casting);
    if (cuda::patches_are_codes(op)) take(Slot::large, cuda::pixel_codes_bytes(op.window));
  }
  void workspace(const AveragePool& op) { write(op.out, op.casting); }
  void workspace(const BatchNorm& op) { take(Slot::sums, cuda::batch_norm_bytes(op.x.rows, op.x.cols)); }
  void workspace(const BatchNormBackward& op) {
    take(Slot::sums, cuda::batch_norm_bytes(op.x.rows, op.x.cols));
    write(op.in_gradient, op.casting);
  }
  void workspace(const AdamW& op) {
    if (op.quantized != nullptr) workspace(Quantize{op.weight, *op.quantized, *op.casting});
  }
  void workspace(const Orthogonalize& op) {
    take(Slot::operand_a, 2 * op.x.count());
    take(Slot::operand_b, 2 * cuda::gram_bytes(op));
  }
  void workspace(const Muon& op) {
    const View update{&nowhere, Format::f32, op.weight.rows, op.weight.cols};
    take(Slot::large, update.bytes());
    for_each_projection(op, update, [this](const Orthogonalize& part) { workspace(part); });
    if (op.quantized != nullptr) workspace(Quantize{op.weight, *op.quantized, *op.casting});
  }

 private:
  void part_workspace(const Gemm& op);
  void take(Slot slot, Size bytes) { device().take(static_cast<std::size_t>(slot), bytes); }

  bool fuses(const QuantizedTensor& out, const Casting& casting) const {
    return cuda::can_fuse(out, casting, high_precision());
  }

  Size high_precision_bytes(Size count) const { return count * info(high_precision()).storage_bits / 8; }
  void stage(Size rows, Size cols) { take(Slot::large, high_precision_bytes(rows * cols)); }

  void write(const QuantizedTensor& out, const Casting& casting) {
    if (fuses(out, casting)) return;
    stage(out.rows_count(), out.cols_count());
    cast(out, casting);
  }

  void cast(const QuantizedTensor& out, const Casting& casting) {
    const Size rows = out.rows_count();
    const Size cols = out.cols_count();
    take(Slot::scales, cuda::amax_bytes(rows, cols));
    if (!out.column_sums.empty()) take(Slot::sums, cuda::column_sums_bytes(rows, cols));
    if (casting.detail == Detail::full) take(Slot::statistics, cuda::moments_bytes * cuda::cast_tile_count(rows, cols));
  }

  int architecture_;
};

void CudaSizing::part_workspace(const Gemm& op) {
  const QuantSpec& a = op.a.matrix.spec;
  const QuantSpec& b = op.b.matrix.spec;
  require_cast_on_gpu(a.format);
  require_cast_on_gpu(b.format);
  const bool high = a.format == b.format && !is_low_precision(a.format);
  const bool native = why_not_native(architecture_, "", a, b).empty() && cuda::sizes_fit_fp8(architecture_, op) &&
                      library_has_scaling(architecture_, scaling_of(a));
  Format operand = a.format;
  if (!high && !native) {
    operand = decoded_format(a, b);
    take(Slot::operand_a, cuda::decoded_bytes(op.a.matrix, operand));
    take(Slot::operand_b, cuda::decoded_bytes(op.b.matrix, operand));
  }
  using Scales = cuda::GemmWorkspace::Scales;
  take(Slot::gemm, cuda::GemmWorkspace(op, operand, native ? Scales::operands : Scales::none).total);
  constexpr auto multiprocessors = static_cast<int>(cuda::hopper_multiprocessors);
  if (!cuda::block_gemm_supports(architecture_, op)) return;
  const bool own = cuda::block_gemm_is_faster(cuda::block_gemm_shape(op), op.out.format, multiprocessors);
  if (own) take(Slot::gemm, cuda::block_gemm_workspace(op, multiprocessors));
}

void CudaSizing::workspace(const CrossEntropy& op) {
  const Size tokens = op.x.rows_count();
  const Size vocab = op.w.rows_count();
  if (vocab == 0) return;  // the head has no memory yet: only the arena is being planned
  const Size chunk = cuda::logits_chunk(tokens, vocab, high_precision(), op.logits_gradient, default_logits_limit);
  const Size stride = cuda::logits_stride(vocab);
  take(Slot::large, high_precision_bytes(chunk * stride));
  const CodeMatrix x_rows = slice_rows(op.x.rows_matrix(), 0, chunk);
  const View logits{&nowhere, high_precision(), chunk, vocab, stride};
  workspace(Gemm{.a = {x_rows, false}, .b = op.w.rows(), .out = logits});
  if (op.logits_gradient == nullptr) return;
  Site& site = *op.logits_gradient;
  QuantizedTensor gradient(site, logits, nullptr);
  if (cuda::logits_are_cast(site.spec, logits.format)) {
    take(Slot::logits_codes, cuda::logits_codes_bytes(site, chunk, vocab, sharing()));
    gradient = QuantizedTensor(site, chunk, vocab, Copies::both, sharing(), [](std::size_t) { return &nowhere; });
    cast(gradient, op.casting);
  }
  workspace(Gemm{.a = gradient.rows(), .b = op.w.columns(), .out = op.x_gradient.row_range(0, chunk)});
  if (op.weight_gradient.empty()) return;
  Operand x_columns{x_rows, true};
  if (op.x.has_own_columns()) {
    x_columns = {cuda::columns_shape(op.x.columns_matrix(), chunk), false};
    if (chunk < tokens) take(Slot::columns, cuda::columns_bytes(x_columns.matrix));
  }
  workspace(Gemm{.a = gradient.columns(), .b = x_columns, .out = op.weight_gradient, .accumulate = true});
}

}  // namespace

std::unique_ptr<SizingEngine> make_cuda_sizing(int architecture, Format high) {
  return std::make_unique<CudaSizing>(architecture, high);
}

}  // namespace quaver
