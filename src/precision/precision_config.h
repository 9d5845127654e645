// The settings of the section `precision`; a recipe turns them into a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "quaver/recipe.h"

namespace quaver {

enum class LossScaling : std::uint8_t { automatic, off, fixed, adaptive };  // automatic: adaptive for fp16, else off
enum class GradientFormat : std::uint8_t { recipe, e4m3, e5m2 };

// automatic: what the engine prefers. The others are those of formats/quant_spec.h.
enum class AccumulatorChoice : std::uint8_t { automatic, fp32, hopper, hopper_split, fp16, fp8 };

using RecipeTable = std::map<std::string, Recipe, std::less<>>;  // by name

struct PrecisionConfig {
  RecipeTable recipes = {};  // of the config's own, beside those that are built in
  std::string recipe = "bf16";
  std::map<std::string, std::string> layers = {};  // pattern "blocks.*.mlp.down" or "blocks.0.*/dy" → recipe name
  std::string only_where_faster = {};  // file of a benchmark; empty: the recipe holds whether it is faster or not
  std::map<std::string, double> layer_speeds =
      {};            // "blocks.*.mlp.up in fp8-delayed" → speed over bf16, from that file
  int history = 16;  // delayed: length of the amax history
  HistoryRule history_rule = HistoryRule::max;
  int margin = 0;  // FP32 scales leave 2^margin of headroom
  bool power_of_two_scales = false;
  bool mx_floor = false;              // MX: OCP's floor rule instead of rounding the exponent up
  bool wide_weight_gradient = false;  // fp8-row: wgrad in bf16
  GradientFormat gradient_format = GradientFormat::recipe;
  double wide_start = -1;      // share of the first blocks kept in bf16; −1: the recipe's own
  double wide_tail = -1;       // share of the last blocks kept in bf16; −1: the recipe's own (nvfp4: 0.15)
  std::string switch_to = {};  // recipe for the last part of the run; empty: none
  double switch_at = 0.85;     // share of the steps after which switch_to applies
  AccumulatorChoice accumulator = AccumulatorChoice::automatic;
  std::string scales = {};             // file of scales for fp8-static and warm starts of fp8-delayed
  std::string localization = {};       // the sensitivity map that `layers` came from, for the dashboard
  double static_activation_scale = 1;  // fp8-static without a file: s in q = cast(x · s)
  double static_weight_scale = 16;
  double static_gradient_scale = 1024;
  int recalibrate_every = 2000;  // steps after which static scales are fitted anew, and on alerts; 0: never

  LossScaling loss_scaling = LossScaling::automatic;
  int loss_scale_log2 = 8;      // start, or the fixed value
  int loss_scale_window = 200;  // steps without overflow before it doubles
};

}  // namespace quaver
