// A handle to a store that may not exist yet, and may be deleted or replaced while the dashboard runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "store/reader.h"

namespace quaver {

// The store's file for a path that names a folder of runs, one of its runs, or the file itself. It need not exist.
std::filesystem::path find_store(const std::filesystem::path& named);

class StoreHandle {
 public:
  explicit StoreHandle(std::filesystem::path store) : path_(std::move(store)) {}

  // The store, opened when the file first exists and again whenever another file has replaced it; null while there is
  // none. Error where the file is no store. From any thread; readers that were returned before stay usable.
  std::shared_ptr<StoreReader> reader();

  const std::filesystem::path& path() const { return path_; }
  std::string file_name() const { return path_.filename().string(); }

  // The text without the paths of this machine that lead to the store: clients need not see them.
  std::string without_folders(std::string text) const;

 private:
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t file = 0;
    bool operator==(const Identity&) const = default;
  };

  const std::filesystem::path path_;
  std::mutex mutex_;
  Identity identity_;  // of the file that is open
  std::shared_ptr<StoreReader> reader_;
};

}  // namespace quaver
