// What the machine itself does while a model is measured on it: a few runs that no recipe changes, again and again from
// the beginning of a benchmark to its end. Where two benchmarks differ and these differ alike, the machine does.
#pragma once

#include "study/bench_layers.h"
#include "study/bench_matrices.h"
#include "study/bench_race.h"

namespace quaver {

class Yardsticks {
 public:
  explicit Yardsticks(const Config& config);

  void measure();                    // between other measurements
  std::vector<Measurement> sweep();  // what was measured since the last call

 private:
  void add(Measurement measurement, std::function<void()> run);

  BenchEngines engines_;
  Engine& engine_;
  BenchMatrices memory_;
  Race turns_;
  std::vector<Measurement> measurements_;
  std::vector<std::function<void()>> runs_;
};

}  // namespace quaver
