#include "data/synthetic.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>

#include "data/hash.h"
#include "formats/random.h"
#include "quaver/error.h"

namespace quaver {
namespace {

constexpr int likely_successors = 8;
constexpr double spread_over_all = 0.05;
constexpr double last_weight = 0.5;  // of the last token in skip_markov; the rest is the one before's

double plogp(double p) { return p > 0 ? -p * std::log(p) : 0; }

// Each row of probabilities as cumulative limits on a random word.
std::vector<std::uint32_t> sampling_limits(std::span<const double> probabilities, std::size_t row_length) {
  std::vector<std::uint32_t> limits(probabilities.size());
  for (std::size_t row = 0; row < probabilities.size(); row += row_length) {
    double sum = 0;
    for (std::size_t i = row; i < row + row_length; ++i) {
      sum += probabilities[i];
      limits[i] = static_cast<std::uint32_t>(std::clamp(sum * 0x1p32 - 1, 0.0, 0x1p32 - 1));
    }
    limits[row + row_length - 1] = std::numeric_limits<std::uint32_t>::max();
  }
  return limits;
}

std::int64_t sample(std::span<const std::uint32_t> limits, std::uint32_t word) {
  return std::lower_bound(limits.begin(), limits.end(), word) - limits.begin();
}

std::span<const std::uint32_t> row_of(const std::vector<std::uint32_t>& limits, std::int64_t row, int width) {
  return std::span(limits).subspan(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width));
}

}  // namespace

std::string_view name_of(SyntheticKind kind) { return kind == SyntheticKind::markov ? "markov" : "skip_markov"; }

SyntheticSource::SyntheticSource(const SyntheticOptions& options) : options_(options) {
  const int limit = options.kind == SyntheticKind::markov ? 1024 : 256;
  if (options.vocab_size < 2 || options.vocab_size > limit) {
    throw Error(fmt::format("a synthetic {} vocabulary of {} tokens", name_of(options.kind), options.vocab_size),
                fmt::format("choose from 2 to {}", limit));
  }
  by_last_ = draw_table("synthetic by last");
  if (options.kind == SyntheticKind::skip_markov) by_before_last_ = draw_table("synthetic by before last");
  const Table pairs = stationary_pairs();
  compute_entropies(pairs);
  const auto width = static_cast<std::size_t>(options.vocab_size);
  pair_limits_ = sampling_limits(pairs, pairs.size());
  last_limits_ = sampling_limits(by_last_, width);
  if (!by_before_last_.empty()) before_last_limits_ = sampling_limits(by_before_last_, width);
}

SyntheticSource::Table SyntheticSource::draw_table(const char* name) const {
  const auto vocab = static_cast<std::size_t>(options_.vocab_size);
  const std::size_t successors = std::min<std::size_t>(likely_successors, vocab);
  const RandomKey key{options_.seed, 0, stream_of(name)};
  double weight_sum = 0;
  for (std::size_t rank = 0; rank < successors; ++rank) weight_sum += 1.0 / static_cast<double>(rank + 1);

  Table table(vocab * vocab, spread_over_all / static_cast<double>(vocab));
  std::vector<std::size_t> tokens(vocab);
  for (std::size_t row = 0; row < vocab; ++row) {
    std::iota(tokens.begin(), tokens.end(), std::size_t{0});
    for (std::size_t rank = 0; rank < successors; ++rank) {  // the start of a Fisher–Yates shuffle
      const std::uint32_t word = random_word(key, row * likely_successors + rank);
      std::swap(tokens[rank], tokens[rank + word % (vocab - rank)]);
      const double share = 1.0 / static_cast<double>(rank + 1) / weight_sum;
      table[row * vocab + tokens[rank]] += (1 - spread_over_all) * share;
    }
  }
  return table;
}

double SyntheticSource::next_probability(std::int64_t before_last, std::int64_t last, std::int64_t next) const {
  const std::int64_t vocab = options_.vocab_size;
  const double from_last = by_last_[static_cast<std::size_t>(last * vocab + next)];
  if (by_before_last_.empty()) return from_last;
  return last_weight * from_last +
         (1 - last_weight) * by_before_last_[static_cast<std::size_t>(before_last * vocab + next)];
}

// Power iteration on the distribution of neighboring pairs. As every transition has some probability it converges
// from anywhere, and to rounding in some tens of steps.
SyntheticSource::Table SyntheticSource::stationary_pairs() const {
  const auto vocab = static_cast<std::size_t>(options_.vocab_size);
  Table pairs(vocab * vocab, 1.0 / static_cast<double>(vocab * vocab));
  Table next(pairs.size());
  const double weight = by_before_last_.empty() ? 1 : last_weight;
  double change = 1;
  for (int step = 0; step < 2000 && change > 1e-14; ++step) {
    std::fill(next.begin(), next.end(), 0.0);
    for (std::size_t b = 0; b < vocab; ++b) {
      double total = 0;
      for (std::size_t a = 0; a < vocab; ++a) total += pairs[a * vocab + b];
      for (std::size_t c = 0; c < vocab; ++c) next[b * vocab + c] += weight * total * by_last_[b * vocab + c];
      for (std::size_t a = 0; a < vocab && !by_before_last_.empty(); ++a) {
        const double share = (1 - weight) * pairs[a * vocab + b];
        for (std::size_t c = 0; c < vocab; ++c) next[b * vocab + c] += share * by_before_last_[a * vocab + c];
      }
    }
    change = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) change += std::abs(next[i] - pairs[i]);
    std::swap(pairs, next);
  }
  return pairs;
}

void SyntheticSource::compute_entropies(const Table& pairs) {
  const std::int64_t vocab = options_.vocab_size;
  const auto pair = [&](std::int64_t a, std::int64_t b) { return pairs[static_cast<std::size_t>(a * vocab + b)]; };
  double joint = 0;
  double marginal = 0;
  for (std::int64_t a = 0; a < vocab; ++a) {
    double total = 0;
    for (std::int64_t b = 0; b < vocab; ++b) {
      joint += plogp(pair(a, b));
      total += pair(a, b);
    }
    marginal += plogp(total);
  }
  first_entropy_ = joint - marginal;  // H(x1 | x0) = H(x0, x1) − H(x0)
  entropy_ = first_entropy_;
  if (by_before_last_.empty()) return;
  entropy_ = 0;
  for (std::int64_t a = 0; a < vocab; ++a) {
    for (std::int64_t b = 0; b < vocab; ++b) {
      double row = 0;
      for (std::int64_t c = 0; c < vocab; ++c) row += plogp(next_probability(a, b, c));
      entropy_ += pair(a, b) * row;
    }
  }
}

double SyntheticSource::best_loss(std::int64_t context) const {
  if (context <= 0) throw Error(fmt::format("a context of {} tokens", context), "use a context of at least 1");
  return entropy_ + (first_entropy_ - entropy_) / static_cast<double>(context);
}

double SyntheticSource::probability(std::span<const std::int32_t> history, std::int32_t next) const {
  const std::size_t needed = by_before_last_.empty() ? 1 : 2;
  const auto known = [&](std::int32_t id) { return id >= 0 && id < options_.vocab_size; };
  if (history.size() < needed || !known(next) || !std::all_of(history.begin(), history.end(), known)) {
    throw Error(fmt::format("a history of {} tokens does not predict token {}", history.size(), next),
                fmt::format("give {} tokens or more, all within the vocabulary", needed));
  }
  return next_probability(history[history.size() - needed], history.back(), next);
}

void SyntheticSource::generate(std::uint64_t example, std::span<std::int32_t> out) const {
  // Two words per token whatever the kind, in whole blocks of the generator: rows never share random bits.
  const std::uint64_t stride = (2 * out.size() + 3) / 4 * 4;
  const RandomKey key{options_.seed, 0, stream_of("synthetic text") + options_.stream};
  std::vector<std::uint32_t> words(stride);
  random_words(key, example * stride, words.data(), static_cast<std::int64_t>(stride));

  const int vocab = options_.vocab_size;
  const std::int64_t first_pair = sample(pair_limits_, words[0]);
  std::int64_t before_last = first_pair / vocab;
  std::int64_t last = first_pair % vocab;
  out[0] = static_cast<std::int32_t>(before_last);
  out[1] = static_cast<std::int32_t>(last);
  const auto choose_last_below = static_cast<std::uint32_t>(last_weight * 0x1p32);
  for (std::size_t t = 2; t < out.size(); ++t) {
    const bool use_last = by_before_last_.empty() || words[2 * t] < choose_last_below;
    const std::span<const std::uint32_t> limits =
        use_last ? row_of(last_limits_, last, vocab) : row_of(before_last_limits_, before_last, vocab);
    before_last = last;
    last = sample(limits, words[2 * t + 1]);
    out[t] = static_cast<std::int32_t>(last);
  }
}

void SyntheticSource::fill(std::uint64_t batch_index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
                           std::int32_t* targets) const {
  if (context <= 0) throw Error(fmt::format("a context of {} tokens", context), "use a context of at least 1");
  std::vector<std::int32_t> row_tokens(static_cast<std::size_t>(context) + 1);
  for (std::int64_t row = 0; row < batch; ++row) {
    generate(batch_index * static_cast<std::uint64_t>(batch) + static_cast<std::uint64_t>(row), row_tokens);
    std::copy(row_tokens.begin(), row_tokens.end() - 1, inputs + row * context);
    std::copy(row_tokens.begin() + 1, row_tokens.end(), targets + row * context);
  }
}

std::string SyntheticSource::describe() const {
  return fmt::format("synthetic {}, vocabulary {}, seed {}, stream {}, entropy {:.4f} nats a token",
                     name_of(options_.kind), options_.vocab_size, options_.seed, options_.stream, entropy_);
}

std::uint64_t SyntheticSource::content_hash() const {
  Fnv64 hash;
  hash.add(name_of(options_.kind));
  hash.add(static_cast<std::uint64_t>(options_.vocab_size));
  hash.add(options_.seed);
  hash.add(std::uint64_t{options_.stream});
  return hash.value();
}

}  // namespace quaver
