#include "train/rank_agreement.h"

#include <algorithm>
#include <numeric>

#include "comm/agreement.h"
#include "config/dump.h"

namespace quaver {

namespace {

// What every cast gathers, whatever its detail.
struct CastCounts {
  std::uint64_t count = 0;
  std::uint64_t nonfinite = 0;
  std::uint64_t saturated = 0;
  std::uint64_t underflowed = 0;
  float amax = 0;
};

CastCounts counts_of(const CastStatistics& seen) {
  return {seen.count, seen.nonfinite, seen.saturated, seen.underflowed, seen.amax};
}

CastStatistics statistics_of(const CastCounts& counts) {
  CastStatistics seen;
  seen.count = counts.count;
  seen.nonfinite = counts.nonfinite;
  seen.saturated = counts.saturated;
  seen.underflowed = counts.underflowed;
  seen.amax = counts.amax;
  return seen;
}

}  // namespace

void require_same_program(Communicator& ranks, const Config& config) {
  require_same(ranks, {"version of quaver", QUAVER_VERSION, "install the same version on every machine"});
  require_same(ranks, {"config", to_toml(config), "give every rank the same files and flags"});
}

std::vector<double> interleaved(Communicator& ranks, std::vector<double> mine, Size total, Size width) {
  const auto size = static_cast<std::size_t>(ranks.size());
  const std::size_t each = (static_cast<std::size_t>(total) + size - 1) / size;
  const auto at_a_time = static_cast<std::ptrdiff_t>(width);
  mine.resize(each * static_cast<std::size_t>(width));
  const std::vector<double> all = gathered(ranks, mine);
  std::vector<double> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(total); ++i) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(i % size * each + i / size) * at_a_time;
    values.insert(values.end(), from, from + at_a_time);
  }
  return values;
}

Size sum_of_ranks(Communicator& ranks, Size mine) {
  const std::vector<Size> all = gathered(ranks, mine);
  return std::accumulate(all.begin(), all.end(), Size{0});
}

void share_tally(Communicator& ranks, Tally& tally) {
  if (ranks.is_alone()) return;
  const auto groups = static_cast<Size>(tally.losses().size()) * ranks.size();
  const std::vector<float> logits = gathered(ranks, tally.max_logit());
  tally.take(interleaved(ranks, tally.losses(), groups), *std::max_element(logits.begin(), logits.end()));
}

void share_statistics(Communicator& ranks, std::span<Site* const> sites) {
  if (ranks.is_alone()) return;
  std::vector<Site*> shared;
  std::copy_if(sites.begin(), sites.end(), std::back_inserter(shared),
               [](Site* site) { return site->role != Role::w; });
  std::vector<CastCounts> mine(shared.size());
  std::transform(shared.begin(), shared.end(), mine.begin(), [](const Site* site) { return counts_of(site->seen); });
  const std::vector<CastCounts> all = gathered(ranks, mine);
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == ranks.rank()) continue;
    for (std::size_t i = 0; i < shared.size(); ++i) {
      shared[i]->seen.merge(statistics_of(all[static_cast<std::size_t>(rank) * shared.size() + i]));
    }
  }
}

void share_samples(Communicator& ranks, ScaleBook& book, GradientNoise& noise) {
  if (ranks.is_alone()) return;
  std::vector<CastStatistics> samples;
  std::vector<float> scales;
  for (const auto& entry : book.entries()) {
    samples.push_back(entry->sampled);
    scales.push_back(entry->sampled_scale);
  }
  samples = gathered(ranks, samples);
  scales = gathered(ranks, scales);
  for (std::size_t i = 0; i < book.entries().size(); ++i) {
    book.entries()[i]->sampled = samples[i];
    book.entries()[i]->sampled_scale = scales[i];
  }
  const std::size_t known = of_first_rank(ranks, noise.first().size());
  std::vector<double> squares = noise.first();
  squares.resize(known);
  squares = gathered(ranks, squares);
  squares.resize(known);
  noise.take_first(std::move(squares));
}

}  // namespace quaver
