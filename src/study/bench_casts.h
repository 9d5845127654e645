// Casts by themselves: an activation of the model's size into the codes of each recipe of 8 bits or fewer.
#pragma once

#include "study/bench_layers.h"

namespace quaver {

struct CastRace {
  Size rows = 0;
  Size cols = 0;
  std::vector<std::string> recipes;  // those of more than 8 bits are left out
  double units = 0;                  // tokens or images that the rows are
  double seconds = 1;
};

// Parts: x and dy, as the recipe stores them, rowwise alone and both rowwise and columnwise.
std::vector<Measurement> measure_casts(BenchEngines& engines, const CastRace& race);

// The largest input of the layers at which they are judged.
CastRace cast_race_of(const std::vector<BenchLayer>& layers);

}  // namespace quaver
