// Reads the shards of a run from end to end on its own thread, at low priority, while training goes on: damage is
// found within minutes, not when an epoch reaches it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "data/loader.h"
#include "quaver/error.h"

namespace quaver {

// Ends at the first damage, whose Error names the shard and the bytes. Uses a buffer of one block. Functions are safe
// to call from several threads.
class DataVerifier {
 public:
  // Starts at once. Null sources, and those without shards, have nothing to verify; the others must outlive this.
  explicit DataVerifier(std::span<const TokenSource* const> sources);
  ~DataVerifier();  // stops within a block
  DataVerifier(const DataVerifier&) = delete;
  DataVerifier& operator=(const DataVerifier&) = delete;

  std::optional<Error> failure() const;
  void rethrow_if_failed() const;
  bool done() const { return done_; }  // everything is read, or a failure found

  std::uint64_t bytes_total() const { return bytes_total_; }
  std::uint64_t bytes_verified() const { return bytes_verified_; }

 private:
  struct Task {
    const Shard* shard;
    int vocab_size;
  };
  void run();

  std::vector<Task> tasks_;
  std::uint64_t bytes_total_ = 0;
  std::atomic<std::uint64_t> bytes_verified_{0};
  std::atomic<bool> done_{false};
  std::atomic<bool> stopping_{false};
  mutable std::mutex lock_;
  std::optional<Error> failure_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace quaver
