// Times of several runs that are to be compared: they take turns, round after round, because clocks move with a
// device's load and temperature, by up to a tenth within a minute.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "study/bench.h"

namespace quaver {

class Race {
 public:
  // Runs operations only, at most 16 runners of an engine. On a GPU they are captured as a CUDA graph, so that small
  // ones do not wait for the host. Returns the runner's index.
  std::size_t add(Engine& engine, std::function<void()> run);

  // At least three rounds, then as many as fit into the seconds. Rounds of several calls are taken together.
  void run(double seconds);

  RunTiming timing(std::size_t index) const { return timing_of(runners_[index].seconds); }
  void forget();  // the rounds so far

 private:
  struct Runner {
    Engine* engine;
    std::function<void()> run;
    std::vector<double> seconds = {};
    int repeats = 1;  // within a round, so that a clock can tell
  };
  static double time(const Runner& runner);
  void warm_up();

  std::vector<Runner> runners_;
  bool is_warm_ = false;
};

}  // namespace quaver
