#include "comm/agreement.h"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>
#include <utility>

namespace quaver {

namespace {

constexpr std::size_t longest_text = std::size_t{1} << 28;  // a run's config, data hashes and tuning have a few MB

}  // namespace

std::vector<std::string> gathered(Communicator& ranks, const std::string& mine) {
  const std::vector<std::size_t> sizes = gathered(ranks, mine.size());
  const auto longest_rank = std::max_element(sizes.begin(), sizes.end());
  const std::size_t longest = *longest_rank;
  if (longest > longest_text) {
    throw Error(fmt::format("rank {} says that it has a text of {} bytes", longest_rank - sizes.begin(), longest),
                "its memory or its connection is faulty: start the ranks without that machine");
  }
  std::vector<char> padded(mine.begin(), mine.end());
  padded.resize(longest);
  const std::vector<char> all = gathered(ranks, padded);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < sizes.size(); ++i) texts.emplace_back(all.data() + i * longest, sizes[i]);
  return texts;
}

std::vector<std::string> rank_names(Communicator& ranks) {
  return gathered(ranks, fmt::format("rank {} on {}", ranks.rank(), host_name()));
}

bool any_of_ranks(Communicator& ranks, bool mine) {
  if (ranks.is_alone()) return mine;
  const std::vector<char> all = gathered(ranks, static_cast<char>(mine ? 1 : 0));
  return std::any_of(all.begin(), all.end(), [](char one) { return one != 0; });
}

namespace {

struct Failure {
  std::string what;
  std::string remedy;
};

Failure failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return {error.what(), error.remedy()};
  } catch (const std::bad_alloc&) {
    return {"out of memory", "choose a smaller model or train.batch"};
  } catch (const std::exception& error) {
    return {error.what(), ""};
  }
  return {};
}

}  // namespace

void on_all_ranks(Communicator& ranks, const std::function<void()>& work) {
  if (ranks.is_alone()) return work();
  const Failure mine = failure_of(work);
  const std::vector<std::string> failures = gathered(ranks, mine.what);
  const auto first = std::find_if(failures.begin(), failures.end(), [](const auto& text) { return !text.empty(); });
  if (first == failures.end()) return;
  const auto rank = static_cast<std::size_t>(first - failures.begin());
  const std::vector<std::string> remedies = gathered(ranks, mine.remedy);
  const bool alike = std::count(failures.begin(), failures.end(), *first) == ranks.size();
  throw AgreedError(alike ? *first : fmt::format("{}: {}", ranks.name_of(static_cast<int>(rank)), *first),
                    remedies[rank]);
}

namespace {

// The first line that differs, of each.
std::pair<std::string, std::string> difference(const std::string& a, const std::string& b) {
  std::istringstream lines_a(a);
  std::istringstream lines_b(b);
  std::string line_a;
  std::string line_b;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(lines_a, line_a));
    const bool more_b = static_cast<bool>(std::getline(lines_b, line_b));
    if (!more_a) line_a = "nothing";
    if (!more_b) line_b = "nothing";
    if (line_a != line_b || (!more_a && !more_b)) return {line_a, line_b};
  }
}

}  // namespace

void require_same(Communicator& ranks, const Sameness& question) {
  if (ranks.is_alone()) return;
  const std::vector<std::string> all = gathered(ranks, question.mine);
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i] == all[0]) continue;
    const auto [first, other] = difference(all[0], all[i]);
    throw AgreedError(fmt::format("{} has another {} than {}: {}, not {}", ranks.name_of(static_cast<int>(i)),
                                  question.what, ranks.name_of(0), other, first),
                      question.remedy);
  }
}

}  // namespace quaver
