// The loss of a trained model on text, every token predicted once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "data/loader.h"
#include "data/tokenizer.h"
#include "train/trainer.h"

namespace quaver {

// Tokens in a row: all but the first are predicted, each from up to a context of those before it.
struct TokenRow {
  std::uint64_t tokens = 0;
  std::function<void(std::uint64_t first, std::span<std::int32_t> out)> read;
};
std::vector<TokenRow> rows_of(const TokenSource& source);  // one per shard; none of endless text
TokenRow row_of(std::span<const std::int32_t> ids);        // which must outlive it

struct Evaluation {
  double nats = 0;                     // of all tokens predicted
  std::uint64_t tokens = 0;            // that were predicted
  std::optional<std::uint64_t> bytes;  // of text in those tokens; an end-of-text has none

  double loss() const { return nats / static_cast<double>(tokens); }
  double perplexity() const;
  std::optional<double> bits_per_byte() const;
};

struct EvaluationOptions {
  std::optional<Size> batches = {};      // at most
  const Tokenizer* tokenizer = nullptr;  // to count bytes with; null: they are not known
  std::function<void(Size done, Size total)> progress = {};
  Communicator& ranks = single_process();  // which divide the batches, each with a trainer by itself
};

// Of each row by itself. Nothing about the run changes. The same on every rank.
std::vector<Evaluation> evaluate_rows(Trainer& trainer, std::span<const TokenRow> rows,
                                      const EvaluationOptions& options);

Evaluation total_of(std::span<const Evaluation> rows);

}  // namespace quaver
