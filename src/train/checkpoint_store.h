// The checkpoints of a run: <run>/checkpoints/step-000500/ with model.safetensors, optimizer.safetensors, state.json,
// run.json (settings and data) and manifest.json, which lists each file's size and CRC-32C. A checkpoint is built under
// a temporary name and renamed into place, so that a process killed at any moment leaves it complete or absent, and
// those before it untouched.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file_io.h"
#include "io/safetensors.h"
#include "train/checkpoint_draft.h"

namespace quaver {

inline constexpr const char* checkpoint_model_file = "model.safetensors";
inline constexpr const char* checkpoint_optimizer_file = "optimizer.safetensors";

// What is saved. The tensors' data must stay valid during save(). Where several ranks save together, each has the data
// of some of the tensors, and the first one the rest.
struct CheckpointContent {
  std::vector<TensorEntry> model;
  std::vector<TensorEntry> optimizer;
  std::string state;  // JSON: step counters, random state, loader position, scale book
  std::string run;    // JSON: the run's settings and data; empty: not recorded
  Metadata metadata;  // goes into model.safetensors
};

// A checkpoint that has been read and whose checksums agree. Keeps its files mapped; spans live as long as it does.
class Checkpoint {
 public:
  std::uint64_t step() const { return step_; }
  const std::filesystem::path& path() const { return path_; }
  const SafetensorsFile& model() const { return model_; }
  const SafetensorsFile& optimizer() const { return optimizer_; }
  const std::string& state() const { return state_; }
  const std::string& run() const { return run_; }  // empty: an earlier version wrote it, which recorded none
  const Metadata& metadata() const { return model_.metadata(); }

 private:
  friend class CheckpointStore;
  Checkpoint(std::uint64_t step, std::filesystem::path path, SafetensorsFile model, SafetensorsFile optimizer,
             std::string state, std::string run);
  std::uint64_t step_;
  std::filesystem::path path_;
  SafetensorsFile model_;
  SafetensorsFile optimizer_;
  std::string state_;
  std::string run_;
};

// manifest.json. Its last field is a checksum of the text before it, so that a damaged manifest is told from one that
// a newer version wrote. parse_manifest throws Error on damage, on a newer version and on a file it does not know.
struct CheckpointManifest {
  std::uint64_t step = 0;
  std::map<std::string, FileDigest> files;
};
std::string render_manifest(const CheckpointManifest& manifest);
CheckpointManifest parse_manifest(std::string_view text, std::string_view source);

class CheckpointStore {
 public:
  // Opens the store of a run for writing, making the directories, and removes what a killed process left half-done.
  // keep: how many of the newest checkpoints stay after a save, at least 1; the disk must hold one more while saving.
  // One writer at a time: a second one, in this process or another, is an Error.
  CheckpointStore(const std::filesystem::path& run_directory, int keep);

  // For looking at a run that may be training right now: changes nothing on disk; what would change something throws.
  static CheckpointStore read_only(const std::filesystem::path& run_directory);

  ~CheckpointStore();
  CheckpointStore(CheckpointStore&& other) noexcept;
  CheckpointStore& operator=(CheckpointStore&&) = delete;
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  struct Saved {
    std::filesystem::path path;
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> removed;  // steps that keep-N deleted
    std::vector<std::string> warnings;   // old checkpoints that could not be deleted, and why
  };

  // Writes a checkpoint, replacing one of the same step atomically, then deletes the oldest beyond `keep`: never the
  // one just written, or one of a later step. On failure throws an Error that says why and which
  // checkpoint is the newest good one; nothing of the failed attempt stays on disk.
  Saved save(std::uint64_t step, const CheckpointContent& content);

  // The same in parts, for ranks that write together: begin() gives the folder of a draft (checkpoint_draft.h), which
  // every rank writes its tensors to; then comes commit() with the checksums of all, or abandon().
  std::filesystem::path begin(std::uint64_t step, const CheckpointContent& content);
  Saved commit(std::uint64_t step, const CheckpointContent& content, const CheckpointDraft::Checksums& checksums);
  void abandon(std::uint64_t step) const;
  Error not_saved(std::uint64_t step, const Error& error) const;  // what a failure in between means

  // Renames the checkpoints after a step, none of which could be used, for a run that goes on from it: they are out of
  // its way, and there for whoever can mend them. Returns where they are now.
  std::vector<std::filesystem::path> set_aside_after(std::uint64_t step);

  // After a failed save: makes the directory anew where it was removed, and deletes the old checkpoints that the next
  // save would delete anyway, but never the newest good one.
  void repair();

  // The steps present, ascending. Presence does not promise that a checkpoint is undamaged.
  std::vector<std::uint64_t> steps() const;

  // Reads one checkpoint, checking sizes and checksums. Throws Error naming the file at fault.
  Checkpoint load(std::uint64_t step) const;

  // The newest checkpoint that verifies and passes `accept`, which throws an Error where the content makes no sense.
  // Each damaged one on the way is reported by path and reason, and skipped. One that a newer version wrote is not
  // damaged: it is an Error, so that a run does not go back in time unasked.
  using Report = std::function<void(const std::filesystem::path& checkpoint, const std::string& why)>;
  using Accept = std::function<void(const Checkpoint&)>;
  std::optional<Checkpoint> latest_good(const Report& report, const Accept& accept = nullptr) const;

  // run.json of the newest checkpoint whose manifest and run.json verify, without reading the tensors; empty where
  // there is none.
  std::string latest_run() const;

  const std::filesystem::path& directory() const { return directory_; }

 private:
  enum class Access { read, write };
  CheckpointStore(const std::filesystem::path& run_directory, int keep, Access access);

  std::filesystem::path path_of(std::uint64_t step) const;
  std::filesystem::path temporary_of(std::uint64_t step) const;
  void require_writable() const;
  CheckpointManifest manifest_of(std::uint64_t step) const;
  std::vector<std::uint64_t> removable_before(std::uint64_t step) const;  // ascending; ours
  void lock();
  void clean_up();
  void put_in_place(const std::filesystem::path& temporary, std::uint64_t step);
  void remove_checkpoint(std::uint64_t step);
  void prune(std::uint64_t just_written, Saved& saved);
  std::string intact_checkpoints() const;

  std::filesystem::path directory_;  // <run>/checkpoints
  int keep_;
  Access access_;
  int lock_ = -1;
};

}  // namespace quaver
