#include "data/verifier.h"

#include <sys/resource.h>

namespace quaver {

DataVerifier::DataVerifier(std::span<const TokenSource* const> sources) {
  for (const TokenSource* source : sources) {
    if (source == nullptr) continue;
    for (const Shard& shard : source->shards()) {
      tasks_.push_back({&shard, source->vocab_size()});
      bytes_total_ += shard.id_bytes();
    }
  }
  thread_ = std::thread([this] { run(); });
}

DataVerifier::~DataVerifier() {
  stopping_ = true;
  thread_.join();
}

void DataVerifier::run() {
  ::setpriority(PRIO_PROCESS, 0, 19);  // of this thread alone, in Linux; training comes first
  std::optional<Error> failure;
  std::uint64_t before = 0;
  try {
    for (const Task& task : tasks_) {
      task.shard->verify(task.vocab_size, [&](std::uint64_t bytes) {
        bytes_verified_ = before + bytes;
        return !stopping_;
      });
      if (stopping_) return;
      before += task.shard->id_bytes();
    }
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = Error(std::string("verifying the data failed: ") + error.what(), "run `quaver data --verify` on it");
  }
  {
    const std::scoped_lock guard(lock_);
    failure_ = std::move(failure);
  }
  done_ = true;
}

std::optional<Error> DataVerifier::failure() const {
  const std::scoped_lock guard(lock_);
  return failure_;
}

void DataVerifier::rethrow_if_failed() const {
  if (const std::optional<Error> found = failure()) throw Error(*found);
}

}  // namespace quaver
