// Looks at the stores a few times a second and tells what has changed since, as the text of server-sent events:
//   event: change, data: {"run":ID,"kinds":["metrics",…],"step":N}    a run's record grew or changed
//   event: runs,   data: {}                                          runs appeared or vanished
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

#include "serve/stores.h"

namespace quaver {

// One look after another at the same store; not for several threads.
class ChangeFinder {
 public:
  // The suffix is that of the store's runs' addresses. The door outlives the finder.
  explicit ChangeFinder(StoreDoor& door, std::string suffix = "") : door_(door), suffix_(std::move(suffix)) {}

  // The events since the last look, empty where nothing changed. A store that cannot be read has no changes.
  std::string look();

 private:
  struct Seen {
    std::map<std::string, std::uint64_t> revisions;
    RunStatus status = RunStatus::running;
  };

  static std::vector<std::string> changed_kinds(const Seen& before, const RunRevision& run);

  StoreDoor& door_;
  std::string suffix_;
  std::shared_ptr<StoreReader> store_;
  std::uint64_t version_ = 0;
  std::chrono::steady_clock::time_point next_full_look_{};
  std::map<std::string, Seen> seen_;
};

// A finder for each store, of which some may come and go.
class StoresFinder {
 public:
  explicit StoresFinder(Stores& stores) : stores_(stores) {}

  std::string look();  // as ChangeFinder::look, over all stores

 private:
  struct Watched {
    std::shared_ptr<StoreDoor> door;
    ChangeFinder finder;
  };

  Stores& stores_;
  std::map<std::string, Watched> watched_;  // by suffix
};

// A thread that looks about four times a second until it is destroyed.
class Watcher {
 public:
  Watcher(Stores& stores, std::function<void(std::string events)> publish);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  void watch();

  StoresFinder finder_;
  std::function<void(std::string)> publish_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

inline constexpr std::string_view runs_event = "event: runs\ndata: {}\n\n";

}  // namespace quaver
