// Which of a step's micro-batches a rank computes. They form train.reduction_groups groups, in order, and gradients are
// summed within a group and then group by group, so that weights do not depend on the number of ranks: any number that
// divides the groups gives the same sums in the same order.
//
// A step has as many rounds as a rank has groups. In each round the ranks compute neighboring groups, rank r the group
// round · ranks + r: when a round ends, the groups so far are a prefix of all of them and can be added up.
#pragma once

#include "config/config.h"
#include "data/loader.h"

namespace quaver {

class MicroBatches {
 public:
  // Throws Error, naming the remedy, where accumulation, groups and ranks do not divide each other. train is resolved.
  MicroBatches(const TrainConfig& train, int rank, int ranks);

  Size rounds() const { return groups_ / ranks_; }
  Size per_group() const { return per_group_; }
  Size group(Size round) const { return round * ranks_ + rank_; }
  Size first(Size round) const { return group(round) * per_group_; }  // micro-batch of the step, from 0

  // The batches of this rank in the order that it computes them, from a step that begins with batch `start`.
  BatchOrder order(Size start) const;

 private:
  Size groups_;
  Size per_group_;
  Size rank_;
  Size ranks_;
};

// As many groups as ranks, where the config leaves it open.
TrainConfig resolve_groups(TrainConfig train, int ranks);

}  // namespace quaver
