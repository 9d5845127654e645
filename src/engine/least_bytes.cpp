#include "engine/least_bytes.h"

#include <algorithm>

namespace quaver {

namespace {

template <class... Views>
Size all_of(const Views&... views) {
  return (views.bytes() + ... + 0);
}

// What a cast writes; nothing where the codes are a matrix that is counted as itself.
Size written(const QuantizedTensor& out, const View& counted = {}) {
  const bool same = out.is_own_codes() && out.rows_matrix().codes == counted.data;
  return same ? 0 : out.bytes();
}
Size written(const QuantizedTensor* out, const View& counted = {}) {
  return out == nullptr ? 0 : written(*out, counted);
}

Size bytes_of(std::span<const std::int32_t> ids) { return static_cast<Size>(ids.size_bytes()); }

Size element_bytes(const View& matrix) { return info(matrix.format).storage_bits / 8; }

Size key_value_elements(const HeadLayout& layout) { return layout.tokens() * 2 * layout.kv_heads * layout.head_size; }

}  // namespace

Size least_bytes(const CodeMatrix& matrix) {
  const Size scales = matrix.has_block_scales() ? matrix.scale_rows() * matrix.scale_cols() : 1;
  return matrix.code_bytes() + scales * static_cast<Size>(sizeof(float));
}

Size least_bytes(const FillZero& op) { return op.x.bytes(); }

Size least_bytes(const Quantize& op) {
  const Size codes = written(op.out, op.x);
  return codes == 0 ? 0 : op.x.bytes() + codes;
}

Size least_bytes(const Dequantize& op) { return least_bytes(op.from) + op.out.bytes(); }

Size least_bytes(const TransposeCodes& op) { return least_bytes(op.from) + least_bytes(op.to); }

Size least_bytes(const SumColumns& op) { return op.x.bytes() + 2 * op.sums.bytes(); }

Size least_bytes(const Gemm& op) {
  const Size out = op.accumulate ? 2 * op.out.bytes() : op.out.bytes();
  return least_bytes(op.a.matrix) + least_bytes(op.b.matrix) + op.bias.bytes() + out;
}

// A row of the table for each token; the positions of one sequence.
Size least_bytes(const Embed& op) {
  const Size positions = op.positions.empty() ? 0 : op.sequence * op.positions.cols * element_bytes(op.positions);
  const Size rows = static_cast<Size>(op.tokens.size()) * op.table.cols * element_bytes(op.table);
  return bytes_of(op.tokens) + rows + positions + op.out.bytes();
}

Size least_bytes(const EmbedBackward& op) {
  const Size positions = op.positions_gradient.empty()
                             ? 0
                             : op.sequence * op.positions_gradient.cols * element_bytes(op.positions_gradient);
  const Size rows = std::min(static_cast<Size>(op.tokens.size()), op.table_gradient.rows);
  const Size table = rows * op.table_gradient.cols * element_bytes(op.table_gradient);
  return bytes_of(op.tokens) + op.gradient.bytes() + 2 * (table + positions);
}

Size least_bytes(const AddNorm& op) {
  const Size sum = op.sum_is_residual() ? 0 : op.sum.bytes();
  return all_of(op.residual, op.branch, op.stats, op.norm.gain, op.norm.shift) + sum + written(op.out);
}

Size least_bytes(const AddNormBackward& op) {
  return all_of(op.sum, op.stats, op.out_gradient, op.next, op.norm.gain, op.norm.shift, op.gradient) +
         2 * all_of(op.gradients.gain, op.gradients.shift) + written(op.branch_gradient, op.gradient) + written(op.out);
}

Size least_bytes(const NormAdd& op) {
  return all_of(op.residual, op.branch, op.stats, op.norm.gain, op.norm.shift, op.sum) + written(op.out, op.sum);
}

Size least_bytes(const NormAddBackward& op) {
  return all_of(op.branch, op.stats, op.input_gradient, op.next, op.norm.gain, op.norm.shift, op.gradient) +
         2 * all_of(op.gradients.gain, op.gradients.shift) + written(op.branch_gradient);
}

Size least_bytes(const Combine& op) {
  return op.x.bytes() + (op.y.data == op.x.data ? 0 : op.y.bytes()) + op.out.bytes();
}

// In place the values are not touched.
Size least_bytes(const PrepareHeads& op) {
  const Size values = op.is_in_place() ? op.layout.kv_heads : 0;
  const Size width = op.layout.width() - values * op.layout.head_size;
  return 2 * op.layout.tokens() * width * element_bytes(op.in);
}

// Rotations are undone in place; norms read what they were given.
Size least_bytes(const PrepareHeadsBackward& op) {
  const Size width = op.forward.layout.width() - op.forward.layout.kv_heads * op.forward.layout.head_size;
  const Size heads = op.forward.layout.tokens() * width * element_bytes(op.gradient);
  return op.forward.query_gain.empty() ? 2 * heads : 3 * heads;
}

Size least_bytes(const Attention& op) { return all_of(op.qkv, op.result, op.log_sum); }

Size least_bytes(const AttentionBackward& op) {
  return all_of(op.qkv, op.result, op.log_sum, op.result_gradient, op.qkv_gradient);
}

Size least_bytes(const StoreKeyValues& op) { return 2 * key_value_elements(op.layout) * element_bytes(op.qkv); }

Size least_bytes(const AttentionDecode& op) {
  return 2 * op.result.bytes() + key_value_elements(op.layout) * element_bytes(op.cache.keys);
}

Size least_bytes(const Activation& op) { return op.x.bytes() + written(op.out); }

Size least_bytes(const ActivationBackward& op) {
  return all_of(op.x, op.out_gradient) + written(op.in_gradient) + written(op.out);
}

Size least_bytes(const CrossEntropy& op) {
  if (op.logits_gradient == nullptr) {
    return bytes_of(op.targets) + least_bytes(op.x.rows_matrix()) + least_bytes(op.w.rows_matrix());
  }
  return bytes_of(op.targets) + op.x.bytes() + op.w.bytes() + op.x_gradient.bytes() + 2 * op.weight_gradient.bytes();
}

Size least_bytes(const SumInOrder& op) { return op.parts.bytes() + (op.accumulate ? 2 : 1) * op.sum.bytes(); }

Size least_bytes(const MeasureGradients& op) {
  Size bytes = 0;
  for (const View& gradient : op.gradients) bytes += gradient.bytes();
  return bytes;
}

Size least_bytes(const ClipGradients& op) {
  return static_cast<Size>(op.places.size() * (sizeof(GradientMeasure) + sizeof(float) + sizeof(double)));
}

Size least_bytes(const AdamW& op) {
  return 2 * (op.weight.bytes() + least_bytes(op.moment1) + least_bytes(op.moment2_root)) + op.gradient.bytes() +
         written(op.quantized, op.weight);
}

Size least_bytes(const Orthogonalize& op) { return 2 * op.x.bytes(); }

Size least_bytes(const Muon& op) {
  return 2 * (op.weight.bytes() + least_bytes(op.momentum)) + op.gradient.bytes() + written(op.quantized, op.weight);
}

Size least_bytes(const Patches& op) { return op.x.bytes() + written(op.out); }

Size least_bytes(const PatchesBackward& op) { return all_of(op.patches_gradient, op.next, op.gradient); }

Size least_bytes(const BatchNorm& op) { return all_of(op.x, op.gain, op.shift, op.residual, op.stats, op.out); }

Size least_bytes(const BatchNormBackward& op) {
  return all_of(op.x, op.gain, op.stats, op.out, op.out_gradient, op.residual_gradient) +
         2 * all_of(op.gain_gradient, op.shift_gradient) + written(op.in_gradient);
}

Size least_bytes(const AveragePool& op) { return op.x.bytes() + written(op.out); }

Size least_bytes(const AveragePoolBackward& op) { return all_of(op.out_gradient, op.gradient); }

Size least_bytes(const MovingAverage& op) { return 2 * op.average.bytes() + op.sum.bytes(); }

}  // namespace quaver
