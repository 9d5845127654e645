#include "study/bench_race.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace quaver {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double shortest_sample = 400e-6;  // seconds
constexpr int fewest_rounds = 3;
constexpr int most_rounds = 25;

double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// Keys of graphs that nobody else has: each runner is another graph.
std::uint64_t next_key() {
  static std::uint64_t key = std::uint64_t{1} << 62;
  return ++key;
}

}  // namespace

RunTiming timing_of(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::ranges::sort(seconds);
  const double median = quantile(seconds, 0.5);
  // The interval of notched box plots, which outliers do not widen.
  const double spread = quantile(seconds, 0.75) - quantile(seconds, 0.25);
  const double half = 1.57 * spread / std::sqrt(static_cast<double>(seconds.size()));
  return {median, quantile(seconds, 0.95), median > 0 ? half / median : 0, static_cast<int>(seconds.size())};
}

std::size_t Race::add(Engine& engine, std::function<void()> run) {
  const std::uint64_t key = next_key();
  runners_.push_back({&engine, [&engine, key, run = std::move(run)] { engine.device().replay(key, run); }});
  return runners_.size() - 1;
}

double Race::time(const Runner& runner) {
  double found = 0;
  runner.engine->device().time(
      [&] {
        for (int i = 0; i < runner.repeats; ++i) runner.run();
      },
      [&](double seconds) { found = seconds; });
  runner.engine->device().synchronize();
  return found / runner.repeats;
}

void Race::forget() {
  for (Runner& runner : runners_) runner.seconds.clear();
}

void Race::warm_up() {
  if (std::exchange(is_warm_, true)) return;
  // On a GPU: as they are, which may move the workspace for all of them; captured; replayed.
  for (int warmup = 0; warmup < 3; ++warmup) {
    for (Runner& runner : runners_) {
      if (warmup > 0 && runner.engine->device().hardware().kind == HardwareKind::cpu) continue;
      const double once = time(runner);
      runner.repeats = static_cast<int>(std::clamp(shortest_sample / std::max(once, 1e-9), 1.0, 1000.0));
    }
  }
}

void Race::run(double seconds) {
  warm_up();
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  for (int round = 0; round < most_rounds; ++round) {
    if (round >= fewest_rounds && elapsed() > seconds) break;
    for (Runner& runner : runners_) runner.seconds.push_back(time(runner));
  }
}

}  // namespace quaver
