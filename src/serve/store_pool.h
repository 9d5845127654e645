// The stores that a dashboard serves: that of the folder it was given, and those in the folders below. Finds new stores
// while it runs, and gives the runs of each store distinct addresses.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/store_handle.h"

namespace quaver {

// Bounds of a search for stores.
struct SearchLimits {
  std::size_t depth = 4;                  // folders below the first
  std::size_t stores = 100;               // each needs some file descriptors
  std::size_t entries = 50'000;           // of all folders together
  std::chrono::milliseconds every{5000};  // between searches, or fifty times the duration of the last one
};

struct FoundStores {
  std::vector<std::filesystem::path> files;  // sorted
  std::vector<std::string> problems;         // unreadable folders, limits reached
};

// Every quaver.db in the folder and below. Symbolic links to folders are not followed; folders of runs (they have a
// run_id) and hidden folders are skipped. A folder that does not exist has none.
FoundStores search_stores(const std::filesystem::path& folder, const SearchLimits& limits = {});

// A run's address is its id and the store's suffix: empty for the store of the folder itself, so that its runs keep
// their addresses, and "~" with a hash of the folder's path for those below.
struct ServedStore {
  std::shared_ptr<StoreHandle> handle;
  std::string folder;  // relative to the dashboard's folder; empty for the store of that folder itself
  std::string suffix;
};

class StorePool {
 public:
  // `named`: a folder of runs, which is searched, or a run or a store's file, which name one store. Need not exist.
  explicit StorePool(const std::filesystem::path& named, const SearchLimits& limits = {});

  // Searches again where SearchLimits::every has passed.
  void refresh();

  std::vector<ServedStore> all() const;  // the store of the folder itself first, whether it exists or not

  // Calls `use` with each store that exists and returns the errors of those that failed. Throws where all failed.
  std::vector<Error> visit(const std::function<void(const StoreReader&, const ServedStore&)>& use) const;

  std::vector<std::string> problems() const;

  // By the suffix of a run's address.
  std::optional<ServedStore> with_suffix(std::string_view suffix) const;

  const std::filesystem::path& folder() const { return folder_; }
  std::size_t depth() const { return searches_ ? limits_.depth : 0; }  // of the search, in folders

  // The text without the paths of this machine that lead to the stores.
  std::string without_folders(std::string text) const;

 private:
  void search();

  const SearchLimits limits_;
  const std::filesystem::path main_;    // the store of the folder itself
  const std::filesystem::path folder_;  // that contains it
  const bool searches_;

  mutable std::mutex mutex_;
  std::vector<ServedStore> stores_;
  std::vector<std::string> problems_;
  std::chrono::steady_clock::time_point next_search_{};
};

}  // namespace quaver
