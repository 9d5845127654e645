// Endless text whose best possible loss is known exactly: a random Markov chain with its entropy in closed form. A
// training run on it has a floor to reach, so that what a number format costs can be read off in nats.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/loader.h"

namespace quaver {

enum class SyntheticKind : std::uint8_t {
  markov,       // the next token depends on the last one
  skip_markov,  // half on the last one, half on the one before it: attention has something to find
};
std::string_view name_of(SyntheticKind kind);

struct SyntheticOptions {
  SyntheticKind kind = SyntheticKind::markov;
  int vocab_size = 64;       // 2 to 1024; to 256 for skip_markov, whose states are pairs
  std::uint64_t seed = 0;    // of the chain and of the text
  std::uint32_t stream = 0;  // which text of the same chain: 0 to train on, 1 to validate with
};

// Every token has eight likely successors with probabilities as 1, 1/2, …, 1/8 (fewer in a smaller vocabulary), and a
// twentieth of the probability is spread over all tokens. Every row starts from the stationary distribution.
class SyntheticSource final : public TokenSource {
 public:
  explicit SyntheticSource(const SyntheticOptions& options);

  void fill(std::uint64_t batch_index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
            std::int32_t* targets) const override;
  int vocab_size() const override { return options_.vocab_size; }
  std::uint64_t tokens() const override { return 0; }
  std::uint64_t windows(std::int64_t) const override { return 0; }
  std::string describe() const override;
  std::uint64_t content_hash() const override;

  // Nats per token given the whole past: what the loss approaches from above as the context grows.
  double entropy() const { return entropy_; }

  // The loss of a perfect model over windows of this context. Above entropy() only in that the first token of a row
  // does not show what came before it.
  double best_loss(std::int64_t context) const;

  // The true probability of `next` after a history of at least one token (two for skip_markov).
  double probability(std::span<const std::int32_t> history, std::int32_t next) const;

 private:
  using Table = std::vector<double>;  // [vocab, vocab], rows sum to 1

  Table draw_table(const char* name) const;
  Table stationary_pairs() const;  // of (token, next token)
  double next_probability(std::int64_t before_last, std::int64_t last, std::int64_t next) const;
  void compute_entropies(const Table& pairs);
  void generate(std::uint64_t example, std::span<std::int32_t> out) const;

  SyntheticOptions options_;
  Table by_last_;
  Table by_before_last_;  // empty for markov
  double entropy_ = 0;
  double first_entropy_ = 0;  // of the second token of a row given only the first

  // For sampling: the largest 32-bit word that still gives the token, row by row.
  std::vector<std::uint32_t> pair_limits_;
  std::vector<std::uint32_t> last_limits_;
  std::vector<std::uint32_t> before_last_limits_;
};

}  // namespace quaver
