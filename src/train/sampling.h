// Text from a model, one token at a time, several texts at once.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/examples.h"
#include "data/tokenizer.h"
#include "train/trainer.h"

namespace quaver {

// One text to sample.
struct SampleOptions {
  Prompt prompt;  // empty: starts after an end of text
  ChatTemplate chat_template = ChatTemplate::automatic;
  Size tokens = 200;
  double temperature = 0.8;  // 0: always the likeliest token
  int top_k = 0;             // 0: all
  double top_p = 1;          // the likeliest tokens that have this probability together; 1: all
  std::uint64_t seed = 1;
  std::vector<std::string> stop = {};  // the text ends before the first of these; none is empty
};

// The token at `uniform`, in [0, 1), of the distribution that temperature, top_k and then top_p make of the logits.
std::int32_t draw_token(const std::vector<float>& logits, const SampleOptions& options, double uniform);

// What a text begins with.
struct Opening {
  std::vector<std::int32_t> ids;            // that a model reads before it writes the first token
  std::string shown;                        // the prompt as its tokens spell it; empty before the answer of a chat
  std::optional<std::int32_t> end_of_turn;  // the token that ends the answer of a chat
};
Opening opening_of(const Tokenizer& tokenizer, const SampleOptions& options);

enum class SampleEnd : std::uint8_t { length, end_of_text, end_of_turn, stop_string };

struct SampledText {
  std::string prompt;  // Opening::shown
  std::string text;    // what follows
  Size prompt_tokens = 0;
  Size tokens = 0;  // that were drawn, without an end of text
  SampleEnd end = SampleEnd::length;
};

// Told while texts grow, of each by its number. Either may be left empty.
struct SampleObserver {
  std::function<void(std::size_t number, std::string_view piece)> wrote;  // whole characters behind the prompt
  std::function<void(std::size_t number, const SampledText&)> ended;
};

// train.batch texts grow together, and the next one takes the place of one that ends. A text's random numbers follow
// from its own seed. A model reads the last train.context tokens of a prompt; a text that fills the context goes on
// from the last half of it.
std::vector<SampledText> sample_texts(Trainer& trainer, const Tokenizer& tokenizer, std::span<const SampleOptions> each,
                                      const SampleObserver& observer = {});

// The prompt and what follows it.
std::string sample_text(Trainer& trainer, const Tokenizer& tokenizer, const SampleOptions& options);

}  // namespace quaver
