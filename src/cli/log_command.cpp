#include "cli/log_command.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "quaver/error.h"

namespace quaver {

namespace {

constexpr std::chrono::milliseconds between_writes{20};

// A child whose standard input is the pipe's end. What it prints goes to standard error: standard output is the run's,
// and has JSON alone with --json. It does not inherit signals that this program ignores.
int spawn_shell(const std::string& command, int input, pid_t& child) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGXFSZ}) sigaddset(&defaults, number);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  std::string words[] = {"sh", "-c", command};
  char* const arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  const int error = posix_spawn(&child, "/bin/sh", &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

LogCommand::LogCommand(std::string command, Warning warning, std::chrono::milliseconds patience)
    : command_(std::move(command)), warning_(std::move(warning)), patience_(patience) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw Error(fmt::format("--log-to: no pipe: {}", std::strerror(errno)), "close other programs");
  }
  const int error = spawn_shell(command_, ends[0], child_);
  ::close(ends[0]);
  pipe_ = ends[1];
  if (error != 0) {
    ::close(pipe_);
    throw Error(fmt::format("--log-to: '{}' cannot be started: {}", command_, std::strerror(error)),
                "name a command that the shell knows");
  }
  ::fcntl(pipe_, F_SETFL, O_NONBLOCK);
  writer_ = std::thread([this] { write_lines(); });
}

LogCommand::~LogCommand() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    deadline_ = Clock::now() + patience_;
  }
  changed_.notify_all();
  writer_.join();
  ::close(pipe_);
  dropped_ += lines_.size();
  await_end(deadline_);
  if (dropped_ > 0 && warning_) {
    warning_(fmt::format("'{}' of --log-to was not given {} lines; metrics.jsonl has all of them", command_, dropped_));
  }
}

void LogCommand::await_end(Clock::time_point deadline) {
  int status = 0;
  while (::waitpid(child_, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) {
      ::kill(-child_, SIGTERM);
      warn_once(fmt::format("'{}' of --log-to did not end in {} s and was told to (SIGTERM)", command_,
                            std::chrono::duration<double>(patience_).count()));
      return;
    }
    std::this_thread::sleep_for(between_writes);
  }
}

void LogCommand::warn_once(const std::string& text) {
  if (!std::exchange(warned_, true) && warning_) warning_(text);
}

void LogCommand::send(std::string line) {
  if (broken_) {
    ++dropped_;
    return warn_once(fmt::format("'{}' of --log-to reads no more; training goes on without it", command_));
  }
  {
    const std::lock_guard lock(mutex_);
    if (lines_.size() < most_lines) {
      lines_.push_back(std::move(line) + "\n");
      changed_.notify_all();
      return;
    }
  }
  ++dropped_;
  warn_once(
      fmt::format("'{}' of --log-to is {} lines behind; lines are dropped until it catches up", command_, most_lines));
}

bool LogCommand::is_out_of_time() {
  const std::lock_guard lock(mutex_);
  return ending_ && Clock::now() > deadline_;
}

// False where the command has ended or the time is up.
bool LogCommand::write(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(pipe_, text.data() + done, text.size() - done);
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno == EAGAIN || errno == EINTR) {
      pollfd room{pipe_, POLLOUT, 0};
      ::poll(&room, 1, static_cast<int>(between_writes.count()));
      if (is_out_of_time()) return false;
    } else {
      return false;
    }
  }
  return true;
}

void LogCommand::write_lines() {
  // A command that has ended is an error of write() here, and not a signal.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !lines_.empty(); });
    if (lines_.empty()) return;
    const std::string line = std::move(lines_.front());
    lines_.pop_front();
    lock.unlock();
    const bool written = write(line);
    lock.lock();
    if (!written) {
      broken_ = true;
      return;
    }
  }
}

}  // namespace quaver
