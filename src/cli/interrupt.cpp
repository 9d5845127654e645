#include "cli/interrupt.h"

#include <csignal>

namespace quaver {

namespace {

std::atomic<bool> asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch it");

constexpr int asking[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};  // the last as clusters and mpirun pass it on

void on_signal(int number) {
  if (asked.exchange(true)) std::signal(number, SIG_DFL), std::raise(number);
}

}  // namespace

Interrupt::Interrupt() {
  asked = false;
  for (const int number : asking) {
    if (std::signal(number, on_signal) == SIG_IGN) std::signal(number, SIG_IGN);  // nohup: it was not to be heard
  }
  std::signal(SIGPIPE, SIG_IGN);
}

Interrupt::~Interrupt() {
  for (const int number : asking) {
    if (std::signal(number, SIG_DFL) == SIG_IGN) std::signal(number, SIG_IGN);
  }
  std::signal(SIGPIPE, SIG_DFL);
}

const std::atomic<bool>* Interrupt::flag() const { return &asked; }

}  // namespace quaver
