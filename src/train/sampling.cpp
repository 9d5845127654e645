#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "formats/random.h"
#include "train/decoder.h"
#include "train/text_stream.h"

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

// Zeroes all but the largest weights that make up this share of the total, and returns what they make up.
double keep_share(std::vector<double>& weights, double total, double share) {
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  double kept = 0;
  for (const std::size_t i : order) {
    if (kept >= share * total) {
      weights[i] = 0;
    } else {
      kept += weights[i];
    }
  }
  return kept;
}

// A text while it grows.
struct Growing {
  Growing(const Tokenizer& tokenizer, const SampleOptions& wanted, std::size_t place)
      : Growing(tokenizer, wanted, place, opening_of(tokenizer, wanted)) {}

  Growing(const Tokenizer& tokenizer, const SampleOptions& wanted, std::size_t place, Opening opening)
      : options(wanted),
        number(place),
        ids(std::move(opening.ids)),
        end_of_turn(opening.end_of_turn),
        stream(tokenizer, opening.shown, wanted.stop) {
    result.prompt = std::move(opening.shown);
    result.prompt_tokens = static_cast<Size>(ids.size());
  }

  const SampleOptions& options;
  std::size_t number;
  std::vector<std::int32_t> ids;
  std::optional<std::int32_t> end_of_turn;
  TextStream stream;
  SampledText result;
  bool ended = false;
};

class TextSampler {
 public:
  TextSampler(Trainer& trainer, const Tokenizer& tokenizer, std::span<const SampleOptions> each,
              const SampleObserver& observer)
      : tokenizer_(tokenizer),
        each_(each),
        observer_(observer),
        slots_(std::min(each.size(), static_cast<std::size_t>(trainer.config().train.batch))),
        decoder_(trainer, static_cast<Size>(slots_.size()),
                 std::min(trainer.config().train.context, longest(tokenizer, each))),
        results_(each.size()) {}

  std::vector<SampledText> run() {
    const auto grows = [](const std::optional<Growing>& slot) { return slot.has_value(); };
    while (next_ < each_.size() || std::any_of(slots_.begin(), slots_.end(), grows)) {
      for (std::size_t slot = 0; slot < slots_.size(); ++slot) fill(slot);
      extend_all();
    }
    return std::move(results_);
  }

 private:
  static Size longest(const Tokenizer& tokenizer, std::span<const SampleOptions> each) {
    Size most = 1;
    for (const SampleOptions& options : each) {
      const auto prompt = static_cast<Size>(opening_of(tokenizer, options).ids.size());
      most = std::max(most, prompt + options.tokens);
    }
    return most;
  }

  // Texts begin in a free slot, until one goes on there.
  void fill(std::size_t slot) {
    while (!slots_[slot] && next_ < each_.size()) {
      slots_[slot].emplace(tokenizer_, each_[next_], next_);
      ++next_;
      if (slots_[slot]->options.tokens == 0) {
        end(*slots_[slot], SampleEnd::length);
      } else {
        begin(slot, decoder_.capacity());
      }
      drop_if_ended(slot);
    }
  }

  // The last tokens of the text, in a pass of their own.
  void begin(std::size_t slot, Size at_most) {
    const std::span<const std::int32_t> ids(slots_[slot]->ids);
    const auto count = std::min(ids.size(), static_cast<std::size_t>(at_most));
    draw(*slots_[slot], decoder_.begin(static_cast<Size>(slot), ids.last(count)));
  }

  void extend_all() {
    std::vector<std::int32_t> slots;
    std::vector<std::int32_t> tokens;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (!slots_[slot]) continue;
      if (decoder_.is_full(static_cast<Size>(slot))) {
        begin(slot, std::max<Size>(1, decoder_.capacity() / 2));
        drop_if_ended(slot);
        continue;
      }
      slots.push_back(static_cast<std::int32_t>(slot));
      tokens.push_back(slots_[slot]->ids.back());
    }
    if (slots.empty()) return;
    const std::span<const float> logits = decoder_.extend(slots, tokens);
    const auto vocab = static_cast<std::size_t>(decoder_.vocab());
    for (std::size_t row = 0; row < slots.size(); ++row) {
      const auto slot = static_cast<std::size_t>(slots[row]);
      draw(*slots_[slot], logits.subspan(row * vocab, vocab));
      drop_if_ended(slot);
    }
  }

  void draw(Growing& text, std::span<const float> logits) {
    // The head may have more rows than there are tokens.
    const auto tokens = logits.first(std::min(logits.size(), static_cast<std::size_t>(tokenizer_.vocab_size())));
    const std::uint32_t word =
        random_word({text.options.seed, 0, stream_of("sample")}, static_cast<std::uint64_t>(text.result.tokens));
    const std::int32_t token =
        draw_token({tokens.begin(), tokens.end()}, text.options, static_cast<double>(word) / 4294967296.0);
    if (token == text.end_of_turn) return end(text, SampleEnd::end_of_turn);
    if (token == tokenizer_.end_of_text()) return end(text, SampleEnd::end_of_text);
    text.ids.push_back(token);
    ++text.result.tokens;
    tell(text, text.stream.add(token));
    if (text.stream.has_stopped()) return end(text, SampleEnd::stop_string);
    if (text.result.tokens == text.options.tokens) end(text, SampleEnd::length);
  }

  void tell(const Growing& text, const std::string& piece) const {
    if (observer_.wrote && !piece.empty()) observer_.wrote(text.number, piece);
  }

  void end(Growing& text, SampleEnd how) {
    tell(text, text.stream.finish());
    text.result.text = text.stream.text();
    text.result.end = how;
    text.ended = true;
    results_[text.number] = text.result;
    if (observer_.ended) observer_.ended(text.number, text.result);
  }

  void drop_if_ended(std::size_t slot) {
    if (slots_[slot]->ended) slots_[slot].reset();
  }

  const Tokenizer& tokenizer_;
  std::span<const SampleOptions> each_;
  const SampleObserver& observer_;
  std::vector<std::optional<Growing>> slots_;
  Decoder decoder_;
  std::vector<SampledText> results_;
  std::size_t next_ = 0;  // the next text to begin
};

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
  if (options.top_p < 1) total = keep_share(weights, total, options.top_p);
  double left = uniform * total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<std::int32_t>(i);
  }
  return likeliest(logits);
}

Opening opening_of(const Tokenizer& tokenizer, const SampleOptions& options) {
  const Prompt& prompt = options.prompt;
  if (!prompt.messages.empty()) {
    ChatPrompt chat = prompt_of_chat(prompt.messages, tokenizer, options.chat_template);
    return {std::move(chat.ids), {}, chat.end_of_turn};
  }
  const std::vector<std::int32_t> text = tokenizer.encode(prompt.text, SpecialTokens::parsed);
  Opening opening{{tokenizer.prefix().begin(), tokenizer.prefix().end()}, tokenizer.decode(text), {}};
  opening.ids.insert(opening.ids.end(), text.begin(), text.end());
  if (opening.ids.empty()) opening.ids.push_back(tokenizer.end_of_text());
  return opening;
}

std::vector<SampledText> sample_texts(Trainer& trainer, const Tokenizer& tokenizer, std::span<const SampleOptions> each,
                                      const SampleObserver& observer) {
  if (each.empty()) return {};
  return TextSampler(trainer, tokenizer, each, observer).run();
}

std::string sample_text(Trainer& trainer, const Tokenizer& tokenizer, const SampleOptions& options) {
  const SampledText sampled = sample_texts(trainer, tokenizer, std::span(&options, 1)).front();
  return sampled.prompt + sampled.text;
}

}  // namespace quaver
