// What ranks agree on: values that each of them has, and work that all of them do or none.
#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "quaver/error.h"

namespace quaver {

// An error that every rank throws: one of them tells it, and all of them end.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// One value of each rank.
template <class T>
std::vector<T> gathered(Communicator& ranks, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(ranks.size()));
  all[static_cast<std::size_t>(ranks.rank())] = mine;
  ranks.all_gather_host(all.data(), sizeof(T));
  return all;
}

// The same number of values of each rank, rank by rank.
template <class T>
std::vector<T> gathered(Communicator& ranks, const std::vector<T>& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(mine.size() * static_cast<std::size_t>(ranks.size()));
  std::copy(mine.begin(), mine.end(), all.begin() + ranks.rank() * static_cast<std::ptrdiff_t>(mine.size()));
  if (!mine.empty()) ranks.all_gather_host(all.data(), mine.size() * sizeof(T));
  return all;
}

std::vector<std::string> gathered(Communicator& ranks, const std::string& mine);

// "rank 3 on node-7", of each.
std::vector<std::string> rank_names(Communicator& ranks);

bool any_of_ranks(Communicator& ranks, bool mine);

// The first rank's value.
template <class T>
T of_first_rank(Communicator& ranks, const T& mine) {
  return gathered(ranks, mine).front();
}

// Does the work on every rank. Where it fails on one, every rank throws an AgreedError, that of the first that failed,
// with its name. The work itself may not communicate.
void on_all_ranks(Communicator& ranks, const std::function<void()>& work);

// AgreedError, naming a rank that differs from the first one and the line in which it does, unless `mine` is the same
// text on all of them.
struct Sameness {
  std::string what;  // it is, in words
  std::string mine;
  std::string remedy;
};
void require_same(Communicator& ranks, const Sameness& question);

}  // namespace quaver
