// In which order the units of a localization are stored in low precision: by harm per operation, least first.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <set>
#include <vector>

namespace quaver {

// Units that meet in a GEMM: the roles of a layer, or one larger unit.
using Bundle = std::vector<std::size_t>;  // of units

// The next units to store in low precision, with what they cost and bring.
struct Increment {
  std::vector<std::size_t> units = {};
  double harm = 0;
  double flops = 0;  // more in low precision than before, a share of all

  double harm_per_flop() const { return flops > 0 ? harm / flops : std::numeric_limits<double>::infinity(); }
};

// The share of operations in low precision where these units are.
using LowPrecisionFlops = std::function<double(const std::set<std::size_t>& units)>;

// All units of the bundles, those whose harm per operation is least first. `harms` has one for each unit.
std::vector<Increment> chain_of(const std::vector<Bundle>& bundles, const std::vector<double>& harms,
                                const LowPrecisionFlops& low_precision_flops);

}  // namespace quaver
