#include "train/micro_batches.h"

#include <fmt/format.h>

#include "quaver/error.h"

namespace quaver {

namespace {

std::string divisors_of(Size number) {
  std::string text;
  for (Size i = 1; i <= number; ++i) {
    if (number % i == 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
  }
  return text;
}

void check_groups(const TrainConfig& train) {
  if (train.accumulation % train.reduction_groups == 0) return;
  const Size groups = train.reduction_groups;
  const bool divides = train.batch * train.accumulation % groups == 0 && train.accumulation == 1;
  throw Error(fmt::format("the {} micro-batches of a step (train.accumulation) cannot be divided into {} groups",
                          train.accumulation, groups),
              divides ? fmt::format("train.accumulation = {} with train.batch = {} is a step of the same size", groups,
                                    train.batch * train.accumulation / groups)
                      : fmt::format("choose a train.accumulation that is a multiple of {}", groups));
}

}  // namespace

TrainConfig resolve_groups(TrainConfig train, int ranks) {
  const bool by_micro_batch = ranks > 1 && train.shard >= ShardMode::gradients;
  if (train.reduction_groups == 0) train.reduction_groups = by_micro_batch ? train.accumulation : ranks;
  return train;
}

MicroBatches::MicroBatches(const TrainConfig& train, int rank, int ranks)
    : groups_(train.reduction_groups),
      per_group_(train.accumulation / train.reduction_groups),
      rank_(rank),
      ranks_(ranks) {
  check_groups(train);
  if (ranks > 1 && train.shard >= ShardMode::gradients && per_group_ > 1) {
    throw Error(fmt::format("train.shard = {} leaves no memory to add up the {} micro-batches of a group",
                            train.shard == ShardMode::gradients ? "gradients" : "weights", per_group_),
                fmt::format("set train.reduction_groups = {}, as many as train.accumulation, which sums in another "
                            "order; or shard the optimizer alone",
                            train.accumulation));
  }
  if (groups_ % ranks_ == 0) return;
  throw Error(
      fmt::format("{} ranks cannot share out {} groups of micro-batches (train.reduction_groups)", ranks_, groups_),
      fmt::format("start as many ranks as divide them ({}), or set train.reduction_groups = {}, which sums in "
                  "another order",
                  divisors_of(groups_), ranks_));
}

BatchOrder MicroBatches::order(Size start) const {
  return {.first = static_cast<std::uint64_t>(start + rank_ * per_group_),
          .run = static_cast<std::uint64_t>(per_group_),
          .stride = static_cast<std::uint64_t>(ranks_ * per_group_)};
}

}  // namespace quaver
