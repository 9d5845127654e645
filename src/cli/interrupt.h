// Ctrl-C: the first one asks the run to write a checkpoint and end, a second one ends the process at once.
#pragma once

#include <atomic>

namespace quaver {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  const std::atomic<bool>* flag() const;
};

}  // namespace quaver
