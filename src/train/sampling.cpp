#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/random.h"

namespace quaver {

namespace {

std::int32_t likeliest(const std::vector<float>& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The logit below which a token is out of the running.
float cut_off(const std::vector<float>& logits, int top_k) {
  if (top_k <= 0 || static_cast<std::size_t>(top_k) >= logits.size()) return -INFINITY;
  std::vector<float> sorted = logits;
  std::nth_element(sorted.begin(), sorted.begin() + (top_k - 1), sorted.end(), std::greater<>());
  return sorted[static_cast<std::size_t>(top_k - 1)];
}

}  // namespace

std::int32_t draw_token(const std::vector<float>& logits, const SampleOptions& options, double uniform) {
  if (options.temperature <= 0) return likeliest(logits);
  const float top = logits[static_cast<std::size_t>(likeliest(logits))];
  const float least = cut_off(logits, options.top_k);
  std::vector<double> weights(logits.size(), 0.0);
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= least) weights[i] = std::exp((logits[i] - top) / options.temperature);
    total += weights[i];
  }
  double left = uniform * total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<std::int32_t>(i);
  }
  return likeliest(logits);
}

std::string sample_text(Trainer& trainer, const Tokenizer& tokenizer, const SampleOptions& options) {
  std::vector<std::int32_t> tokens(tokenizer.prefix().begin(), tokenizer.prefix().end());
  if (tokens.empty() && options.prompt.empty()) tokens.push_back(tokenizer.end_of_text());
  const std::size_t shown_from = tokens.size();
  tokenizer.encode(options.prompt, SpecialTokens::parsed, tokens);
  for (Size i = 0; i < options.tokens; ++i) {
    std::vector<float> logits = trainer.next_token_logits(tokens);
    logits.resize(static_cast<std::size_t>(tokenizer.vocab_size()));  // padding rows of the head are not tokens
    const std::uint32_t word = random_word({options.seed, 0, stream_of("sample")}, static_cast<std::uint64_t>(i));
    const std::int32_t token = draw_token(logits, options, static_cast<double>(word) / 4294967296.0);
    if (token == tokenizer.end_of_text()) break;
    tokens.push_back(token);
  }
  return tokenizer.decode(std::span(tokens).subspan(shown_from));
}

}  // namespace quaver
