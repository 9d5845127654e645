#include "study/increments.h"

#include <algorithm>
#include <utility>

namespace quaver {

namespace {

// The units of a bundle in the order to store them in low precision: each time those whose harm per operation is least.
// That figure can only grow along the way, or the later units would have come along earlier.
void add_increments(const Bundle& bundle, const std::vector<double>& harms,
                    const LowPrecisionFlops& low_precision_flops, std::vector<Increment>& out) {
  std::set<std::size_t> taken;
  while (taken.size() < bundle.size()) {
    Increment best;
    for (unsigned subset = 1; subset < 1U << bundle.size(); ++subset) {
      Increment increment;
      std::set<std::size_t> together = taken;
      for (std::size_t i = 0; i < bundle.size(); ++i) {
        if ((subset >> i & 1U) == 0 || taken.contains(bundle[i])) continue;
        increment.units.push_back(bundle[i]);
        increment.harm += harms[bundle[i]];
        together.insert(bundle[i]);
      }
      if (increment.units.empty()) continue;
      increment.flops = low_precision_flops(together) - low_precision_flops(taken);
      const bool better = increment.harm_per_flop() < best.harm_per_flop();
      const bool alike = increment.harm_per_flop() == best.harm_per_flop();
      if (better || (alike && increment.units.size() > best.units.size())) best = std::move(increment);
    }
    taken.insert(best.units.begin(), best.units.end());
    out.push_back(std::move(best));
  }
}

}  // namespace

std::vector<Increment> chain_of(const std::vector<Bundle>& bundles, const std::vector<double>& harms,
                                const LowPrecisionFlops& low_precision_flops) {
  std::vector<Increment> increments;
  for (const Bundle& bundle : bundles) add_increments(bundle, harms, low_precision_flops, increments);
  std::stable_sort(increments.begin(), increments.end(),
                   [](const Increment& a, const Increment& b) { return a.harm_per_flop() < b.harm_per_flop(); });
  return increments;
}

}  // namespace quaver
