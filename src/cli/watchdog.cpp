#include "cli/watchdog.h"

#include <fmt/format.h>
#include <fstream>
#include <pthread.h>

#include "io/file_io.h"

namespace quaver {

namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds(clockid_t clock) {
  timespec time{};
  if (::clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Read and written by this process, by whichever of its threads.
std::uint64_t file_bytes() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::uint64_t value = 0;
  std::uint64_t sum = 0;
  while (file >> name >> value) {
    if (name == "rchar:" || name == "wchar:" || name == "read_bytes:") sum += value;
  }
  return sum;
}

}  // namespace

std::string Standstill::text() const {
  return fmt::format("{} for {:.0f} seconds", in_device ? "its GPU has done nothing" : "has done nothing", seconds);
}

Watchdog::Watchdog(std::shared_ptr<const Whereabouts> whereabouts, End end, Limits limits)
    : whereabouts_(std::move(whereabouts)), end_(std::move(end)), limits_(limits) {
  if (::pthread_getcpuclockid(::pthread_self(), &watched_) == 0) thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock guard(lock_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Watchdog::Sight Watchdog::look() const {
  // A file system that moves 100 kB in a second works; what a run notes down about itself meanwhile is far less.
  constexpr double seconds_per_byte = 1e-7;
  const Whereabouts& rank = *whereabouts_;
  const std::uint64_t left = rank.collectives_left;
  const std::uint64_t entered = rank.collectives_entered;
  return {.work = cpu_seconds(watched_) + seconds_per_byte * static_cast<double>(file_bytes() + synced_bytes()),
          .events = rank.waits_ended + entered + left,
          .waits_for_ranks = rank.waits_for_ranks > 0 || entered != left,
          .waits_for_device = rank.waits_for_device > 0};
}

// A host that waits for its device may use a whole core for it: that is no work.
bool Watchdog::goes_on(const Sight& now, const Sight& before) const {
  constexpr double least_share = 0.01;
  const double limit = std::chrono::duration<double>(limits_.longest_standstill).count();
  if (now.waits_for_ranks || now.events != before.events) return true;
  return !now.waits_for_device && now.work - before.work > least_share * limit;
}

void Watchdog::run() {
  Sight before = look();
  auto moved = Clock::now();
  auto looked = moved;
  std::unique_lock guard(lock_);
  while (!changed_.wait_for(guard, limits_.between_looks, [this] { return stopping_; })) {
    const Sight now = look();
    const auto time = Clock::now();
    const bool was_asleep = time - looked > limits_.longest_standstill / 2;  // all of this process, or its machine
    looked = time;
    if (was_asleep || goes_on(now, before)) {
      before = now;
      moved = time;
    } else if (time - moved > limits_.longest_standstill) {
      guard.unlock();
      return end_({std::chrono::duration<double>(time - moved).count(), now.waits_for_device});
    }
  }
}

}  // namespace quaver
