#include "train/checkpoint_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <fmt/core.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <ranges>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace quaver {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t manifest_version = 2;  // 1: without run.json
constexpr std::string_view manifest_format = "quaver-checkpoint";
constexpr std::size_t max_manifest_bytes = 1 << 20;
constexpr std::uint64_t max_text_bytes = std::uint64_t{1} << 30U;  // state.json: some kilobytes per site

constexpr const char* model_file = checkpoint_model_file;
constexpr const char* optimizer_file = checkpoint_optimizer_file;
constexpr const char* state_file = "state.json";
constexpr const char* run_file = "run.json";
constexpr const char* manifest_file = "manifest.json";
constexpr std::array parts = {model_file, optimizer_file, state_file};  // of every checkpoint

constexpr std::string_view step_prefix = "step-";
constexpr std::string_view temporary_prefix = ".tmp-";
constexpr std::string_view replaced_prefix = ".tmp-replaced-";
constexpr std::string_view unusable_prefix = "unusable-";

// Thrown where a checkpoint is sound but beyond this version, so that latest_good does not take it for damage.
class NewerVersion : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void damaged(std::string_view source, const std::string& what) {
  throw Error(fmt::format("{}: {}", source, what),
              "the checkpoint is damaged: resume from an older one, or restore it");
}

std::string step_name(std::uint64_t step) { return fmt::format("{}{:06}", step_prefix, step); }

// Only names that step_name gives: step-500 and step-0000500 are someone else's.
std::optional<std::uint64_t> parse_step_name(std::string_view name) {
  if (!name.starts_with(step_prefix)) return std::nullopt;
  const std::string_view digits = name.substr(step_prefix.size());
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step_name(step) != name) return std::nullopt;
  return step;
}

bool is_part(const fs::path& name) {
  return name == manifest_file || name == run_file ||
         std::any_of(parts.begin(), parts.end(), [&](const char* part) { return name == part; });
}

bool something_at(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

std::vector<fs::path> list(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), last; !error && entry != last; entry.increment(error)) {
    found.push_back(entry->path());
  }
  if (error) throw system_error("cannot list", directory, error.value());
  return found;
}

// A directory with none but our files (or their temporaries): a checkpoint, whole or damaged, that is ours to replace.
// Anything else was put there by someone and is never deleted.
bool is_ours(const fs::path& path) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() != fs::file_type::directory) return false;
  const auto entries = list(path);
  return std::all_of(entries.begin(), entries.end(), [](const fs::path& entry) {
    return is_part(entry.filename()) || entry.filename().string().starts_with(temporary_prefix);
  });
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw system_error("cannot put in place", to, errno);
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw system_error("cannot remove", path, error.value());
}

std::string manifest_ending(std::string_view body) {
  return fmt::format("\"manifest_crc32c\": \"{:08x}\"\n}}\n", crc32c(std::as_bytes(std::span(body))));
}

FileDigest parse_digest(const nlohmann::json& entry, const std::string& name, std::string_view source) {
  if (!entry.is_object() || entry.size() != 2 || !entry.contains("size") || !entry.contains("crc32c") ||
      !entry["size"].is_number_unsigned() || !entry["crc32c"].is_string()) {
    damaged(source, fmt::format("the entry of {} is malformed", name));
  }
  FileDigest digest{entry["size"].get<std::uint64_t>(), 0};
  const auto text = entry["crc32c"].get<std::string>();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), digest.crc32c, 16);
  if (text.size() != 8 || error != std::errc() || end != text.data() + text.size()) {
    damaged(source, fmt::format("the checksum of {} is malformed", name));
  }
  return digest;
}

void verify(const fs::path& path, const FileDigest& expected, std::span<const std::byte> bytes) {
  if (bytes.size() != expected.size) {
    damaged(path.string(), fmt::format("{} bytes where the manifest says {}", bytes.size(), expected.size));
  }
  if (crc32c(bytes) != expected.crc32c) damaged(path.string(), "the checksum does not agree with the manifest");
}

}  // namespace

std::string render_manifest(const CheckpointManifest& manifest) {
  std::string text = fmt::format("{{\n\"format\": \"{}\",\n\"version\": {},\n\"step\": {},\n\"files\": {{\n",
                                 manifest_format, manifest_version, manifest.step);
  std::string_view separator;
  for (const auto& [name, digest] : manifest.files) {
    text += fmt::format("{}  \"{}\": {{\"size\": {}, \"crc32c\": \"{:08x}\"}}", separator, name, digest.size,
                        digest.crc32c);
    separator = ",\n";
  }
  text += "\n},\n";
  return text + manifest_ending(text);
}

CheckpointManifest parse_manifest(std::string_view text, std::string_view source) {
  if (text.size() > max_manifest_bytes)
    damaged(source, fmt::format("{} bytes are too many for a manifest", text.size()));
  const auto ending = text.rfind("\"manifest_crc32c\"");
  if (ending == std::string_view::npos || text.substr(ending) != manifest_ending(text.substr(0, ending))) {
    damaged(source, "the manifest does not agree with its own checksum");
  }
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != manifest_format) {
    damaged(source, "this is not a checkpoint manifest");
  }
  const auto version = json.value("version", nlohmann::json());
  if (!version.is_number_unsigned() || version == 0) damaged(source, "the manifest has no version");
  if (version > manifest_version) {
    throw NewerVersion(fmt::format("{}: the checkpoint has version {}; this program reads up to {}", source,
                                   version.get<std::uint64_t>(), manifest_version),
                       "use the newer quaver that wrote it, or name an older checkpoint");
  }
  const auto step = json.value("step", nlohmann::json());
  const auto files = json.value("files", nlohmann::json());
  if (!step.is_number_unsigned() || !files.is_object()) damaged(source, "the manifest lacks its step or its files");
  CheckpointManifest manifest{step.get<std::uint64_t>(), {}};
  for (const auto& [name, entry] : files.items()) {
    if (!is_part(name) || name == manifest_file) damaged(source, "the manifest lists a file that no checkpoint has");
    manifest.files[name] = parse_digest(entry, name, source);
  }
  for (const char* part : parts) {
    if (!manifest.files.contains(part)) damaged(source, fmt::format("the manifest does not list {}", part));
  }
  return manifest;
}

Checkpoint::Checkpoint(std::uint64_t step, fs::path path, SafetensorsFile model, SafetensorsFile optimizer,
                       std::string state, std::string run)
    : step_(step),
      path_(std::move(path)),
      model_(std::move(model)),
      optimizer_(std::move(optimizer)),
      state_(std::move(state)),
      run_(std::move(run)) {}

CheckpointStore::CheckpointStore(const fs::path& run_directory, int keep)
    : CheckpointStore(run_directory, keep, Access::write) {}

CheckpointStore CheckpointStore::read_only(const fs::path& run_directory) {
  return {run_directory, std::numeric_limits<int>::max(), Access::read};
}

CheckpointStore::CheckpointStore(const fs::path& run_directory, int keep, Access access)
    : directory_(run_directory / "checkpoints"), keep_(keep), access_(access) {
  if (keep_ < 1) throw Error(fmt::format("cannot keep {} checkpoints", keep_), "keep at least 1");
  std::error_code error;
  const bool exists = fs::exists(directory_, error);
  if (exists && !fs::is_directory(directory_, error)) {
    throw Error(fmt::format("{} is not a directory", directory_.string()),
                "move it away, or choose another run directory");
  }
  if (access_ == Access::read) return;
  make_folder(directory_);
  lock();
  try {
    clean_up();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

CheckpointStore::~CheckpointStore() {
  if (lock_ >= 0) ::close(lock_);
}

CheckpointStore::CheckpointStore(CheckpointStore&& other) noexcept
    : directory_(std::move(other.directory_)),
      keep_(other.keep_),
      access_(other.access_),
      lock_(std::exchange(other.lock_, -1)) {}

// The lock is on the open directory, so that the system drops it with the process, however that ends.
void CheckpointStore::lock() {
  lock_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) throw system_error("cannot open", directory_, errno);
  // Another errno than EWOULDBLOCK: a network file system without locks, where the single writer is the user's care.
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(lock_);
    throw Error(fmt::format("{} is in use by another writer", directory_.string()),
                "wait for the run that trains there, or stop it, or choose another run directory");
  }
}

// A checkpoint that was moved aside for a replacement which never arrived goes back; all else temporary goes.
void CheckpointStore::clean_up() {
  std::vector<fs::path> leftovers;
  for (const fs::path& entry : list(directory_)) {
    if (entry.filename().string().starts_with(temporary_prefix)) leftovers.push_back(entry);
  }
  for (const fs::path& leftover : leftovers) {
    const std::string name = leftover.filename().string();
    if (name.starts_with(replaced_prefix)) {
      const auto step = parse_step_name(std::string_view(name).substr(replaced_prefix.size()));
      if (step && !something_at(path_of(*step))) {
        rename_or_throw(leftover, path_of(*step));
        continue;
      }
    }
    remove_tree(leftover);
  }
  if (!leftovers.empty()) sync_directory(directory_);
}

fs::path CheckpointStore::path_of(std::uint64_t step) const { return directory_ / step_name(step); }

fs::path CheckpointStore::temporary_of(std::uint64_t step) const {
  return directory_ / fmt::format("{}{}-{}", temporary_prefix, step_name(step), getpid());
}

void CheckpointStore::require_writable() const {
  if (access_ == Access::read) {
    throw Error(fmt::format("{} was opened for reading only", directory_.string()), "open the store for writing");
  }
}

// Replacing swaps the two in one call where the file system can; elsewhere the old one steps aside under a name that
// clean_up() knows how to bring back.
void CheckpointStore::put_in_place(const fs::path& temporary, std::uint64_t step) {
  const fs::path target = path_of(step);
  if (!something_at(target)) {
    rename_or_throw(temporary, target);
  } else if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
    const fs::path aside = directory_ / (std::string(replaced_prefix) + step_name(step));
    rename_or_throw(target, aside);
    if (std::rename(temporary.c_str(), target.c_str()) != 0) {
      const int error_number = errno;
      rename_or_throw(aside, target);
      throw system_error("cannot put in place", target, error_number);
    }
    remove_tree(aside);
  }
  sync_directory(directory_);
}

Error CheckpointStore::not_saved(std::uint64_t step, const Error& error) const {
  return Error(fmt::format("the checkpoint of step {} was not saved: {}", step, error.what()),
               fmt::format("{}; {}", error.remedy(), intact_checkpoints()));
}

fs::path CheckpointStore::begin(std::uint64_t step, const CheckpointContent& content) {
  require_writable();
  const fs::path target = path_of(step);
  if (!nlohmann::json::accept(content.state)) {
    throw Error(fmt::format("{}: the state to save is not JSON", target.string()), "pass one JSON document");
  }
  if (something_at(target) && !is_ours(target)) {
    throw Error(fmt::format("{} is in the way: it holds something other than a checkpoint", target.string()),
                "move it out of the checkpoints directory");
  }
  fs::path folder = temporary_of(step);
  try {
    remove_tree(folder);
    std::error_code error;
    fs::create_directory(folder, error);
    if (error) throw system_error("cannot create", folder, error.value());
    CheckpointDraft(folder, content).create();
  } catch (const Error& error) {
    abandon(step);
    throw not_saved(step, error);
  }
  return folder;
}

void CheckpointStore::abandon(std::uint64_t step) const {
  std::error_code ignored;  // already failing; the next open cleans up
  fs::remove_all(temporary_of(step), ignored);
}

CheckpointStore::Saved CheckpointStore::commit(std::uint64_t step, const CheckpointContent& content,
                                               const CheckpointDraft::Checksums& checksums) {
  const fs::path folder = temporary_of(step);
  Saved saved{path_of(step), 0, {}, {}};
  try {
    CheckpointManifest manifest{step, CheckpointDraft(folder, content).digests(checksums)};
    manifest.files[state_file] = write_file_atomically(folder / state_file, content.state);
    if (!content.run.empty()) manifest.files[run_file] = write_file_atomically(folder / run_file, content.run);
    saved.bytes = write_file_atomically(folder / manifest_file, render_manifest(manifest)).size;
    for (const auto& [name, digest] : manifest.files) saved.bytes += digest.size;
    put_in_place(folder, step);
    abandon(step);  // what is left under the temporary name, if anything, is the replaced one
  } catch (const Error& error) {
    abandon(step);
    throw not_saved(step, error);
  }
  prune(step, saved);
  return saved;
}

CheckpointStore::Saved CheckpointStore::save(std::uint64_t step, const CheckpointContent& content) {
  const fs::path folder = begin(step, content);
  CheckpointDraft::Checksums checksums;
  try {
    checksums = CheckpointDraft(folder, content).write();
  } catch (const Error& error) {
    abandon(step);
    throw not_saved(step, error);
  }
  return commit(step, content, checksums);
}

std::string CheckpointStore::intact_checkpoints() const {
  try {
    if (const auto newest = latest_good(nullptr)) {
      return fmt::format("the older checkpoints are intact, the newest good one is {}", newest->path().string());
    }
  } catch (const Error&) {
    return "the older checkpoints are untouched, but the newest could not be read";
  }
  return "there is no older checkpoint yet";
}

// The name goes first, so that a crash in the middle leaves a temporary and not a checkpoint with files missing.
void CheckpointStore::remove_checkpoint(std::uint64_t step) {
  const fs::path doomed = temporary_of(step);
  remove_tree(doomed);
  rename_or_throw(path_of(step), doomed);
  sync_directory(directory_);
  remove_tree(doomed);
}

std::vector<std::uint64_t> CheckpointStore::removable_before(std::uint64_t step) const {
  std::vector<std::uint64_t> found = steps();
  std::erase_if(found, [&](std::uint64_t older) { return older >= step || !is_ours(path_of(older)); });
  return found;
}

void CheckpointStore::prune(std::uint64_t just_written, Saved& saved) {
  const auto candidates = removable_before(just_written);
  const auto kept = static_cast<std::size_t>(keep_) - 1;  // the one just written is one of them
  for (std::size_t i = 0; i + kept < candidates.size(); ++i) {
    try {
      remove_checkpoint(candidates[i]);
      saved.removed.push_back(candidates[i]);
    } catch (const Error& error) {
      saved.warnings.push_back(fmt::format("{} ({})", error.what(), error.remedy()));
    }
  }
}

std::vector<fs::path> CheckpointStore::set_aside_after(std::uint64_t step) {
  require_writable();
  std::vector<fs::path> aside;
  const auto present = steps();
  // Newest first: a crash in the middle then leaves a history without a gap.
  for (auto later = present.rbegin(); later != present.rend() && *later > step; ++later) {
    const std::string name = std::string(unusable_prefix) + step_name(*later);
    fs::path target = directory_ / name;
    for (int again = 2; something_at(target); ++again) target = directory_ / fmt::format("{}-{}", name, again);
    rename_or_throw(path_of(*later), target);
    aside.push_back(target);
  }
  if (!aside.empty()) sync_directory(directory_);
  return aside;
}

void CheckpointStore::repair() {
  require_writable();
  if (!fs::exists(directory_)) {
    make_folder(directory_);
    if (lock_ >= 0) ::close(std::exchange(lock_, -1));
    lock();
  }
  const auto newest = latest_good(nullptr);
  if (!newest) return;
  const auto old = removable_before(newest->step());
  const auto kept = static_cast<std::size_t>(std::max(keep_ - 2, 0));  // beside the newest and the one to come
  for (std::size_t i = 0; i + kept < old.size(); ++i) remove_checkpoint(old[i]);
}

std::vector<std::uint64_t> CheckpointStore::steps() const {
  std::vector<std::uint64_t> found;
  std::error_code error;
  if (!fs::exists(directory_, error)) return found;
  for (const fs::path& entry : list(directory_)) {
    if (const auto step = parse_step_name(entry.filename().string())) found.push_back(*step);
  }
  std::sort(found.begin(), found.end());
  return found;
}

CheckpointManifest CheckpointStore::manifest_of(std::uint64_t step) const {
  const fs::path folder = path_of(step);
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    const auto present = steps();
    throw Error(fmt::format("there is no checkpoint directory {}", folder.string()),
                present.empty() ? "the run has no checkpoint yet"
                                : fmt::format("the newest step is {}, the oldest {}", present.back(), present.front()));
  }
  const fs::path path = folder / manifest_file;
  if (!fs::exists(path, error)) damaged(folder.string(), "manifest.json is missing");
  CheckpointManifest manifest = parse_manifest(read_file(path, max_manifest_bytes), path.string());
  if (manifest.step != step) damaged(path.string(), fmt::format("the manifest is of step {}", manifest.step));
  return manifest;
}

Checkpoint CheckpointStore::load(std::uint64_t step) const {
  const fs::path folder = path_of(step);
  const CheckpointManifest manifest = manifest_of(step);
  for (const auto& [name, digest] : manifest.files) {
    verify(folder / name, digest, MappedFile::open(folder / name).bytes());
  }
  const auto text_of = [&](const char* part) {
    std::string text = read_file(folder / part, max_text_bytes);
    if (!nlohmann::json::accept(text)) damaged((folder / part).string(), "the text is not JSON");
    return text;
  };
  return {step,
          folder,
          SafetensorsFile::open(folder / model_file),
          SafetensorsFile::open(folder / optimizer_file),
          text_of(state_file),
          manifest.files.contains(run_file) ? text_of(run_file) : ""};
}

std::optional<Checkpoint> CheckpointStore::latest_good(const Report& report, const Accept& accept) const {
  const auto present = steps();
  for (auto newest = present.rbegin(); newest != present.rend(); ++newest) {
    const std::uint64_t step = *newest;
    try {
      Checkpoint checkpoint = load(step);
      if (accept) accept(checkpoint);
      return checkpoint;
    } catch (const NewerVersion&) {
      throw;
    } catch (const Error& error) {
      if (report) report(path_of(step), error.what());
    }
  }
  return std::nullopt;
}

std::string CheckpointStore::latest_run() const {
  const auto present = steps();
  for (auto newest = present.rbegin(); newest != present.rend(); ++newest) {
    try {
      const CheckpointManifest manifest = manifest_of(*newest);
      if (!manifest.files.contains(run_file)) return "";
      const fs::path path = path_of(*newest) / run_file;
      std::string text = read_file(path, max_text_bytes);
      verify(path, manifest.files.at(run_file), std::as_bytes(std::span(text)));
      return text;
    } catch (const Error&) {  // latest_good() says what is wrong with it
      continue;
    }
  }
  return "";
}

}  // namespace quaver
