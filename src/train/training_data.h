// What a run trains on and is judged by, opened from the config: text, examples or images.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/identity.h"
#include "data/image_source.h"
#include "data/loader.h"
#include "data/tokenizer.h"

namespace quaver {

struct TrainingData {
  std::unique_ptr<TokenSource> train;          // null: images
  std::unique_ptr<TokenSource> valid;          // null: nothing to validate with
  std::shared_ptr<const Tokenizer> tokenizer;  // null for synthetic text, and for images
  int vocab = 0;
  std::unique_ptr<ImageSource> train_images;  // null: text
  std::unique_ptr<ImageSource> valid_images;  // null: nothing to validate with
  DataIdentity identity;                      // equal for the same data at another path
  std::optional<double> best_loss;            // of a perfect model, where it is known
  std::optional<double> best_accuracy;
  std::vector<std::string> notes;  // what the user should know, such as examples that were cut

  DataShape shape() const;
};

TrainingData open_training_data(const DataConfig& config, std::uint64_t seed, Size context);

// What plans and measurements use that need no text of the config's: random tokens, the model's vocabulary or the given
// one of them; or the images that the config names.
TrainingData stand_in_data(const Config& config, Size vocab);

}  // namespace quaver
