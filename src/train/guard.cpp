#include "train/guard.h"

#include <cmath>

namespace quaver {

namespace {

constexpr double memory = 0.98;         // of the running mean: about fifty steps
constexpr std::int64_t settling = 10;   // steps before the mean is worth comparing with
constexpr int skipped_in_a_row = 20;    // halving a loss scale of 2^8 to 1 takes eight
constexpr double absolute_slack = 0.5;  // nats: a loss near zero may double without diverging

}  // namespace

Guard::Verdict Guard::judge(double loss, bool skipped) {
  if (!config_.enabled) return Verdict::carry_on;
  skipped_ = skipped ? skipped_ + 1 : 0;
  const bool diverges = !skipped && seen_ >= settling && loss > config_.divergence * mean_ + absolute_slack;
  if (diverges) {
    ++bad_;
  } else if (!skipped) {
    bad_ = 0;
    mean_ = seen_ == 0 ? loss : memory * mean_ + (1 - memory) * loss;
    ++seen_;
  }
  if (bad_ < config_.patience && skipped_ < skipped_in_a_row) return Verdict::carry_on;
  if (rewinds_ >= config_.max_rewinds) return Verdict::give_up;
  return Verdict::rewind;
}

std::vector<std::string> Guard::sites_to_widen(const ScaleBook& book) const {
  std::vector<std::string> sites;
  if (!config_.enabled) return sites;
  for (const auto& entry : book.entries()) {
    if (entry->overflow_streak >= config_.widen_after && is_low_precision(entry->site.spec.rows.format)) {
      sites.push_back(entry->site.name);
    }
  }
  return sites;
}

void Guard::rewound() {
  ++rewinds_;
  bad_ = 0;
  skipped_ = 0;
}

void Guard::restore(const State& state) {
  mean_ = state.mean;
  bad_ = state.bad_steps;
  skipped_ = state.skipped_steps;
  rewinds_ = state.rewinds;
  seen_ = state.seen;
}

}  // namespace quaver
