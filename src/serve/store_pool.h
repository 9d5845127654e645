// The stores that a dashboard serves: the one of the folder it was given, and those in the folders below it. Finds new
// ones while it runs, and tells runs of different stores apart by their addresses.
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

#include "serve/store_door.h"

namespace quaver {

// What a search for stores is content with.
struct SearchLimits {
  std::size_t depth = 4;                  // folders below the first
  std::size_t stores = 100;               // each takes some file descriptors
  std::size_t entries = 50'000;           // of folders, files among them
  std::chrono::milliseconds every{5000};  // between two searches, or fifty times what the last one took
};

struct FoundStores {
  std::vector<std::filesystem::path> files;  // sorted
  std::vector<std::string> problems;         // folders that could not be read, limits that were reached
};

// Every quaver.db in the folder and below it. Links to folders are not followed, and folders of runs (they have a
// run_id) and those whose name begins with a dot are not entered. A folder that does not exist has none.
FoundStores search_stores(const std::filesystem::path& folder, const SearchLimits& limits = {});

// One of the stores. A run's address is its id and the suffix: nothing for the store of the folder itself, so that its
// runs keep their addresses, and "~" and a hash of the folder's path for those below.
struct ServedStore {
  std::shared_ptr<StoreDoor> door;
  std::string folder;  // that it lies in, from the dashboard's folder on; empty for the store of that folder itself
  std::string suffix;
};

class Stores {
 public:
  // `named`: a folder of runs, which is searched; a run or a store's file, which stand for one store. Need not exist.
  explicit Stores(const std::filesystem::path& named, const SearchLimits& limits = {});

  // Searches again where the last search is long enough ago.
  void refresh();

  std::vector<ServedStore> all() const;  // that of the folder itself first, whether it exists or not

  // Calls with each store that is there, and gives the failures of the others. Where all fail, so does this.
  std::vector<Error> visit(const std::function<void(const StoreReader&, const ServedStore&)>& use) const;

  std::vector<std::string> problems() const;

  // The store that the suffix of an address stands for.
  std::optional<ServedStore> with_suffix(std::string_view suffix) const;

  const std::filesystem::path& folder() const { return folder_; }
  std::size_t depth() const { return searches_ ? limits_.depth : 0; }  // of folders that are searched

  // The text without the folders of this machine that lead to the stores.
  std::string without_folders(std::string text) const;

 private:
  void search();

  const SearchLimits limits_;
  const std::filesystem::path main_;    // the store of the folder itself
  const std::filesystem::path folder_;  // that it lies in
  const bool searches_;

  mutable std::mutex mutex_;
  std::vector<ServedStore> stores_;
  std::vector<std::string> problems_;
  std::chrono::steady_clock::time_point next_search_{};
};

}  // namespace quaver
