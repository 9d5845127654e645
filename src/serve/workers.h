// A few threads that answer requests, so that a long look into the store holds up nobody but who asked for it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quaver {

class Workers {
 public:
  Workers(std::size_t threads, std::size_t longest_queue);
  ~Workers();  // what has begun is finished, what waits is dropped
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // False: too many jobs are waiting already. A job must not throw.
  bool add(std::function<void()> job);

 private:
  void work();

  const std::size_t longest_queue_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace quaver
