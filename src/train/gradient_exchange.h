// Sums the gradients of all groups of micro-batches (micro_batches.h), strictly in the order of the groups. Each rank
// is sent the gradients of the parameters that it owns and adds them up; where all ranks need all sums, it is sent an
// equal share instead, and the shares are gathered. No reduction of a library is used: their order depends on the
// number of ranks. A bucket's exchange is put aside, so that the backward pass goes on beside it.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "nn/parameter.h"

namespace quaver {

class GradientExchange {
 public:
  // The parameters are dealt out and have their memory. Sets their gradient_sum.
  GradientExchange(Engine& engine, Communicator& ranks, Parameters& parameters, Size rounds);

  // All of them enqueue and return. The gradients are those of the round's group; after the last round gradient_sum is
  // the sum of all groups. add_bucket puts aside, and the bucket's gradients may not change until it is waited for.
  Device::Place add_bucket(Size bucket, Size round);
  void add_rest(Size round);  // of what is in no bucket
  void add_all(Size round);

  // Memory that it takes.
  static Size planned_bytes(const Parameters& parameters, Size rounds);

 private:
  // A piece of the gradients.
  struct Segment {
    float* gradient = nullptr;
    float* sum = nullptr;  // on the rank that owns it
    Size count = 0;
  };
  // What is exchanged at once: for each rank some of what it owns, so that all of them receive at the same time.
  struct Wave {
    std::vector<std::vector<Segment>> of_rank;
  };

  static void append(std::vector<Segment>& segments, const Segment& next);
  std::vector<Wave> waves_of(const Bucket& bucket, float*& sums);
  std::vector<Wave> equal_shares(const View& gradients, float*& sums) const;
  std::vector<Wave> shares_of_owners(const std::vector<Parameter*>& parameters) const;
  void add(const std::vector<Wave>& waves, Size round);
  void add(const Wave& wave, Size round);
  void receive_parts(const Wave& wave);
  void gather(const Wave& wave);

  Engine& engine_;
  Communicator& ranks_;
  Size rounds_;
  bool gathers_;                            // gradient_sum is needed on every rank
  std::vector<std::vector<Wave>> buckets_;  // of the parameters
  std::vector<Wave> rest_;
  std::shared_ptr<std::byte> memory_;
  float* received_ = nullptr;  // the owner's segments of every rank
};

}  // namespace quaver
