// Polls the stores and reports changes as server-sent events:
//   event: change, data: {"run":ID,"kinds":["metrics",…],"step":N}    a run's record grew or changed
//   event: runs,   data: {}                                          runs were added or removed
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "serve/store_pool.h"

namespace quaver {

// Changes of one store. Not thread-safe.
class ChangeFinder {
 public:
  // `suffix` as in ServedStore. The handle outlives the finder.
  explicit ChangeFinder(StoreHandle& handle, std::string suffix = "") : handle_(handle), suffix_(std::move(suffix)) {}

  // The events since the last poll; empty where nothing changed. A store that cannot be read has no changes.
  std::string poll();

 private:
  struct Seen {
    std::map<std::string, std::uint64_t> revisions;
    RunStatus status = RunStatus::running;
  };

  static std::vector<std::string> changed_kinds(const Seen& before, const RunRevision& run);

  StoreHandle& handle_;
  std::string suffix_;
  std::shared_ptr<StoreReader> store_;
  std::uint64_t version_ = 0;
  std::chrono::steady_clock::time_point next_full_poll_{};
  std::map<std::string, Seen> seen_;
};

// Changes of all stores of a pool, which may be added and removed meanwhile.
class PoolChangeFinder {
 public:
  explicit PoolChangeFinder(StorePool& pool) : pool_(pool) {}

  std::string poll();

 private:
  struct Watched {
    std::shared_ptr<StoreHandle> handle;
    ChangeFinder finder;
  };

  StorePool& pool_;
  std::map<std::string, Watched> watched_;  // by suffix
};

// A thread that polls the pool four times per second.
class Watcher {
 public:
  Watcher(StorePool& pool, std::function<void(std::string events)> publish);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  void watch();

  PoolChangeFinder finder_;
  std::function<void(std::string)> publish_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

inline constexpr std::string_view runs_event = "event: runs\ndata: {}\n\n";

}  // namespace quaver
