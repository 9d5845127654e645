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

// Batches of windows in order, each beginning with the last token of the one before. The last window of a row may be
// short, and the last batch may have fewer windows: what is left of them is padding that nothing is predicted from.
class Windows {
 public:
  Windows(std::span<const TokenRow> rows, Size batch, Size context)
      : rows_(rows), batch_(static_cast<std::uint64_t>(batch)), context_(static_cast<std::uint64_t>(context)) {
    for (const TokenRow& row : rows) windows_ += windows_in(row);
  }

  Size batches() const { return static_cast<Size>((windows_ + batch_ - 1) / batch_); }

  void fill(Size index, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
    std::ranges::fill(inputs, 0);
    std::ranges::fill(targets, not_predicted);
    const std::uint64_t first = static_cast<std::uint64_t>(index) * batch_;
    for (std::uint64_t i = 0; i < batch_ && first + i < windows_; ++i) {
      fill_window(first + i, inputs.subspan(i * context_, context_), targets.subspan(i * context_, context_));
    }
  }

 private:
  std::uint64_t windows_in(const TokenRow& row) const {
    return row.tokens < 2 ? 0 : (row.tokens - 1 + context_ - 1) / context_;
  }

  void fill_window(std::uint64_t window, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) {
    const TokenRow* row = rows_.data();
    for (; window >= windows_in(*row); ++row) window -= windows_in(*row);
    const std::uint64_t begin = window * context_;
    tokens_.resize(std::min(context_ + 1, row->tokens - begin));
    row->read(begin, tokens_);
    std::copy(tokens_.begin(), tokens_.end() - 1, inputs.begin());
    std::copy(tokens_.begin() + 1, tokens_.end(), targets.begin());
  }

  std::span<const TokenRow> rows_;
  std::uint64_t batch_;
  std::uint64_t context_;
  std::uint64_t windows_ = 0;
  std::vector<std::int32_t> tokens_;
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

Evaluation evaluate_rows(Trainer& trainer, std::span<const TokenRow> rows, const EvaluationOptions& options) {
  const Size batch = trainer.config().train.batch;
  const Size context = trainer.config().train.context;
  Windows windows(rows, batch, context);
  const Size batches = std::min(windows.batches(), options.batches.value_or(windows.batches()));
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(batch * context));
  std::vector<std::int32_t> targets(inputs.size());
  std::vector<std::uint64_t> token_bytes;
  Evaluation result;
  if (options.tokenizer != nullptr) {
    token_bytes = bytes_of_tokens(*options.tokenizer);
    result.bytes = 0;
  }
  std::vector<double> nats;
  for (Size i = options.ranks.rank(); i < batches; i += options.ranks.size()) {
    windows.fill(i, inputs, targets);
    nats.push_back(trainer.loss_sum(TokenBatch{inputs, targets}, i));
    for (const std::int32_t target : targets) {
      if (target == not_predicted) continue;
      ++result.tokens;
      if (result.bytes) *result.bytes += token_bytes.at(static_cast<std::size_t>(target));
    }
    if (options.progress) options.progress(i + 1, batches);
  }
  const auto total = [&](std::uint64_t mine) {
    return static_cast<std::uint64_t>(sum_of_ranks(options.ranks, static_cast<Size>(mine)));
  };
  for (const double sum : interleaved(options.ranks, std::move(nats), batches)) result.nats += sum;  // in their order
  result.tokens = total(result.tokens);
  if (result.bytes) result.bytes = total(*result.bytes);
  return result;
}

}  // namespace quaver
