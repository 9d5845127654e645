// Sums the gradients of all groups of micro-batches (micro_batches.h), strictly in the order of the groups. Each rank
// is sent its share of every group's gradient and adds it up; at the end the shares are gathered. No reduction of a
// library is used: their order depends on the number of ranks.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "nn/parameter.h"

namespace quaver {

class GradientExchange {
 public:
  // The parameters have their memory: gradients of a multiple of granule(ranks) elements.
  GradientExchange(Engine& engine, Communicator& ranks, const Parameters& parameters, Size rounds);

  // Both enqueue and return. add: the parameters' gradients are those of the round's group. finish: they become the sum
  // of all groups'.
  void add(Size round);
  void finish();

  static Size granule(int ranks) { return 64 * Size{ranks}; }
  // Memory that it takes for this many gradients.
  static Size planned_bytes(Size elements, int ranks, Size rounds);

 private:
  // A piece of the gradients that is exchanged at once, in equal shares.
  struct Bucket {
    Size first = 0;
    Size share = 0;  // elements of a rank
    float* sum = nullptr;
  };

  float* share_of(const Bucket& bucket, int rank) const {
    return gradients_.f32() + bucket.first + rank * bucket.share;
  }
  View parts_of(const Bucket& bucket) const;

  Engine& engine_;
  Communicator& ranks_;
  View gradients_;  // of all parameters
  std::vector<Bucket> buckets_;
  std::shared_ptr<std::byte> memory_;
  float* received_ = nullptr;  // a share of every rank
};

}  // namespace quaver
