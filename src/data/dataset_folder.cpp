#include "data/dataset_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "data/dataset.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view digits = "0123456789";

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
}

// train-00000.qv, valid-00012.bin: names that only prepare() gives.
bool is_shard_name(std::string_view name) {
  const bool prefix = name.starts_with("train-") || name.starts_with("valid-");
  const bool suffix = name.ends_with(".qv") || name.ends_with(".bin");
  if (!prefix || !suffix) return false;
  const std::string_view number = name.substr(6, name.rfind('.') - 6);
  return number.size() >= 5 && is_number(number);
}

// train-00000.g2.qv is staged for train-00000.qv, as generation 2.
std::string staged_name(const std::string& usual, int generation) {
  if (generation == 0) return usual;
  const std::size_t dot = usual.rfind('.');
  return fmt::format("{}.g{}{}", usual.substr(0, dot), generation, usual.substr(dot));
}

struct OwnName {
  std::string usual;
  int generation;
};

std::optional<OwnName> parse_own_name(const std::string& name) {
  const auto has_role = [](const std::string& usual) { return is_shard_name(usual) || usual == tokenizer_file_name; };
  if (has_role(name)) return OwnName{name, 0};
  const std::size_t extension = name.rfind('.');
  if (extension == std::string::npos) return std::nullopt;
  const std::size_t mark = name.substr(0, extension).rfind(".g");
  if (mark == std::string::npos) return std::nullopt;
  OwnName own{name.substr(0, mark) + name.substr(extension), 0};
  std::from_chars(name.data() + mark + 2, name.data() + extension, own.generation);
  if (own.generation <= 0 || !has_role(own.usual) || staged_name(own.usual, own.generation) != name) {
    return std::nullopt;
  }
  return own;
}

// .tmp-<name>-<process>-<counter>, which an AtomicFile of a killed process leaves.
bool is_temporary_of_ours(std::string_view name) {
  constexpr std::string_view prefix = ".tmp-";
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  for (int part = 0; part < 2; ++part) {
    const std::size_t dash = name.rfind('-');
    if (dash == std::string_view::npos || !is_number(name.substr(dash + 1))) return false;
    name = name.substr(0, dash);
  }
  return name == dataset_file_name || parse_own_name(std::string(name)).has_value();
}

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure)) {
    std::error_code unknown;
    if (!entry->is_directory(unknown)) names.push_back(entry->path().filename().string());
  }
  if (failure) throw system_error("cannot search", folder, failure.value());
  std::sort(names.begin(), names.end());
  return names;
}

// For what may stay behind: the next writer removes it.
void try_to_remove(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

}  // namespace

void refuse_existing_dataset(const fs::path& folder) {
  std::error_code unknown;
  if (!fs::is_directory(folder, unknown)) return;
  for (const std::string& name : files_in(folder)) {
    const std::optional<OwnName> own = parse_own_name(name);
    if (name != dataset_file_name && (!own || !is_shard_name(own->usual))) continue;
    throw Error(fmt::format("{} already holds a data set ({})", folder.string(), (folder / name).string()),
                "write to another folder, or allow overwriting");
  }
}

DatasetFolder::DatasetFolder(const fs::path& folder, ExistingDataset existing) : folder_(folder) {
  make_folder(folder_);
  lock();
  try {
    if (existing == ExistingDataset::refuse) refuse_existing_dataset(folder_);
    read_old_index();
    remove_leftovers();
    generation_ = free_generation();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

DatasetFolder::~DatasetFolder() {
  if (!committed_) {
    for (const auto& [usual, actual] : staged_) try_to_remove(folder_ / actual);
  }
  ::close(descriptor_);
}

// The lock is on the open folder, so that the system drops it with the process, however that ends.
void DatasetFolder::lock() {
  descriptor_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) throw system_error("cannot open", folder_, errno);
  // Another errno than EWOULDBLOCK: a network file system without locks, where the single writer is the user's care.
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw Error(fmt::format("another process is writing a data set to {}", folder_.string()),
              "wait for it, or write to another folder");
}

void DatasetFolder::read_old_index() {
  const fs::path path = folder_ / dataset_file_name;
  std::error_code failure;
  if (!fs::exists(path, failure)) return;
  try {
    const nlohmann::json index = nlohmann::json::parse(read_file(path, max_dataset_file_bytes));
    for (const char* split : {"train", "valid"}) {
      for (const nlohmann::json& entry : index.at(split)) referenced_.insert(entry.at("file").get<std::string>());
    }
    const nlohmann::json& tokenizer = index.at("tokenizer");
    if (tokenizer.contains("file")) referenced_.insert(tokenizer.at("file").get<std::string>());
    replaced_ = referenced_;
    if (index.contains("replaces")) replaced_.merge(index.at("replaces").get<std::set<std::string>>());
  } catch (const nlohmann::json::exception&) {
    index_is_readable_ = false;  // a damaged data set may be overwritten; nothing of it is removed before that
  }
}

// Staged names are given by this class alone; what no index refers to belongs to a writer that was killed.
void DatasetFolder::remove_leftovers() const {
  for (const std::string& name : files_in(folder_)) {
    const std::optional<OwnName> own = parse_own_name(name);
    const bool staged = own && own->generation > 0 && index_is_readable_ && !referenced_.contains(name);
    if (staged || is_temporary_of_ours(name)) try_to_remove(folder_ / name);
  }
}

int DatasetFolder::free_generation() const {
  std::set<int> taken;
  for (const std::string& name : files_in(folder_)) {
    if (const std::optional<OwnName> own = parse_own_name(name)) taken.insert(own->generation);
  }
  int generation = 0;
  while (taken.contains(generation)) ++generation;
  return generation;
}

fs::path DatasetFolder::stage(const std::string& name) {
  return folder_ / staged_.emplace(name, staged_name(name, generation_)).first->second;
}

void DatasetFolder::write_index(const std::string& text) const {
  write_file_atomically(folder_ / dataset_file_name, text);
}

void DatasetFolder::commit(const Index& index) {
  const std::string text = index({[this](const std::string& name) { return staged_.at(name); }, replaced_});
  committed_ = true;
  try {
    write_index(text);
  } catch (const Error&) {
    committed_ = holds_index(text);  // a failure to sync may come after the rename
    throw;
  }
  try {
    remove_old_files();
    if (generation_ > 0 || !replaced_.empty()) take_usual_names(index);
  } catch (const Error&) {
    // The new data set is in place and whole, if not tidy; the next writer tidies up.
  }
}

bool DatasetFolder::holds_index(const std::string& text) const {
  try {
    return read_file(folder_ / dataset_file_name, max_dataset_file_bytes) == text;
  } catch (const Error&) {
    return true;  // unknown: rather leave files behind than remove what may be referred to
  }
}

// A tokenizer.json that no data set referred to is someone else's.
void DatasetFolder::remove_old_files() const {
  std::set<std::string> current;
  for (const auto& [usual, actual] : staged_) current.insert(actual);
  for (const std::string& name : files_in(folder_)) {
    const std::optional<OwnName> own = parse_own_name(name);
    if (!own || current.contains(name)) continue;
    if (is_shard_name(own->usual) || replaced_.contains(name)) try_to_remove(folder_ / name);
  }
}

// By hard links, so that the files are there under both names while dataset.json changes from one to the other.
void DatasetFolder::take_usual_names(const Index& index) {
  std::map<std::string, std::string> renamed;  // as staged_
  for (const auto& [usual, actual] : staged_) {
    std::error_code failure;
    fs::create_hard_link(folder_ / actual, folder_ / usual, failure);
    if (!failure) renamed.emplace(usual, actual);
  }
  sync_directory(folder_);
  write_index(index({[&](const std::string& name) { return renamed.contains(name) ? name : staged_.at(name); }, {}}));
  for (const auto& [usual, actual] : renamed) try_to_remove(folder_ / actual);
}

}  // namespace quaver
