#include "study/batch_rounds.h"

#include "comm/agreement.h"

namespace quaver {

namespace {

// The ranks' values, each rank's apart. The first rank has a batch in every round, and so knows how many there are.
template <class T>
std::vector<std::vector<T>> of_each_rank(Communicator& ranks, std::vector<T> mine) {
  const std::size_t each = of_first_rank(ranks, mine.size());
  mine.resize(each);
  const std::vector<T> all = gathered(ranks, mine);
  std::vector<std::vector<T>> apart;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks.size()); ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * each);
    apart.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(each));
  }
  return apart;
}

}  // namespace

void measure_batches(const Subject& subject, const StudyProgress& progress, const BatchRounds& rounds) {
  Communicator& ranks = *subject.ranks;
  for (Size first = 0; first < rounds.batches; first += ranks.size()) {
    const Size mine = first + ranks.rank();
    BatchFindings findings;
    if (mine < rounds.batches) findings = rounds.measure(mine);
    if (any_of_ranks(ranks, progress.is_asked_to_stop())) throw StudyInterrupted{};
    std::vector<std::vector<double>> figures = of_each_rank(ranks, std::move(findings.figures));
    std::vector<std::vector<CastStatistics>> seen = of_each_rank(ranks, std::move(findings.seen));
    for (Size batch = first; batch < std::min(first + ranks.size(), rounds.batches); ++batch) {
      const auto rank = static_cast<std::size_t>(batch - first);
      rounds.take(batch, {std::move(figures[rank]), std::move(seen[rank])});
    }
  }
}

}  // namespace quaver
