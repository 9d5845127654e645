#include "cli/command.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace quaver::test {

namespace fs = std::filesystem;

namespace {

constexpr auto longest_wait = std::chrono::seconds(60);
constexpr auto pause_between_looks = std::chrono::milliseconds(2);

// This process's environment, with messages the same everywhere.
std::vector<std::string> environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("LC_ALL=")) result.emplace_back(text);
  }
  result.emplace_back("LC_ALL=C.UTF-8");
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

void require(int failure, const char* what) {
  if (failure != 0) throw std::system_error(failure, std::generic_category(), what);
}

}  // namespace

fs::path program() {
  if (const char* named = std::getenv("QUAVER_BINARY")) return named;
#ifdef QUAVER_BINARY
  if (fs::exists(QUAVER_BINARY)) return QUAVER_BINARY;
#endif
  fs::path beside = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "quaver";
  if (fs::exists(beside)) return beside;
  throw std::runtime_error("there is no quaver to test: build it, or set QUAVER_BINARY to its path");
}

Process::Process(const TemporaryFolder& folder, const Words& words) {
  static std::atomic<int> counter{0};
  const int number = counter++;
  out_ = folder / fmt::format(".out-{}", number);
  error_ = folder / fmt::format(".error-{}", number);
  std::vector<std::string> arguments{program().string()};
  arguments.insert(arguments.end(), words.begin(), words.end());
  std::vector<std::string> variables = environment();
  // As a terminal starts it: programs in the background of a shell inherit that interrupts are ignored.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t interrupts;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  sigaddset(&interrupts, SIGQUIT);
  posix_spawnattr_setsigdefault(&attributes, &interrupts);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, error_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addchdir_np(&actions, folder.path().c_str());
  const std::string path = fs::absolute(program()).string();
  const int failure =
      posix_spawn(&pid_, path.c_str(), &actions, &attributes, pointers(arguments).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  require(failure, path.c_str());
}

Process::~Process() {
  if (ended_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, &raw_status_, 0);
}

bool Process::has_ended() {
  if (!ended_) ended_ = waitpid(pid_, &raw_status_, WNOHANG) == pid_;
  return ended_;
}

bool Process::wait_for(std::string_view text) {
  const auto give_up = std::chrono::steady_clock::now() + longest_wait;
  while (std::chrono::steady_clock::now() < give_up) {
    const bool ended = has_ended();  // asked first: what it wrote just before its end counts
    if (contents(out_).find(text) != std::string::npos) return true;
    if (ended) return false;
    std::this_thread::sleep_for(pause_between_looks);
  }
  return false;
}

void Process::send(int signal) const { kill(pid_, signal); }

Outcome Process::wait() {
  const auto give_up = std::chrono::steady_clock::now() + longest_wait;
  while (!has_ended() && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(pause_between_looks);
  if (!ended_) throw std::runtime_error("the program did not end within a minute");
  const int status = WIFEXITED(raw_status_) ? WEXITSTATUS(raw_status_) : 128 + WTERMSIG(raw_status_);
  return {status, contents(out_), contents(error_)};
}

Outcome quaver(const TemporaryFolder& folder, const Words& words) { return Process(folder, words).wait(); }

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

namespace {

const Words tiny_model{"--model.layers=1", "--model.width=32", "--model.heads=2",        "--model.context=16",
                       "--batch=4",        "--steps=6",        "--train.eval_batches=1", "--train.threads=1"};

}  // namespace

Words tiny_training(const Words& more) {
  return Words{"train", "--data.kind=synthetic", "--data.synthetic_vocab=16"} + tiny_model + more;
}

Words tiny_training_on(std::string_view data, const Words& more) {
  return Words{"train", "--data", std::string(data)} + tiny_model + more;
}

void write_text(const TemporaryFolder& folder) {
  for (int i = 0; i < 6; ++i) {
    std::string text;
    for (int line = 0; line < 20; ++line) text += fmt::format("File {} says line {} of twenty, plainly.\n", i, line);
    folder.write(fmt::format("text/{}.txt", i), text);
  }
}

void prepare_text(const TemporaryFolder& folder) {
  write_text(folder);
  const Outcome outcome = quaver(folder, {"data", "text", "--out", "data", "--valid", "0.34"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
}

}  // namespace quaver::test
