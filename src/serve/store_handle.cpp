#include "serve/store_handle.h"

#include <sys/stat.h>

namespace quaver {

namespace {

void remove_all(std::string& text, const std::string& part) {
  if (part.empty() || part == "/") return;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
}

}  // namespace

std::filesystem::path find_store(const std::filesystem::path& named) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_regular_file(named, ignored) || (!fs::exists(named, ignored) && named.extension() == ".db")) return named;
  const fs::path inside = named / store_file_name;
  const bool is_run = fs::exists(named / "config.toml", ignored) && !fs::exists(inside, ignored);
  const fs::path beside = fs::weakly_canonical(named, ignored).parent_path() / store_file_name;
  return is_run && fs::exists(beside, ignored) ? beside : inside;
}

std::shared_ptr<StoreReader> StoreHandle::reader() {
  struct stat found {};
  const bool exists = stat(path_.c_str(), &found) == 0;
  const std::lock_guard lock(mutex_);
  if (!exists) {
    reader_.reset();
    return nullptr;
  }
  const Identity identity{found.st_dev, found.st_ino};
  if (reader_ == nullptr || identity != identity_) {
    reader_.reset();
    reader_ = std::make_shared<StoreReader>(path_);
    identity_ = identity;
  }
  return reader_;
}

std::string StoreHandle::without_folders(std::string text) const {
  std::error_code failure;
  const std::filesystem::path absolute = std::filesystem::absolute(path_, failure);
  const std::filesystem::path real = std::filesystem::weakly_canonical(path_, failure);
  for (const std::filesystem::path& path : {path_, absolute, real}) {
    if (path.has_parent_path()) remove_all(text, (path.parent_path() / "").string());
  }
  return text;
}

}  // namespace quaver
