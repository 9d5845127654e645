// A command that follows a run: it reads lines from its standard input. It never holds the run up: lines wait in a
// bounded queue, and are dropped where the command reads too slowly or has ended, with one warning.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <sys/types.h>
#include <thread>

namespace quaver {

class LogCommand {
 public:
  using Warning = std::function<void(const std::string&)>;

  static constexpr std::size_t most_lines = 10'000;
  static constexpr std::chrono::milliseconds time_to_end{10'000};

  // Starts it with the shell, in a process group of its own: Ctrl-C is the run's. Throws Error where that fails.
  LogCommand(std::string command, Warning warning, std::chrono::milliseconds patience = time_to_end);

  // Gives it the time to read what waits and to end; then it is told to (SIGTERM).
  ~LogCommand();
  LogCommand(const LogCommand&) = delete;
  LogCommand& operator=(const LogCommand&) = delete;

  void send(std::string line);  // without its end

 private:
  using Clock = std::chrono::steady_clock;

  void write_lines();
  bool write(const std::string& text);
  bool is_out_of_time();
  void warn_once(const std::string& text);
  void await_end(Clock::time_point deadline);

  std::string command_;
  Warning warning_;
  std::chrono::milliseconds patience_;
  int pipe_ = -1;
  pid_t child_ = -1;
  bool warned_ = false;
  std::uint64_t dropped_ = 0;
  std::atomic<bool> broken_ = false;  // it reads no more

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  bool ending_ = false;
  Clock::time_point deadline_;  // once ending
  std::thread writer_;
};

}  // namespace quaver
