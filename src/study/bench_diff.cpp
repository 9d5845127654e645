#include "study/bench_diff.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include "study/bench_sweeps.h"
#include "study/repeated_batch.h"

namespace quaver {

namespace {

// What moves from one process to the next and no sweep shows, where memory lies for one; more for what is over before a
// CPU's caches, or a burst of a neighbor, change. Two runs on one H200 differ by 0.4 % in the middle and 7 % at most,
// whatever their kernels' length.
struct Steadiness {
  double between_processes;
  double of_short_runs;
};
constexpr Steadiness of_cpus{.between_processes = 0.1, .of_short_runs = 0.6};
constexpr Steadiness of_gpus{.between_processes = 0.05, .of_short_runs = 0.05};

bool ran_on_cpu(const Bench& bench) { return bench.machine.engine.empty() || bench.machine.engine.starts_with("cpu "); }

// In intervals of 95 %: of hundreds of measurements none may differ by chance.
constexpr double intervals = 3;

double least_change(const Steadiness& steady, double seconds) {
  constexpr double short_run = 200e-6;
  constexpr double long_run = 10e-3;
  const double shortness = std::log(long_run / seconds) / std::log(long_run / short_run);
  return std::lerp(steady.between_processes, steady.of_short_runs, std::clamp(shortness, 0.0, 1.0));
}

double log_ratio(const Measurement& before, const Measurement& after) {
  return std::log(after.time.median / before.time.median);
}

double noise_of(const Measurement& before, const Measurement& after) {
  return std::hypot(before.time.noise, after.time.noise);
}

using Pair = std::pair<Measurement, Measurement>;

// Of both, by what they measure.
std::vector<Pair> pairs_of(const std::vector<Measurement>& before, const std::vector<Measurement>& after) {
  std::map<std::string, Measurement> known;
  for (const Measurement& m : before) known.emplace(key_of(m), m);
  std::vector<Pair> pairs;
  for (const Measurement& m : after) {
    if (const auto found = known.find(key_of(m)); found != known.end()) pairs.emplace_back(found->second, m);
  }
  return pairs;
}

// Logarithms of what the machine did to times, as its yardsticks saw it: what mixes their work lies between them.
struct MachineRange {
  double low = 0;
  double high = 0;
  double width() const { return high - low; }
};

// Layers as a whole: their parts may be too short to be the same in two runs.
std::vector<Measurement> what_is_compared(const Bench& bench) {
  std::vector<Measurement> compared;
  for (const Measurement& m : bench.measurements) {
    if (m.workload == Workload::phase || m.workload == Workload::yardstick) continue;
    if (m.workload != Workload::layer) {
      compared.push_back(m);
    } else if (m.part == "fprop") {
      const auto whole = layer_time(bench, m.subject, m.recipe);
      if (!whole) continue;
      compared.push_back(m);
      compared.back().part = "all";
      compared.back().time = {whole->seconds(), whole->seconds(), whole->noise, m.time.rounds};
    }
  }
  return compared;
}

std::string kind_of(const Measurement& m) { return std::string(name_of(m.workload)) + "\n" + m.part + "\n" + m.recipe; }

std::string verdict_key(const LayerVerdict& verdict) { return verdict.layer.text() + "\n" + verdict.recipe; }

const StepVerdict* step_in(const Bench& bench, const std::string& recipe) {
  const auto found = std::ranges::find(bench.steps, recipe, &StepVerdict::recipe);
  return found == bench.steps.end() ? nullptr : &*found;
}

class Comparison {
 public:
  Comparison(const Bench& before, const Bench& after)
      : before_(before), after_(after), steady_(ran_on_cpu(before) || ran_on_cpu(after) ? of_cpus : of_gpus) {}

  BenchDifference make() {
    look_at_machine();
    compare_kinds();
    compare_each();
    std::ranges::sort(difference_.changes, std::ranges::greater{},
                      [](const BenchChange& change) { return std::abs(std::log(change.ratio())); });
    compare_verdicts();
    compare_recommended();
    return std::move(difference_);
  }

 private:
  void look_at_machine() {
    for (const auto& [before, after] : pairs_of(before_.measurements, after_.measurements)) {
      if (before.workload != Workload::yardstick) continue;
      const double change = log_ratio(before, after);
      const double noise = noise_of(before, after);
      machine_.low = std::min(machine_.low, change - noise);
      machine_.high = std::max(machine_.high, change + noise);
      if (std::abs(change) > intervals * noise + std::log1p(steady_.between_processes)) {
        difference_.machine.push_back({before.subject, std::exp(-change)});
      }
    }
  }

  // Of logarithms, as noise is.
  bool is_change(double change, double limit) const {
    return change > machine_.high + limit || change < machine_.low - limit;
  }

  // One kernel in all shapes.
  void compare_kinds() {
    std::map<std::string, std::vector<Pair>> kinds;
    for (const Pair& pair : pairs_of(before_.measurements, after_.measurements)) {
      const Workload workload = pair.first.workload;
      if (workload == Workload::layer || workload == Workload::vector) kinds[kind_of(pair.first)].push_back(pair);
    }
    for (const auto& [kind, pairs] : kinds) compare_kind(pairs);
  }

  void compare_kind(const std::vector<Pair>& pairs) {
    constexpr std::size_t fewest = 4;
    if (pairs.size() < fewest) return;
    std::vector<double> ratios;
    double before = 0;
    double after = 0;
    for (const Pair& pair : pairs) {
      ratios.push_back(pair.second.time.median / pair.first.time.median);
      before += std::log(pair.first.time.median);
      after += std::log(pair.second.time.median);
    }
    const auto count = static_cast<double>(pairs.size());
    const double limit = std::log1p(steady_.between_processes) + intervals * noise_of_sweeps(ratios);
    if (!is_change((after - before) / count, limit)) return;
    BenchChange change{pairs.front().first, pairs.front().second};
    change.before.subject = change.after.subject = fmt::format("{} shapes, mean", pairs.size());
    change.before.time = {.median = std::exp(before / count)};
    change.after.time = {.median = std::exp(after / count)};
    difference_.changes.push_back(change);
  }

  void compare_each() {
    const std::vector<Measurement> ours = what_is_compared(before_);
    const std::vector<Measurement> theirs = what_is_compared(after_);
    const std::vector<Pair> pairs = pairs_of(ours, theirs);
    difference_.compared = static_cast<Size>(pairs.size());
    difference_.missing = static_cast<Size>(ours.size() + theirs.size() - 2 * pairs.size());
    std::vector<double> limits;
    for (const auto& [before, after] : pairs) {
      const double least = least_change(steady_, std::min(before.time.median, after.time.median));
      const double limit = std::log1p(least) + intervals * noise_of(before, after);
      if (is_change(log_ratio(before, after), limit)) difference_.changes.push_back({before, after});
      limits.push_back(limit + machine_.high);
    }
    if (limits.empty()) return;
    const auto middle = limits.begin() + static_cast<std::ptrdiff_t>(limits.size() / 2);
    std::ranges::nth_element(limits, middle);
    difference_.limit = std::expm1(*middle);
  }

  // Both benchmarks must have told opposites, and by more than the machine may have changed the one against the other.
  bool is_opposite(const LayerVerdict& before, const LayerVerdict& after) const {
    if (before.payoff() == Payoff::uncertain || after.payoff() == Payoff::uncertain) return false;
    const double limit =
        std::log1p(steady_.between_processes) + std::hypot(before.noise, after.noise) + machine_.width();
    return before.payoff() != after.payoff() && std::abs(std::log(after.speedup() / before.speedup())) > limit;
  }

  void compare_verdicts() {
    std::map<std::string, LayerVerdict> verdicts;
    for (const LayerVerdict& verdict : layer_verdicts(before_)) verdicts[verdict_key(verdict)] = verdict;
    for (const LayerVerdict& verdict : layer_verdicts(after_)) {
      const auto found = verdicts.find(verdict_key(verdict));
      if (found == verdicts.end() || !is_opposite(found->second, verdict)) continue;
      difference_.verdicts.push_back(fmt::format("{} in {} {}", verdict.layer.name, verdict.recipe,
                                                 verdict.payoff() == Payoff::pays ? "pays" : "does not pay"));
    }
  }

  void compare_recommended() {
    const auto old = recommended(before_);
    const auto now = recommended(after_);
    if (!old || !now || old->recipe == now->recipe) return;
    const StepVerdict* old_now = step_in(after_, old->recipe);
    const StepVerdict* now_old = step_in(before_, now->recipe);
    if (old_now == nullptr || now_old == nullptr) return;
    const double leads = std::log(old->speedup / now_old->speedup) + std::log(now->speedup / old_now->speedup);
    const double noise = std::hypot(std::hypot(old->noise, now_old->noise), std::hypot(now->noise, old_now->noise));
    const bool learns = old_now->loss_share >= least_share_of_fall && now_old->loss_share >= least_share_of_fall;
    if (learns && leads <= std::log1p(steady_.between_processes) + noise + machine_.width()) return;
    difference_.verdicts.push_back(fmt::format("{} is recommended, and was {}", now->recipe, old->recipe));
  }

  const Bench& before_;
  const Bench& after_;
  Steadiness steady_;
  MachineRange machine_;
  BenchDifference difference_;
};

}  // namespace

BenchDifference compare_benches(const Bench& before, const Bench& after) { return Comparison(before, after).make(); }

}  // namespace quaver
