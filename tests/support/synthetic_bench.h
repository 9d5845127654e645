// A benchmark whose figures are made up: of this machine's CPU engine, of layers with the seconds that are asked for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "train/benchmark.h"
#include "train/environment.h"

namespace quaver::test {

// Seconds of all parts of a layer together, at a number of tokens.
using SecondsOf = std::function<double(const BenchLayer&, const std::string& recipe, Size tokens)>;

inline Bench synthetic_bench(const std::vector<BenchLayer>& layers, const std::vector<std::string>& recipes,
                             const std::vector<Size>& tokens, const SecondsOf& seconds_of) {
  Bench bench;
  bench.machine = {make_cpu_engine(1)->name(), cpu_model(), "none"};
  bench.model = "made up";
  bench.date = "2026-11-18T12:00:00Z";
  bench.layers = layers;
  for (const BenchLayer& layer : layers) {
    for (const Size at : tokens) {
      for (const std::string& recipe : recipes) {
        for (const char* part : {"fprop", "dgrad", "wgrad", "x", "dy", "w"}) {
          const double seconds = seconds_of(layer, recipe, at) / 6;
          bench.measurements.push_back({.workload = Workload::layer,
                                        .subject = layer.subject(at),
                                        .part = part,
                                        .recipe = recipe,
                                        .support = "native",
                                        .time = {.median = seconds, .p95 = seconds, .noise = 0.001, .rounds = 9},
                                        .units = static_cast<double>(at)});
        }
      }
    }
  }
  return bench;
}

}  // namespace quaver::test
