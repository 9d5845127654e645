// The output head and the cross-entropy loss, forward and backward, a chunk of rows at a time.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "engine/cpu/cpu_engine.h"
#include "engine/cpu/gemm.h"
#include "engine/cpu/site_writer.h"
#include "engine/cpu/vector_math.h"
#include "formats/simd.h"
#include "quaver/error.h"

namespace quaver {

namespace {

QUAVER_SIMD float largest_of(const float* x, Size n) {
  float top = x[0];
#pragma omp simd reduction(max : top)
  for (Size i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

QUAVER_SIMD float sum_of_exponentials(const float* x, Size n, float top) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Size i = 0; i < n; ++i) sum += vector_exp(x[i] - top);
  return sum;
}

QUAVER_SIMD void scaled_softmax(const float* x, Size n, float log_sum, float factor, float* out) {
  for (Size i = 0; i < n; ++i) out[i] = factor * vector_exp(x[i] - log_sum);
}

struct RowLoss {
  float log_sum = 0;
  double loss = 0;
  bool correct = false;
};

RowLoss row_loss(const float* logits, Size vocab, std::int32_t target, float z_loss) {
  const float top = largest_of(logits, vocab);
  const float log_sum = top + std::log(sum_of_exponentials(logits, vocab, top));
  const double z = z_loss * static_cast<double>(log_sum) * log_sum;
  const bool correct = logits[target] == top && std::find(logits, logits + target, top) == logits + target;
  return {log_sum, static_cast<double>(log_sum) - logits[target] + z, correct};
}

// Rows of tokens whose logits exist at once.
struct Chunk {
  Size first;
  const float* logits;
  std::span<const RowLoss> losses;  // one per row
  Operand x_columns;
  std::vector<std::byte>& codes;  // memory for those of dlogits
};

// One chunk's gradients: dlogits into its site, then both GEMMs.
void chunk_backward(CpuOperations& engine, Workspace& workspace, const CrossEntropy& op, const Chunk& chunk) {
  const auto rows = static_cast<Size>(chunk.losses.size());
  const Size first = chunk.first;
  const Size vocab = op.w.rows_count();
  std::size_t used = 0;
  const auto take = [&](std::size_t bytes) {
    std::byte* place = chunk.codes.data() + used;
    used += (bytes + 63) / 64 * 64;
    return place;
  };
  QuantizedTensor gradient(*op.logits_gradient, rows, vocab, Copies::both, Sharing::where_exact, take);
  Casting casting = op.casting;
  casting.step += static_cast<std::uint32_t>(first) * 2654435761U;  // chunks must not share random words
  const float gradient_factor = op.gradient_factor * (op.gradient_scale != nullptr ? *op.gradient_scale : 1.0F);
  SiteWriter(workspace, gradient, casting).write([&](Size start, Size count, float* tile, int) {
    for (Size r = 0; r < count; ++r) {
      float* out = tile + r * vocab;
      const std::int32_t target = op.targets[static_cast<std::size_t>(first + start + r)];
      if (target < 0) {
        std::fill_n(out, vocab, 0.0F);
        continue;
      }
      const float log_sum = chunk.losses[static_cast<std::size_t>(start + r)].log_sum;
      const float factor = gradient_factor * (1 + 2 * op.z_loss * log_sum);
      scaled_softmax(chunk.logits + (start + r) * vocab, vocab, log_sum, factor, out);
      out[target] -= gradient_factor;
    }
  });
  engine.run(Gemm{.pass = GemmPass::dgrad,
                  .a = gradient.rows(),
                  .b = op.w.columns(),
                  .out = op.x_gradient.row_range(first, rows),
                  .alpha = op.input_factor,
                  .accumulator = op.accumulators.head_dgrad});
  if (op.weight_gradient.empty()) return;
  engine.run(Gemm{.pass = GemmPass::wgrad,
                  .a = gradient.columns(),
                  .b = chunk.x_columns,
                  .out = op.weight_gradient,
                  .alpha = op.weight_factor,
                  .accumulate = true,
                  .accumulator = op.accumulators.wgrad});
}

}  // namespace

void CpuOperations::run(const CrossEntropy& op) {
  const Size tokens = op.x.rows_count();
  const Size vocab = op.w.rows_count();
  const bool train = op.logits_gradient != nullptr;
  const Size chunk = logits_chunk(op);
  float* logits = workspace_.floats(Workspace::Slot::logits, chunk * vocab);
  std::vector<std::byte> codes(static_cast<std::size_t>(logits_codes_bytes(op)));
  for (Size first = 0; first < tokens; first += chunk) {
    const Size rows = std::min(chunk, tokens - first);
    const CodeMatrix x_rows = slice_rows(op.x.rows_matrix(), first, rows);
    run(Gemm{.a = {x_rows, false},
             .b = op.w.rows(),
             .out = {logits, Format::f32, rows, vocab},
             .alpha = op.logit_factor,
             .accumulator = op.accumulators.fprop});
    std::vector<RowLoss> losses(static_cast<std::size_t>(rows));
#pragma omp parallel for schedule(static)
    for (Size r = 0; r < rows; ++r) {
      const std::int32_t target = op.targets[static_cast<std::size_t>(first + r)];
      if (target < 0) continue;
      losses[static_cast<std::size_t>(r)] = row_loss(logits + r * vocab, vocab, target, op.z_loss);
    }
    for (Size r = 0; r < rows; ++r) {
      const RowLoss& row = losses[static_cast<std::size_t>(r)];
      *op.loss_sum += row.loss;
      if (op.row_losses != nullptr) op.row_losses[first + r] = row.loss;
      if (op.correct != nullptr && row.correct) ++*op.correct;
    }
    if (!train) continue;
    const Operand x_columns = op.x.has_own_columns() ? op.x.columns() : Operand{x_rows, true};
    chunk_backward(*this, workspace_, op, {first, logits, losses, x_columns, codes});
  }
}

}  // namespace quaver
