#include "train/evaluation.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "train/rank_agreement.h"

namespace quaver {

namespace {

constexpr std::int32_t not_predicted = -1;

std::vector<std::uint64_t> bytes_of_tokens(const Tokenizer& tokenizer) {
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    bytes[i] = id == tokenizer.end_of_text() ? 0 : tokenizer.text_of(id).size();
  }
  for (const std::int32_t id : tokenizer.prefix()) bytes[static_cast<std::size_t>(id)] = 0;
  return bytes;
}

// A part of a row that is read at once.
struct Window {
  std::size_t row = 0;
  std::uint64_t begin = 0;   // of its inputs in the row
  std::uint64_t tokens = 0;  // that are predicted
};

// All windows in order, each beginning with the last token of the one before. The last one of a row may be short.
std::vector<Window> windows_of(std::span<const TokenRow> rows, std::uint64_t context) {
  std::vector<Window> windows;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (std::uint64_t begin = 0; begin + 1 < rows[row].tokens; begin += context) {
      windows.push_back({row, begin, std::min(context, rows[row].tokens - 1 - begin)});
    }
  }
  return windows;
}

// Windows side by side. What is left of a short one is padding that nothing is predicted from.
class WindowBatch {
 public:
  WindowBatch(std::span<const TokenRow> rows, std::span<const Window> windows, const BatchShape& most)
      : windows_(windows), shape_{most.batch, sequence_for(windows, most.sequence)} {
    const auto sequence = static_cast<std::size_t>(shape_.sequence);
    inputs_.assign(static_cast<std::size_t>(shape_.batch) * sequence, 0);
    targets_.assign(inputs_.size(), not_predicted);
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < windows.size(); ++i) {
      ids.resize(windows[i].tokens + 1);
      rows[windows[i].row].read(windows[i].begin, ids);
      const auto at = static_cast<std::ptrdiff_t>(i * sequence);
      std::copy(ids.begin(), ids.end() - 1, inputs_.begin() + at);
      std::copy(ids.begin() + 1, ids.end(), targets_.begin() + at);
    }
  }

  const BatchShape& shape() const { return shape_; }
  TokenBatch tokens() const { return {inputs_, targets_}; }

  // For each window, with those that a full batch would have: nats and bytes of the text that was predicted.
  static constexpr Size values_per_window = 2;
  std::vector<double> sums(std::span<const double> losses, std::span<const std::uint64_t> token_bytes) const {
    std::vector<double> all(static_cast<std::size_t>(shape_.batch * values_per_window));
    for (std::size_t i = 0; i < windows_.size(); ++i) {
      const std::size_t first = i * static_cast<std::size_t>(shape_.sequence);
      for (std::size_t t = first; t < first + windows_[i].tokens; ++t) {
        all[2 * i] += losses[t];
        const auto target = static_cast<std::size_t>(targets_[t]);
        if (target < token_bytes.size()) all[2 * i + 1] += static_cast<double>(token_bytes[target]);
      }
    }
    return all;
  }

 private:
  // No longer than the windows are; few lengths, because each is compiled for, measured or captured once.
  static Size sequence_for(std::span<const Window> windows, Size most) {
    std::uint64_t longest = 1;
    for (const Window& window : windows) longest = std::max(longest, window.tokens);
    constexpr Size step = 64;
    return std::min(most, (static_cast<Size>(longest) + step - 1) / step * step);
  }

  std::span<const Window> windows_;
  BatchShape shape_;
  std::vector<std::int32_t> inputs_;
  std::vector<std::int32_t> targets_;
};

}  // namespace

std::vector<TokenRow> rows_of(const TokenSource& source) {
  std::vector<TokenRow> rows;
  for (const Shard& shard : source.shards()) {
    rows.push_back({shard.tokens(),
                    [&shard, vocab = source.vocab_size()](auto first, auto out) { shard.read(first, out, vocab); }});
  }
  return rows;
}

TokenRow row_of(std::span<const std::int32_t> ids) {
  return {ids.size(), [ids](std::uint64_t first, std::span<std::int32_t> out) {
            std::ranges::copy(ids.subspan(first, out.size()), out.begin());
          }};
}

double Evaluation::perplexity() const { return std::exp(loss()); }

std::optional<double> Evaluation::bits_per_byte() const {
  if (!bytes || *bytes == 0) return std::nullopt;
  return nats / std::numbers::ln2 / static_cast<double>(*bytes);
}

std::vector<Evaluation> evaluate_rows(Trainer& trainer, std::span<const TokenRow> rows,
                                      const EvaluationOptions& options) {
  const BatchShape most{trainer.config().train.batch, trainer.config().train.context};
  const std::vector<Window> all = windows_of(rows, static_cast<std::uint64_t>(most.sequence));
  const auto in_batch = static_cast<std::size_t>(most.batch);
  const auto full = static_cast<Size>((all.size() + in_batch - 1) / in_batch);
  const Size batches = std::min(full, options.batches.value_or(full));
  const std::span windows = std::span(all).first(std::min(all.size(), static_cast<std::size_t>(batches) * in_batch));
  std::vector<std::uint64_t> token_bytes;
  if (options.tokenizer != nullptr) token_bytes = bytes_of_tokens(*options.tokenizer);
  std::vector<double> mine;
  for (Size i = options.ranks.rank(); i < batches; i += options.ranks.size()) {
    const std::size_t first = static_cast<std::size_t>(i) * in_batch;
    const WindowBatch batch(rows, windows.subspan(first, std::min(in_batch, windows.size() - first)), most);
    const std::vector<double> sums = batch.sums(trainer.row_losses(batch.tokens(), batch.shape(), i), token_bytes);
    mine.insert(mine.end(), sums.begin(), sums.end());
    if (options.progress) options.progress(i + 1, batches);
  }
  const std::vector<double> sums =
      interleaved(options.ranks, std::move(mine), batches, most.batch * WindowBatch::values_per_window);
  std::vector<Evaluation> results(rows.size());
  for (Evaluation& result : results) {
    if (options.tokenizer != nullptr) result.bytes = 0;
  }
  for (std::size_t i = 0; i < windows.size(); ++i) {  // in their order, whichever rank computed them
    Evaluation& result = results[windows[i].row];
    result.nats += sums[2 * i];
    result.tokens += windows[i].tokens;
    if (result.bytes) *result.bytes += static_cast<std::uint64_t>(sums[2 * i + 1]);
  }
  return results;
}

Evaluation total_of(std::span<const Evaluation> rows) {
  Evaluation total;
  for (const Evaluation& row : rows) {
    total.nats += row.nats;
    total.tokens += row.tokens;
    if (row.bytes) total.bytes = total.bytes.value_or(0) + *row.bytes;
  }
  return total;
}

}  // namespace quaver
