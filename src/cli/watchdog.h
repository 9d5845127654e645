// Notices that this rank is alive but stands still, in a driver or on a file system that does not answer: the others
// would wait for it without end. One that died or was stopped is noticed from outside.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/whereabouts.h"

namespace quaver {

struct Standstill {
  double seconds = 0;
  bool in_device = false;  // the host waits for its device

  std::string text() const;  // "has done nothing for 45 seconds"
};

class Watchdog {
 public:
  using Duration = std::chrono::milliseconds;
  struct Limits {
    Duration longest_standstill{45'000};  // all ranks are to end within a minute
    Duration between_looks{500};
  };
  // Watches the thread that makes it, which must outlive it. `end` is called once, from a thread of its own.
  using End = std::function<void(const Standstill&)>;
  Watchdog(std::shared_ptr<const Whereabouts> whereabouts, End end, Limits limits);
  Watchdog(std::shared_ptr<const Whereabouts> whereabouts, End end)
      : Watchdog(std::move(whereabouts), std::move(end), Limits{}) {}
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  // What the rank has done so far: seconds of work, as far as the host does it, and what else shows that it goes on.
  struct Sight {
    double work = 0;
    std::uint64_t events = 0;
    bool waits_for_ranks = false;
    bool waits_for_device = false;
  };
  Sight look() const;
  bool goes_on(const Sight& now, const Sight& before) const;
  void run();

  std::shared_ptr<const Whereabouts> whereabouts_;
  End end_;
  Limits limits_;
  clockid_t watched_ = CLOCK_REALTIME;  // CPU time of the watched thread
  std::mutex lock_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace quaver
