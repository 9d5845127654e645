#include "serve/store_pool.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <set>
#include <span>
#include <sys/stat.h>

#include "io/file_io.h"

namespace quaver {

namespace {

namespace fs = std::filesystem;

// Files by device and inode: a link and its target are one store.
class SeenFiles {
 public:
  bool add(const fs::path& file) {
    struct stat found {};
    return stat(file.c_str(), &found) == 0 && seen_.emplace(found.st_dev, found.st_ino).second;
  }

 private:
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen_;
};

struct Listing {
  std::vector<fs::path> folders;
  bool has_store = false;
  bool is_run = false;
};

// Counts every entry, and stops when there are too many.
Listing list_folder(const fs::path& folder, std::size_t& entries_left, std::error_code& failure) {
  Listing listing;
  for (fs::directory_iterator entry(folder, failure); !failure && entry != fs::directory_iterator();
       entry.increment(failure)) {
    if (entries_left == 0) break;
    --entries_left;
    const fs::path name = entry->path().filename();
    std::error_code ignored;
    if (name == store_file_name) {
      listing.has_store = entry->is_regular_file(ignored);
    } else if (name == "run_id") {
      listing.is_run = true;
    } else if (!name.string().starts_with('.') && fs::is_directory(entry->symlink_status(ignored))) {
      listing.folders.push_back(entry->path());
    }
  }
  std::sort(listing.folders.begin(), listing.folders.end());
  return listing;
}

bool is_absent(const std::error_code& failure) {
  return failure == std::errc::no_such_file_or_directory || failure == std::errc::not_a_directory;
}

std::string suffix_for(const std::string& folder, const std::vector<ServedStore>& taken) {
  std::uint32_t hash = crc32c(std::as_bytes(std::span(folder.data(), folder.size())));
  const auto text = [&] { return fmt::format("~{:08x}", hash); };
  while (std::any_of(taken.begin(), taken.end(), [&](const ServedStore& store) { return store.suffix == text(); })) {
    ++hash;
  }
  return text();
}

}  // namespace

FoundStores search_stores(const fs::path& folder, const SearchLimits& limits) {
  FoundStores found;
  SeenFiles seen;
  std::size_t entries_left = limits.entries;
  std::deque<std::pair<fs::path, std::size_t>> waiting{{folder, 0}};  // with its depth; breadth first
  for (; !waiting.empty() && entries_left > 0; waiting.pop_front()) {
    const auto& [at, depth] = waiting.front();
    std::error_code failure;
    Listing listing = list_folder(at, entries_left, failure);
    if (failure && !is_absent(failure)) {
      found.problems.push_back(fmt::format("{} cannot be searched for stores: {}", at.string(), failure.message()));
    }
    if (listing.has_store && seen.add(at / store_file_name)) {
      if (found.files.size() == limits.stores) {
        found.problems.push_back(
            fmt::format("more than {} stores: the others are not shown; name a folder further down", limits.stores));
        break;
      }
      found.files.push_back(at / store_file_name);
    }
    if (listing.is_run || depth == limits.depth) continue;
    for (fs::path& below : listing.folders) waiting.emplace_back(std::move(below), depth + 1);
  }
  if (entries_left == 0) {
    found.problems.push_back(
        fmt::format("more than {} files and folders: not all were searched for stores; name a "
                    "folder further down",
                    limits.entries));
  }
  std::sort(found.files.begin(), found.files.end());
  return found;
}

StorePool::StorePool(const fs::path& named, const SearchLimits& limits)
    : limits_(limits),
      main_(find_store(named)),
      folder_(main_.has_parent_path() ? main_.parent_path() : fs::path(".")),
      searches_(main_ == named / store_file_name),
      stores_{{std::make_shared<StoreHandle>(main_), "", ""}} {
  search();
}

void StorePool::refresh() {
  {
    const std::lock_guard lock(mutex_);
    if (std::chrono::steady_clock::now() < next_search_) return;
  }
  search();
}

void StorePool::search() {
  if (!searches_) return;
  const auto began = std::chrono::steady_clock::now();
  FoundStores found = search_stores(folder_, limits_);
  const auto ended = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  std::vector<ServedStore> served{stores_.front()};
  for (const fs::path& file : found.files) {
    if (file == main_) continue;
    const std::string folder = file.parent_path().lexically_relative(folder_).generic_string();
    const auto known = std::find_if(stores_.begin() + 1, stores_.end(),
                                    [&](const ServedStore& store) { return store.folder == folder; });
    served.push_back(known != stores_.end()
                         ? *known
                         : ServedStore{std::make_shared<StoreHandle>(file), folder, suffix_for(folder, served)});
  }
  stores_ = std::move(served);
  problems_ = std::move(found.problems);
  next_search_ = ended + std::max<std::chrono::steady_clock::duration>(limits_.every, 50 * (ended - began));
}

std::vector<ServedStore> StorePool::all() const {
  const std::lock_guard lock(mutex_);
  return stores_;
}

std::vector<Error> StorePool::visit(const std::function<void(const StoreReader&, const ServedStore&)>& use) const {
  std::vector<Error> failures;
  std::size_t used = 0;
  for (const ServedStore& store : all()) {
    try {
      const std::shared_ptr<StoreReader> reader = store.handle->reader();
      if (reader == nullptr) continue;
      use(*reader, store);
      ++used;
    } catch (const Error& error) {
      failures.push_back(error);
    }
  }
  if (used == 0 && !failures.empty()) throw Error(failures[0]);
  return failures;
}

std::vector<std::string> StorePool::problems() const {
  const std::lock_guard lock(mutex_);
  return problems_;
}

std::optional<ServedStore> StorePool::with_suffix(std::string_view suffix) const {
  const std::lock_guard lock(mutex_);
  for (const ServedStore& store : stores_) {
    if (store.suffix == suffix) return store;
  }
  return std::nullopt;
}

std::string StorePool::without_folders(std::string text) const {
  return StoreHandle(main_).without_folders(std::move(text));
}

}  // namespace quaver
