// Text from a model, one token at a time.
#pragma once

#include <string>
#include <vector>

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

// The token at `uniform`, in [0, 1), of the distribution that temperature and top_k make of the logits.
std::int32_t draw_token(const std::vector<float>& logits, const SampleOptions& options, double uniform);

// The prompt and what follows it. Stops early at an end of text.
std::string sample_text(Trainer& trainer, const Tokenizer& tokenizer, const SampleOptions& options);

}  // namespace quaver
