// What the ranks of a run found out apart and must know together: after this every rank decides alike, without asking
// the others again. A process by itself knows all of it already.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "config/config.h"
#include "precision/scale_book.h"
#include "train/gradient_noise.h"
#include "train/tally.h"

namespace quaver {

// AgreedError, naming the rank, where one runs another version of quaver or another config.
void require_same_program(Communicator& ranks, const Config& config);

// Values that the ranks computed in turn, `width` of them at a time, the i-th time by rank i mod ranks: those of all
// `total` times.
std::vector<double> interleaved(Communicator& ranks, std::vector<double> mine, Size total, Size width = 1);

Size sum_of_ranks(Communicator& ranks, Size mine);

// The losses of all groups in their order, and the largest logit of all.
void share_tally(Communicator& ranks, Tally& tally);

// What the casts of activations and gradients saw, of all micro-batches. Weights are cast alike everywhere.
void share_statistics(Communicator& ranks, std::span<Site* const> sites);

// Full statistics are gathered of a step's first micro-batch, which is the first rank's.
void share_samples(Communicator& ranks, ScaleBook& book, GradientNoise& noise);

}  // namespace quaver
