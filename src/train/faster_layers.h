// precision.only_where_faster: layers that a recipe, casts included, does not make faster than bf16 stay in bf16. The
// verdicts come from a benchmark of this machine and become part of the config (precision.layer_speeds), so that a
// resumed run, another rank and a plan made later follow them without the file.
#pragma once

#include <map>
#include <string>

#include "config/config.h"
#include "engine/engine.h"
#include "train/benchmark.h"

namespace quaver {

// What a run asks of a layer: tokens at a time, and how often in an optimizer step.
struct LayerLoad {
  BenchLayer layer = {};  // at the run's tokens
  Size micro_steps = 1;
};

// Seconds of an optimizer step that a layer of this shape takes, in a recipe and in bf16: as measured at these tokens,
// or between two numbers of them on a line of logarithms. A factor of two beyond the measured ones is as near as the
// nearest. Throws Error, with the command to measure it, where the benchmark does not tell.
struct LayerSeconds {
  double recipe = 0;
  double bf16 = 0;
  double speed() const { return bf16 / recipe; }
};
LayerSeconds layer_seconds(const Bench& bench, const LayerLoad& load, const std::string& recipe);

// The config that was measured. Throws Error where a file of an older version does not have it.
Config measured_config(const Bench& bench);

// Throws Error where a recipe of the config's own was another one when it was measured.
void require_same_recipes(const Bench& bench, const PrecisionConfig& precision);

// The entries of precision.layer_speeds for all layers that the config's recipe, or the one it switches to, decides.
std::map<std::string, double> layer_speeds(const Bench& bench, const Config& config,
                                           const std::vector<LayerShape>& layers);

// The config, resolved but for this, with the speeds it lacks. The file is read where one is missing; it must be of
// the engine's machine, unless the engine is null because the device is not here.
Config resolve_layer_speeds(Config config, const std::vector<LayerShape>& layers, Engine* engine);
Config resolve_layer_speeds(Config config, Engine* engine);  // of the model that the config describes

// Whether the benchmark is of this engine, and of this processor where that is the device; else why not, in words.
std::string difference_of_machine(const Bench& bench, Engine& engine);

// "3 of 25 layers stay in bf16: fp8-delayed is not faster there"; empty where the rule is off or none stays.
std::string kept_for_speed(const PrecisionConfig& config, const std::vector<LayerShape>& layers);

}  // namespace quaver
