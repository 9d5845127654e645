// Which rank owns which parameter. The owner adds up the parameter's gradient; what else it alone has is train.shard's
// choice, as ZeRO numbers it: 0 none, 1 optimizer state and master weight, 2 the gradient too, 3 the codes too.
#pragma once

#include <cstdint>

namespace quaver {

enum class ShardMode : std::uint8_t { none, optimizer, gradients, weights };

// A rank among those that share a model's parameters.
struct ShardPlace {
  ShardMode shard = ShardMode::none;
  int rank = 0;
  int ranks = 1;

  // What a rank by itself shares with nobody.
  bool has(ShardMode least) const { return ranks > 1 && shard >= least; }
};

}  // namespace quaver
