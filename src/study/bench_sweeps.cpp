#include "study/bench_sweeps.h"

#include <algorithm>
#include <cmath>

namespace quaver {

namespace {

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Long runs are interrupted more evenly than short ones.
std::string length_of(const Measurement& m) {
  return std::string(name_of(m.workload)) + (m.time.median < 1e-3 ? ", short" : ", long");
}

}  // namespace

std::string key_of(const Measurement& m) {
  return std::string(name_of(m.workload)) + "\n" + m.subject + "\n" + m.part + "\n" + m.recipe;
}

RunTiming timing_of_sweeps(const std::vector<RunTiming>& sweeps) {
  if (sweeps.size() < 2) return sweeps.empty() ? RunTiming{} : sweeps.front();
  RunTiming all;
  double within = 0;
  for (const RunTiming& sweep : sweeps) {
    all.sweeps.push_back(sweep.median);
    all.p95 = std::max(all.p95, sweep.p95);
    all.rounds += sweep.rounds;
    within += std::pow(sweep.noise, 2);
  }
  const auto count = static_cast<double>(sweeps.size());
  all.median = median_of(all.sweeps);
  all.noise = std::max(noise_of_sweeps(all.sweeps), std::sqrt(within) / count);
  return all;
}

void Sweeps::add(const std::vector<Measurement>& measured) {
  for (const Measurement& m : measured) {
    const auto [at, added] = index_.try_emplace(key_of(m), first_.size());
    if (added) {
      first_.push_back(m);
      times_.emplace_back();
    }
    times_[at->second].push_back(m.time);
  }
}

std::vector<Measurement> Sweeps::together() const {
  std::vector<Measurement> all = first_;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].time = timing_of_sweeps(times_[i]);
  return all;
}

void pool_noise(std::vector<Measurement>& measurements) {
  std::map<std::string, std::vector<double>> variances;
  const auto has_sweeps = [](const Measurement& m) { return m.time.sweeps.size() > 1 && m.time.median > 0; };
  for (const Measurement& m : measurements) {
    if (has_sweeps(m)) variances[length_of(m)].push_back(variance_of_logarithms(m.time.sweeps));
  }
  for (Measurement& m : measurements) {
    if (has_sweeps(m)) m.time.noise = noise_of_sweeps(m.time.sweeps, median_of(variances[length_of(m)]));
  }
}

}  // namespace quaver
