// The guard watches a run and acts: a site that keeps overflowing is stored in BF16, a loss that diverges sends the run
// back to its last good checkpoint. Every act is named.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "precision/scale_book.h"

namespace quaver {

class Guard {
 public:
  explicit Guard(const GuardConfig& config) : config_(config) {}

  enum class Verdict : std::uint8_t { carry_on, rewind, give_up };

  // Judges a finished step by its loss. A skipped step counts as one of a diverging run when too many follow each
  // other.
  Verdict judge(double loss, bool skipped);

  // Sites that overflowed in `widen_after` steps in a row, in formats of low precision.
  std::vector<std::string> sites_to_widen(const ScaleBook& book) const;

  // After a rewind: forgets the losses that led to it.
  void rewound();

  double running_mean() const { return mean_; }

  // For the checkpoint.
  struct State {
    double mean = 0;
    int bad_steps = 0;
    int skipped_steps = 0;
    int rewinds = 0;
    std::int64_t seen = 0;
  };
  State state() const { return {mean_, bad_, skipped_, rewinds_, seen_}; }
  void restore(const State& state);

 private:
  GuardConfig config_;
  double mean_ = 0;  // exponential mean of the loss of steps that were not bad
  int bad_ = 0;      // bad steps in a row
  int skipped_ = 0;  // skipped steps in a row
  int rewinds_ = 0;
  std::int64_t seen_ = 0;
};

}  // namespace quaver
