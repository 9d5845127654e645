#include "cli/launcher.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <iostream>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "comm/communicator.h"
#include "config/load.h"
#include "quaver/error.h"
#include "train/run_folder.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

constexpr std::chrono::seconds time_to_end{20};   // once a rank has failed: the others may wait for it in a collective
constexpr std::chrono::seconds longest_stop{30};  // of a rank: the others wait for it
constexpr int interrupted_status = 130;
constexpr std::chrono::milliseconds between_looks{20};

std::atomic<int> signal_to_pass{0};

void note_signal(int number) { signal_to_pass = number; }

// While ranks run, this process's signals are theirs.
class PassedSignals {
 public:
  PassedSignals() {
    for (const int number : numbers) std::signal(number, note_signal);
  }
  ~PassedSignals() {
    for (const int number : numbers) std::signal(number, SIG_DFL);
  }
  PassedSignals(const PassedSignals&) = delete;
  PassedSignals& operator=(const PassedSignals&) = delete;

 private:
  static constexpr std::array numbers{SIGINT, SIGTERM, SIGHUP, SIGUSR1};
};

struct Child {
  pid_t pid = -1;
  std::string name;
  int status = -1;  // exit status, or 128 + the signal's number; −1: still running
  bool killed = false;
  std::optional<Clock::time_point> stopped = {};  // since when

  bool runs() const { return status < 0; }
};

// In a process group of its own: the terminal's signals reach it through this process alone, once.
Child start(const Words& words, const Words& environment, const std::string& name) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw Error(fmt::format("{} cannot be started: {}", name, std::strerror(errno)), "start fewer ranks");
  ::setpgid(pid, pid);  // by both, since either may come first
  if (pid > 0) return {pid, name};
  for (const std::string& variable : environment) ::putenv(const_cast<char*>(variable.c_str()));
  ::execvp(pointers[0], pointers.data());
  std::cerr << fmt::format("quaver: {} cannot be started: {}\n", words[0], std::strerror(errno));
  ::_exit(1);
}

void look_after(std::vector<Child>& children) {
  for (Child& child : children) {
    int raw = 0;
    if (!child.runs() || ::waitpid(child.pid, &raw, WNOHANG | WUNTRACED | WCONTINUED) != child.pid) continue;
    child.stopped.reset();
    if (WIFSTOPPED(raw)) child.stopped = Clock::now();
    if (WIFSTOPPED(raw) || WIFCONTINUED(raw)) continue;
    child.killed = WIFSIGNALED(raw);
    child.status = child.killed ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
  }
}

void send_to(const std::vector<Child>& children, int number) {
  for (const Child& child : children) {
    if (child.runs()) ::kill(-child.pid, number);
  }
}

// A rank that was stopped, by a debugger or a scheduler, is not noticed by the others. Ends it, and says so.
void end_stopped(std::vector<Child>& children) {
  for (Child& child : children) {
    if (!child.runs() || !child.stopped || Clock::now() - *child.stopped < longest_stop) continue;
    std::cerr << fmt::format(
        "quaver: {} has been stopped for {} seconds: all ranks end\n  → `quaver train --resume` goes on from the last "
        "checkpoint\n",
        child.name, longest_stop.count());
    ::kill(-child.pid, SIGKILL);
    child.stopped.reset();  // said once, however long it takes to end
  }
}

// Waits for all of them; one that fails ends the others. Those that were interrupted end by themselves, the first rank
// when its checkpoint is written. Returns the status of the first that did not end well, or 0.
int wait_for(std::vector<Child>& children, int stop_signal) {
  int status = 0;
  Clock::time_point deadline = Clock::time_point::max();
  while (true) {
    look_after(children);
    end_stopped(children);
    const auto runs = [](const Child& child) { return child.runs(); };
    for (const Child& child : children) {
      if (child.runs() || child.status == 0 || (status != 0 && status != interrupted_status)) continue;
      status = child.status;
      if (status == interrupted_status) continue;
      if (child.killed) {
        std::cerr << fmt::format("quaver: {} was ended by signal {}\n", child.name, child.status - 128);
      }
      send_to(children, SIGTERM);
      deadline = Clock::now() + time_to_end;
    }
    if (std::none_of(children.begin(), children.end(), runs)) return status;
    if (signal_to_pass.exchange(0) != 0) send_to(children, stop_signal);
    if (Clock::now() > deadline) send_to(children, SIGKILL);
    std::this_thread::sleep_for(between_looks);
  }
}

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  ::close(socket);
  if (!bound) throw Error("no port of this machine is free for its ranks", "close what holds them");
  return ntohs(address.sin_port);
}

// CPU ranks: mpirun starts them, and passes SIGUSR1 on.
int run_with_mpi(const Words& words, int ranks) {
  Words all{"mpirun", "-n", std::to_string(ranks), "--oversubscribe", "--bind-to", "none"};
  all.insert(all.end(), words.begin(), words.end());
  Words environment;
  if (::geteuid() == 0) environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
  std::vector<Child> children{start(all, environment, "mpirun")};
  return wait_for(children, SIGUSR1);
}

// A process for each GPU, connected by NCCL.
int run_with_gpus(const Words& words, int ranks) {
  const int port = free_port();
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const Words environment{fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", ranks),
                            fmt::format("LOCAL_RANK={}", rank), "MASTER_ADDR=127.0.0.1",
                            fmt::format("MASTER_PORT={}", port)};
    children.push_back(start(words, environment, fmt::format("rank {}", rank)));
  }
  return wait_for(children, SIGINT);
}

bool is_lost_rank(int status) { return status == lost_rank_status || (status > 128 && status != interrupted_status); }

std::string program() { return fs::read_symlink("/proc/self/exe").string(); }

Words output_words(const TrainArguments& arguments) {
  Words words;
  if (arguments.output == Output::json) words.emplace_back("--json");
  if (!arguments.tensorboard.empty()) words.insert(words.end(), {"--tensorboard", arguments.tensorboard});
  if (!arguments.log_to.empty()) words.insert(words.end(), {"--log-to", arguments.log_to});
  return words;
}

Words words_of(const TrainArguments& arguments) {
  Words words{program(), "train"};
  words.insert(words.end(), arguments.config.files.begin(), arguments.config.files.end());
  words.insert(words.end(), arguments.config.settings.begin(), arguments.config.settings.end());
  if (!arguments.resume.empty()) words.insert(words.end(), {"--resume", arguments.resume});
  for (const std::string& pattern : arguments.take_back) words.insert(words.end(), {"--take-back", pattern});
  if (arguments.other_data == OtherData::accept) words.emplace_back("--allow-other-data");
  for (const std::string& word : output_words(arguments)) words.push_back(word);
  return words;
}

// What a run goes on with: all else is in its checkpoint. One that has none yet starts over.
Words resuming_words(const TrainArguments& arguments, const fs::path& directory) {
  if (!fs::exists(directory / "config.toml")) return words_of(arguments);
  Words words{program(), "train", "--resume", directory.string()};
  for (const std::string& word : output_words(arguments)) words.push_back(word);
  return words;
}

}  // namespace

int launch_ranks(const TrainArguments& arguments) {
  const Config config = config_of(arguments);
  const PassedSignals signals;
  const auto run = [&](const Words& words) {
    return arguments.rank_kind == RankKind::gpus ? run_with_gpus(words, arguments.ranks)
                                                 : run_with_mpi(words, arguments.ranks);
  };
  int status = run(words_of(arguments));
  for (int restart = 1; restart <= arguments.restarts && is_lost_rank(status); ++restart) {
    std::cerr << fmt::format("quaver: a rank was lost; restart {} of {}\n", restart, arguments.restarts);
    status = run(resuming_words(arguments, run_directory(config)));
  }
  return status > 128 && status != interrupted_status ? 1 : status;
}

}  // namespace quaver
