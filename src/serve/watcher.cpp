#include "serve/watcher.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "quaver/error.h"
#include "serve/json_text.h"

namespace quaver {

namespace {

constexpr auto poll_period = std::chrono::milliseconds(250);
// Even if nothing is written: a run without heartbeats becomes lost.
constexpr auto full_poll_every = std::chrono::seconds(5);

std::string change_event(const RunRevision& run, const std::string& suffix, const std::vector<std::string>& kinds) {
  const nlohmann::json data{{"run", run.id + suffix}, {"kinds", kinds}, {"step", run.step}};
  // One line, as server-sent events require: JSON escapes line ends within strings.
  return "event: change\ndata: " + json_text(data) + "\n\n";
}

}  // namespace

std::vector<std::string> ChangeFinder::changed_kinds(const Seen& before, const RunRevision& run) {
  std::vector<std::string> kinds;
  bool has_status = false;
  for (const auto& [kind, count] : run.revisions) {
    const auto old = before.revisions.find(kind);
    if (old != before.revisions.end() && old->second == count) continue;
    kinds.push_back(kind);
    has_status = has_status || kind == "status";
  }
  const bool is_lost_now = run.status != before.status && !has_status;  // by its age: nothing was written
  if (is_lost_now) kinds.emplace_back("status");
  return kinds;
}

std::string ChangeFinder::poll() try {
  const std::shared_ptr<StoreReader> store = handle_.reader();
  const bool is_another = store != store_;
  store_ = store;
  if (store == nullptr) {
    const bool had_runs = !seen_.empty();
    seen_.clear();
    return had_runs ? std::string(runs_event) : "";
  }
  const auto now = std::chrono::steady_clock::now();
  const std::uint64_t version = store->data_version();
  if (!is_another && version == version_ && now < next_full_poll_) return "";
  version_ = version;
  next_full_poll_ = now + full_poll_every;

  std::string events;
  bool has_new_run = false;
  std::map<std::string, Seen> present;
  for (const RunRevision& run : store->revisions()) {
    present[run.id] = {run.revisions, run.status};
    const auto before = seen_.find(run.id);
    if (before == seen_.end()) {
      has_new_run = true;
      continue;
    }
    const std::vector<std::string> kinds = changed_kinds(before->second, run);
    if (!kinds.empty()) events += change_event(run, suffix_, kinds);
  }
  const bool has_lost_run =
      std::any_of(seen_.begin(), seen_.end(), [&](const auto& seen) { return !present.contains(seen.first); });
  seen_ = std::move(present);
  return has_new_run || has_lost_run ? std::string(runs_event) + events : events;
} catch (const Error&) {
  // The file is being created, or is no store: responses to requests report that.
  store_.reset();
  return "";
}

std::string PoolChangeFinder::poll() {
  pool_.refresh();
  const std::vector<ServedStore> served = pool_.all();
  std::string events;
  const auto is_served = [&](const Watched& watched) {
    return std::any_of(served.begin(), served.end(),
                       [&](const ServedStore& one) { return one.handle == watched.handle; });
  };
  if (std::erase_if(watched_, [&](const auto& entry) { return !is_served(entry.second); }) > 0) events = runs_event;
  for (const ServedStore& store : served) {
    auto [entry, is_new] =
        watched_.try_emplace(store.suffix, Watched{store.handle, ChangeFinder(*store.handle, store.suffix)});
    events += entry->second.finder.poll();
  }
  return events;
}

Watcher::Watcher(StorePool& pool, std::function<void(std::string events)> publish)
    : finder_(pool), publish_(std::move(publish)), thread_([this] { watch(); }) {}

Watcher::~Watcher() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watcher::watch() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    std::string events = finder_.poll();
    if (!events.empty()) publish_(std::move(events));
    lock.lock();
    changed_.wait_for(lock, poll_period, [&] { return ending_; });
  }
}

}  // namespace quaver
