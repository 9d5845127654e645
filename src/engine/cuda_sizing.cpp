// What the CUDA engine's operations take for themselves, slot by slot as they ask for it (cuda/gpu.h), by the rules it
// decides with (gpu_rules.h). Slots of a few kilobytes are left out.
#include "engine/cuda_module.h"
#include "engine/gpu_rules.h"
#include "engine/sizing_engine.h"

namespace quaver {

namespace {

Size ceil_div(Size a, Size b) { return (a + b - 1) / b; }

class CudaSizing final : public SizingEngine {
 public:
  CudaSizing(int architecture, Format wide) : SizingEngine(wide, Sharing::apart), architecture_(architecture) {
    constexpr Size blas_bytes = Size{64} << 20;
    keep(blas, blas_bytes);
  }

  Hardware hardware() const override { return {.kind = HardwareKind::gpu, .architecture = architecture_}; }
  Accumulators accumulators() const override { return cuda::gpu_accumulators(); }

  void quantize(View x, QuantizedTensor& out, const Casting& casting, float) override {
    if (out.is_own_codes()) return;
    const bool fp8 = is_low_precision(out.site().spec.rows.format);
    if (cuda::can_fuse(out, casting, wide_format()) && (fp8 || x.format == wide_format())) return;
    cast(out, casting);
  }

  void matmul(const Matmul& op) override;
  void embed_backward(const EmbedBackward& op) override;
  void attention_backward(const AttentionBackward& op) override;
  void attention(const Attention&) override {}
  void cross_entropy(const CrossEntropy& op) override;

  void add_norm(const AddNorm& op) override { write(op.out, op.casting); }
  void add_norm_backward(const AddNormBackward& op) override {
    if (op.branch_gradient != nullptr && !cuda::can_fuse(*op.branch_gradient, op.casting, wide_format())) {
      cast(*op.branch_gradient, op.casting);
    }
    if (op.out != nullptr) write(*op.out, op.casting.unobserved());
  }
  void norm_add(const NormAdd& op) override {
    stage(op.branch.rows, op.branch.cols);
    if (op.out != nullptr) quantize(op.sum, *op.out, op.casting, 1);
  }
  void norm_add_backward(const NormAddBackward& op) override {
    stage(op.branch.rows, op.branch.cols);
    cast(op.branch_gradient, op.casting);
  }
  void activation(const Activation& op) override { write(op.out, op.casting); }
  void activation_backward(const ActivationBackward& op) override {
    write(op.in_gradient, op.casting);
    if (op.out != nullptr) write(*op.out, op.casting.unobserved());
  }
  void adamw(const AdamW& op) override {
    if (op.quantized != nullptr) quantize(op.weight, *op.quantized, *op.casting, 1);
  }

 private:
  enum Slot : std::size_t {
    blas,
    operand_a,
    operand_b,
    product,
    large,
    scales,
    statistics,
    sums,
    logits_codes,
    columns,
    sorting
  };

  Size wide_bytes(Size count) const { return count * info(wide_format()).storage_bits / 8; }
  void stage(Size rows, Size cols) { keep(large, wide_bytes(rows * cols)); }

  void write(const QuantizedTensor& out, const Casting& casting) {
    if (cuda::can_fuse(out, casting, wide_format())) return;
    stage(out.rows_count(), out.cols_count());
    cast(out, casting);
  }

  void cast(const QuantizedTensor& out, const Casting& casting) {
    constexpr Size tile = 128;
    const Size rows = out.rows_count();
    const Size cols = out.cols_count();
    keep(scales, 4 * (64 + rows + cols));
    if (!out.column_sums.empty()) keep(sums, 4 * ceil_div(rows, tile) * cols);
    if (casting.detail == Detail::full) keep(statistics, 32 * ceil_div(rows, tile) * ceil_div(cols, tile));
  }

  // The values of an operand that the library cannot take as it lies.
  void decode(Slot slot, const CodeMatrix& matrix, Format as) {
    const Format format = matrix.spec.format;
    const bool as_it_is = format == as || (format == Format::tf32 && as == Format::f32);
    if (!as_it_is) keep(slot, matrix.rows * matrix.cols * info(as).storage_bits / 8);
  }

  int architecture_;
};

void CudaSizing::matmul(const Matmul& op) {
  const QuantSpec& a = op.a.matrix.spec;
  const QuantSpec& b = op.b.matrix.spec;
  Format operand = a.format;
  const bool wide_pair = a.format == b.format && !is_low_precision(a.format);
  const bool native = cuda::why_not_native(architecture_, "", a, b).empty() && cuda::extents_fit_fp8(op) &&
                      cuda::library_has_scaling(architecture_, cuda::scaling_of(a));
  if (!wide_pair && !native) {
    operand = cuda::decoded_format(a, b);
    decode(operand_a, op.a.matrix, operand);
    decode(operand_b, op.b.matrix, operand);
  }
  const bool float_result = operand == Format::f32 || operand == Format::tf32 || operand == Format::f16;
  Size bytes = 4 * (op.a.matrix.scale_rows() * (op.a.matrix.scale_cols() + 3) +
                    op.b.matrix.scale_rows() * (op.b.matrix.scale_cols() + 3));
  if (float_result && op.out.format == Format::bf16) bytes += 4 * op.out.count();
  keep(product, bytes);
}

void CudaSizing::embed_backward(const EmbedBackward& op) {
  constexpr Size tile = 32;
  const auto count = static_cast<Size>(op.tokens.size());
  keep(sorting, Size{6} * 4 * count);  // three arrays, and about as much for the sort itself
  keep(sums, Size{4} * 2 * ceil_div(count, tile) * op.gradient.cols);
}

// cuDNN's ordered pass keeps the scores of a chunk of sequences, beside a sum for each row; our own kernels need the
// sums alone, Hopper's a little more.
void CudaSizing::attention_backward(const AttentionBackward& op) {
  if (wide_format() == Format::bf16 && cuda::hopper_attention_takes(architecture_, op.layout) &&
      cuda::hopper_attention_pays(op.layout)) {
    keep(large, cuda::HopperAttentionMemory(op.layout, cuda::hopper_multiprocessors).total());
    return;
  }
  HeadLayout part = op.layout;
  constexpr Size most_scores = Size{2} << 30;
  const bool library = wide_format() == Format::bf16 && part.head_size % 8 == 0 && part.head_size <= 256 &&
                       cuda::scores_of_sequence(part) <= most_scores;
  if (library) part.batch = cuda::attention_chunk(op.layout);
  const Size rows = 4 * part.tokens() * part.heads;
  keep(large, rows + (library ? part.batch * cuda::scores_of_sequence(part) : 0));
}

void CudaSizing::cross_entropy(const CrossEntropy& op) {
  const Size tokens = op.x.rows_count();
  const Size vocab = op.w.rows_count();
  if (vocab == 0) return;  // the head has no memory yet: only the arena is being planned
  const bool train = op.logits_gradient != nullptr;
  const Size chunk = cuda::logits_chunk(tokens, vocab, wide_format(), op.logits_gradient, default_logits_limit);
  keep(large, wide_bytes(chunk * vocab));
  const CodeMatrix x_rows = slice_rows(op.x.rows_matrix(), 0, chunk);
  const View logits{&nowhere, wide_format(), chunk, vocab};
  matmul({.a = {x_rows, false}, .b = op.w.rows(), .out = logits});
  if (!train) return;
  Site& site = *op.logits_gradient;
  QuantizedTensor gradient(site, logits, nullptr);
  if (cuda::logits_are_cast(site.spec, logits.format)) {
    keep(logits_codes, cuda::logits_codes_bytes(site, chunk, vocab, sharing()));
    gradient = QuantizedTensor(site, chunk, vocab, Copies::both, sharing(), [](std::size_t) { return &nowhere; });
    cast(gradient, op.casting);
  }
  matmul({.a = gradient.rows(), .b = op.w.columns(), .out = op.x_gradient.row_range(0, chunk)});
  Operand x_columns{x_rows, true};
  if (op.x.has_own_columns()) {
    x_columns = {cuda::columns_shape(op.x.columns_matrix(), chunk), false};
    if (chunk < tokens) keep(columns, cuda::columns_bytes(x_columns.matrix));
  }
  matmul({.a = gradient.columns(), .b = x_columns, .out = op.weight_gradient, .accumulate = true});
}

}  // namespace

std::unique_ptr<SizingEngine> make_cuda_sizing(int architecture, Format wide) {
  return std::make_unique<CudaSizing>(architecture, wide);
}

}  // namespace quaver
