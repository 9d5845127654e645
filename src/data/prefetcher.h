// Batches that a thread of its own fills ahead of time, in order: what hides reading behind training.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace quaver {

template <class Batch>
class Prefetcher {
 public:
  // Batches are numbered from 0. `fill` is called from the thread, with each number once, and with one of
  // depth + 1 batches, which it finds as it left them; they begin as `blank`.
  using Fill = std::function<void(std::uint64_t number, Batch& batch)>;
  Prefetcher(Fill fill, std::size_t depth, const Batch& blank = {})
      : fill_(std::move(fill)), slots_(depth + 1, blank) {  // one more for the batch in the caller's hands
    thread_ = std::thread([this] { run(); });
  }
  ~Prefetcher() {
    {
      const std::scoped_lock guard(lock_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  struct Next {
    std::uint64_t number;
    const Batch& batch;
  };
  // Waits for it if need be; valid until the next call. Throws what `fill` threw for that batch, from then on.
  Next next() {
    std::unique_lock guard(lock_);
    oldest_held_ = next_to_take_;  // the batch before is given up here
    changed_.notify_all();
    changed_.wait(guard, [&] { return next_to_fill_ > next_to_take_ || failure_; });
    if (next_to_fill_ == next_to_take_) std::rethrow_exception(failure_);
    const std::uint64_t number = next_to_take_++;
    return {number, slot_of(number)};
  }

 private:
  void run() {
    std::unique_lock guard(lock_);
    while (true) {
      changed_.wait(guard, [&] { return stopping_ || next_to_fill_ - oldest_held_ < slots_.size(); });
      if (stopping_) return;
      const std::uint64_t number = next_to_fill_;
      guard.unlock();
      std::exception_ptr failure;
      try {
        fill_(number, slot_of(number));
      } catch (...) {
        failure = std::current_exception();
      }
      guard.lock();
      failure_ = failure;
      if (!failure) next_to_fill_ = number + 1;
      changed_.notify_all();
      if (failure) return;
    }
  }
  Batch& slot_of(std::uint64_t number) { return slots_[number % slots_.size()]; }

  const Fill fill_;
  std::vector<Batch> slots_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::uint64_t next_to_take_ = 0;
  std::uint64_t next_to_fill_ = 0;
  std::uint64_t oldest_held_ = 0;  // the batch the caller may still be reading
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace quaver
