// Where a rank is, for whoever watches it from another thread: one that waits for the others is not the one that hangs.
#pragma once

#include <atomic>
#include <cstdint>

namespace quaver {

struct Whereabouts {
  // Calls of the host that are under way, and how many have ended.
  std::atomic<int> waits_for_ranks = 0;
  std::atomic<int> waits_for_device = 0;
  std::atomic<std::uint64_t> waits_ended = 0;

  // Collectives that a device has come to and is through with, where it runs them by itself. The device writes here.
  std::atomic<std::uint64_t> collectives_entered = 0;
  std::atomic<std::uint64_t> collectives_left = 0;
};

// A call that waits, as long as it lives.
class Wait {
 public:
  Wait(Whereabouts& whereabouts, std::atomic<int> Whereabouts::*calls)
      : whereabouts_(whereabouts), calls_(whereabouts.*calls) {
    ++calls_;
  }
  ~Wait() {
    ++whereabouts_.waits_ended;
    --calls_;
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  Whereabouts& whereabouts_;
  std::atomic<int>& calls_;
};

}  // namespace quaver
