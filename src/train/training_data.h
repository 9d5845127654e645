// The text a run trains on and is judged by, opened from the config.
#pragma once

#include <memory>
#include <optional>

#include "config/config.h"
#include "data/identity.h"
#include "data/loader.h"
#include "data/tokenizer.h"

namespace quaver {

struct TrainingData {
  std::unique_ptr<TokenSource> train;
  std::unique_ptr<TokenSource> valid;          // null: nothing to validate with
  std::shared_ptr<const Tokenizer> tokenizer;  // null for synthetic text
  int vocab = 0;
  DataIdentity identity;            // equal for the same data at another path
  std::optional<double> best_loss;  // of a perfect model, where it is known
};

TrainingData open_training_data(const DataConfig& config, std::uint64_t seed, Size context);

// The model's config with a vocabulary that covers the data: given, or the data's rounded up to a multiple of 64.
// Throws Error when the given one is too small.
ModelConfig with_vocabulary(ModelConfig model, int data_vocab);

}  // namespace quaver
