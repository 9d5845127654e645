#include "cli/interrupt.h"

#include <csignal>

namespace quaver {

namespace {

std::atomic<bool> asked{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch it");

void on_signal(int number) {
  if (asked.exchange(true)) std::signal(number, SIG_DFL), std::raise(number);
}

}  // namespace

Interrupt::Interrupt() {
  asked = false;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

const std::atomic<bool>* Interrupt::flag() const { return &asked; }

}  // namespace quaver
