// What is measured several times, each time after everything else: bursts of other programs and clocks that move then
// differ from one sweep to the next, and are told from what a measurement itself takes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/benchmark.h"

namespace quaver {

// What a measurement is of, whatever it took.
std::string key_of(const Measurement& measurement);

class Sweeps {
 public:
  // Of one sweep, in any order. What a sweep has measured before is measured once more.
  void add(const std::vector<Measurement>& measured);

  // Each with the median of its sweeps, in the order in which they first came.
  std::vector<Measurement> together() const;

 private:
  std::vector<Measurement> first_;
  std::vector<std::vector<RunTiming>> times_;
  std::map<std::string, std::size_t> index_;
};

// The median of the sweeps; their noise where there are several, not less than that of the runs within the sweeps.
RunTiming timing_of_sweeps(const std::vector<RunTiming>& sweeps);

// Noise from all measurements of the same kind together, where they have sweeps: few may agree by chance.
void pool_noise(std::vector<Measurement>& measurements);

}  // namespace quaver
