#include "train/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <thread>

#include "comm/agreement.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds between_tries{2};  // of a last checkpoint that no folder takes

// Each tensor's checksum is of the rank that wrote it.
CheckpointDraft::Checksums combined(Communicator& ranks, CheckpointDraft::Checksums mine) {
  const CheckpointDraft::Checksums all = gathered(ranks, mine);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i / mine.size() != static_cast<std::size_t>(ranks.rank())) mine[i % mine.size()] ^= all[i];
  }
  return mine;
}

std::string with_remedy(const Error& error) { return fmt::format("{}; {}", error.what(), error.remedy()); }

}  // namespace

CheckpointWriter::CheckpointWriter(Trainer& trainer, const RunWatch& watch, RunLog& log, const fs::path& directory)
    : trainer_(trainer), watch_(watch), log_(log), directory_(directory) {
  if (!trainer.ranks().is_first()) return;
  make_folder(directory);
  store_.emplace(directory, static_cast<int>(std::max<Size>(1, trainer.config().train.keep)));
}

void CheckpointWriter::describe_run(const Provenance& provenance, RunFiles files) {
  provenance_ = to_json(provenance);
  files_ = std::move(files);
}

CheckpointContent CheckpointWriter::content() {
  CheckpointContent content = trainer_.snapshot(watch_.state());
  content.run = provenance_;
  return content;
}

std::optional<Checkpoint> CheckpointWriter::newest_usable() {
  Communicator& ranks = trainer_.ranks();
  std::optional<Checkpoint> checkpoint;
  on_all_ranks(ranks, [&] {
    if (writes()) checkpoint = quaver::newest_usable(*store_, [this](const std::string& text) { log_.warn(text); });
  });
  constexpr std::uint64_t none = UINT64_MAX;
  const std::uint64_t step = of_first_rank(ranks, checkpoint ? checkpoint->step() : none);
  if (step == none) return std::nullopt;
  on_all_ranks(ranks, [&] {
    if (!writes()) checkpoint = CheckpointStore::read_only(directory_).load(step);
  });
  return checkpoint;
}

// Every rank writes the parameters that it owns; the first one makes the files and commits them.
void CheckpointWriter::save_to(CheckpointStore* store) {
  Communicator& ranks = trainer_.ranks();
  const auto step = static_cast<std::uint64_t>(trainer_.steps_done());
  const CheckpointContent saved = content();
  const auto tell = [this](const CheckpointStore::Saved& done) {
    for (const std::string& warning : done.warnings) log_.warn(warning);
  };
  if (ranks.is_alone()) return tell(store->save(step, saved));
  std::string folder;
  on_all_ranks(ranks, [&] {
    if (store != nullptr) folder = store->begin(step, saved).string();
  });
  folder = gathered(ranks, folder).front();
  CheckpointDraft::Checksums checksums;
  try {
    on_all_ranks(ranks, [&] { checksums = CheckpointDraft(folder, saved).write(); });
  } catch (const Error& error) {
    if (store == nullptr) throw;
    store->abandon(step);
    const Error told = store->not_saved(step, error);
    throw AgreedError(told.what(), told.remedy());
  }
  checksums = combined(ranks, checksums);
  on_all_ranks(ranks, [&] {
    if (store != nullptr) tell(store->commit(step, saved, checksums));
  });
}

void CheckpointWriter::save() {
  if (writes()) log_.flush();
  save_to(writes() ? &*store_ : nullptr);
}

// Once more after a failure, with the folder made anew where it was removed and without checkpoints that the new one
// replaces.
void CheckpointWriter::save_or_repair() {
  try {
    save();
  } catch (const Error& error) {
    log_.warn(with_remedy(error) + ". It is tried once more");
    try {
      on_all_ranks(trainer_.ranks(), [this] {
        if (writes()) repair();
      });
    } catch (const Error&) {  // as the save itself: it says more of what was wanted
      throw error;
    }
    save();
  }
}

void CheckpointWriter::repair() {
  if (!fs::exists(directory_ / "config.toml")) write_run_files(directory_, files_);
  log_.put_back();
  store_->repair();
}

void CheckpointWriter::save_or_warn() {
  if (watch_.is_diverging()) return;
  try {
    save_or_repair();
  } catch (const Error& error) {
    log_.note("checkpoint", with_remedy(error) + ". Training goes on");
  }
}

void CheckpointWriter::save_surely() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(trainer_.config().run.patience);
  while (true) {
    try {
      return save_or_repair();
    } catch (const Error& error) {
      log_.note("checkpoint", with_remedy(error));
      save_to_fallback(error);
      if (of_first_rank(trainer_.ranks(), int{std::chrono::steady_clock::now() >= end}) != 0) throw;
    }
    log_.warn("the last checkpoint is tried again every few seconds, here and there");
    std::this_thread::sleep_for(between_tries);
  }
}

// Throws the error that says where the checkpoint is, once it is there; returns where it cannot be written either.
void CheckpointWriter::save_to_fallback(const Error& cause) {
  const Size step = trainer_.steps_done();
  std::string folder;
  try {
    std::optional<CheckpointStore> other;
    on_all_ranks(trainer_.ranks(), [&] {
      if (!writes()) return;
      folder = make_fallback_folder(trainer_.config(), directory_, files_.id).string();
      write_run_files(folder, files_);
      other.emplace(folder, 1);
    });
    save_to(other ? &*other : nullptr);
  } catch (const Error& error) {
    return log_.note("checkpoint", with_remedy(error));
  }
  log_.note("checkpoint", fmt::format("step {} is saved in {}", step, folder));
  const Error told(fmt::format("{}; step {} is saved in {} instead", cause.what(), step, folder),
                   fmt::format("{}; then copy {} to {}, or go on there: quaver train --resume {}", cause.remedy(),
                               folder + "/checkpoints", directory_.string(), folder));
  if (trainer_.ranks().is_alone()) throw told;
  throw AgreedError(told.what(), told.remedy());
}

}  // namespace quaver
