// Sums the gradients of all groups of micro-batches (micro_batches.h), strictly in the order of the groups. Each rank
// is sent the gradients of the parameters that it owns and adds them up; where all ranks need all sums, it is sent an
// equal share instead, and the shares are gathered. No reduction of a library is used: their order depends on the
// number of ranks.
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

  // All of them enqueue and return. The parameters' gradients are those of the round's group: add takes those that last
  // until the whole group is done, add_section those of a section whose memory others need next. finish: gradient_sum
  // is the sum of all groups.
  void add(Size round);
  void add_section(Size section, Size round);
  void finish();

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
  static std::vector<Wave> waves_of(const std::vector<Parameter*>& parameters, int ranks);
  void add(const std::vector<Wave>& waves, Size round);
  void share_equally(const View& gradients, float* sums);
  void receive_parts(const Wave& wave);
  void gather(const Wave& wave);

  Engine& engine_;
  Communicator& ranks_;
  bool gathers_;                             // gradient_sum is needed on every rank
  std::vector<Wave> lasting_;                // of parameters whose gradients last
  std::vector<std::vector<Wave>> sections_;  // of the others
  std::shared_ptr<std::byte> memory_;
  float* received_ = nullptr;  // the owner's segments of every rank
};

}  // namespace quaver
