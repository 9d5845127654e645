// Sequences that grow token by token: a cache keeps the keys and values of what they have, so that a pass computes new
// tokens only. A sequence begins with a pass of its own; several are continued together.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "train/trainer.h"

namespace quaver {

class Decoder {
 public:
  // Of at most `capacity` tokens each, which must not be more than train.context. Throws Error where the model is no
  // language model.
  Decoder(Trainer& trainer, Size sequences, Size capacity);

  // The sequence of a slot is these tokens from now on. Returns the logits of the next one, valid until the next call.
  std::span<const float> begin(Size slot, std::span<const std::int32_t> tokens);

  // One more token for each of the slots, none of which is full or named twice. Returns the logits of the tokens that
  // follow, row by row.
  std::span<const float> extend(std::span<const std::int32_t> slots, std::span<const std::int32_t> tokens);

  bool is_full(Size slot) const { return lengths_[static_cast<std::size_t>(slot)] == capacity(); }
  Size capacity() const { return cache_.shape().capacity; }
  Size vocab() const { return model_.vocab(); }

 private:
  std::span<const float> decode(const NewTokens& next, Size sequence);

  Trainer& trainer_;
  LanguageModel& model_;
  KeyValueCache cache_;
  std::shared_ptr<std::byte> device_logits_;
  std::vector<float> logits_;
  std::vector<std::int32_t> lengths_;  // tokens in each slot
};

}  // namespace quaver
