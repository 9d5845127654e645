// Ctrl-C, a request to terminate, a terminal that hangs up: the first one asks the run to write a checkpoint and end, a
// second one ends the process at once. A closed pipe is no signal while a run goes on: writing to it fails, that is
// all.
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
