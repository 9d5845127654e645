// The way to a store that may not be there yet, may vanish, and may be made anew while the dashboard runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "store/reader.h"

namespace quaver {

// The store that a user means by a folder of runs, one of its runs, or the file itself. It need not exist.
std::filesystem::path find_store(const std::filesystem::path& named);

class StoreDoor {
 public:
  explicit StoreDoor(std::filesystem::path store) : path_(std::move(store)) {}

  // The store, opened when it is first found and again whenever another file has taken its place; null while there is
  // none. Error where the file is no store. From any thread; what was handed out stays usable.
  std::shared_ptr<StoreReader> reader();

  const std::filesystem::path& path() const { return path_; }
  std::string file_name() const { return path_.filename().string(); }

  // The text without the folders of this machine that lead to the store.
  std::string without_folders(std::string text) const;

 private:
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t file = 0;
    bool operator==(const Identity&) const = default;
  };

  const std::filesystem::path path_;
  std::mutex mutex_;
  Identity opened_;
  std::shared_ptr<StoreReader> reader_;
};

}  // namespace quaver
