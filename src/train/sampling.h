// Text from a model, one token at a time.
#pragma once

#include <string>

#include "data/tokenizer.h"
#include "train/trainer.h"

namespace quaver {

struct SampleOptions {
  std::string prompt;  // empty: starts after an end of text
  Size tokens = 200;
  double temperature = 0.8;  // 0: always the likeliest token
  int top_k = 0;             // 0: all
  std::uint64_t seed = 1;
};

// The prompt and what follows it. Stops early at an end of text.
std::string sample_text(Trainer& trainer, const Tokenizer& tokenizer, const SampleOptions& options);

}  // namespace quaver
