// Decoding with the key-value cache: how long one more token takes, for a sequence by itself and for some together.
#pragma once

#include "study/bench.h"
#include "train/trainer.h"

namespace quaver {

// Of a language model. Without drawing the tokens from the logits.
std::vector<Measurement> measure_decoding(Trainer& trainer, double seconds);

}  // namespace quaver
