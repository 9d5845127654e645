// What differs between two benchmarks: the machine, as its yardsticks tell, and beyond that what was measured on it.
#pragma once

#include "study/bench.h"

namespace quaver {

// Times as fast the second time, at one of the yardsticks.
struct MachineChange {
  std::string yardstick = {};
  double speed = 1;
};

// Of one measurement, or of all layers' measurements of one kind: of one layer a change by half may be chance, of
// twelve of them it is not.
struct BenchChange {
  Measurement before = {};
  Measurement after = {};
  double ratio() const { return after.time.median / before.time.median; }
};

struct BenchDifference {
  std::vector<MachineChange> machine = {};  // beyond noise
  std::vector<BenchChange> changes = {};    // that neither noise nor the machine explains, the largest first
  std::vector<std::string> verdicts = {};   // that are the opposite of what they were
  Size compared = 0;
  Size missing = 0;  // in one of the two
  double limit = 0;  // the ratio, less 1, from which on half of the measurements would have been a change
  bool is_same() const { return changes.empty() && verdicts.empty(); }
};
BenchDifference compare_benches(const Bench& before, const Bench& after);

}  // namespace quaver
