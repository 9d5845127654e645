#include "train/trainer_state.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "precision/loss_scale.h"
#include "quaver/error.h"

namespace quaver {

using nlohmann::json;

namespace {

constexpr Size most_batches = Size{1} << 50;  // beyond it an index of batches can only be damage

}  // namespace

std::string to_json(const TrainerState& state) {
  return json{{"step", state.step},
              {"updates", state.updates},
              {"skipped_batches", state.skipped_batches},
              {"last_weight_cast", state.last_weight_cast},
              {"switched", state.switched},
              {"loss_scale_log2", state.loss_scale_log2},
              {"loss_scale_clean_steps", state.loss_scale_clean_steps},
              {"notes", to_numbers(state.watch)},
              {"unit_factors", state.unit_factors},
              {"scale_book", json::parse(state.scale_book)}}
      .dump(1);
}

TrainerState parse_state(std::string_view text, std::uint64_t step, std::string_view source) {
  const auto damaged = [&](const std::string& why) {
    return Error(fmt::format("{}: not the state of a run: {}", source, why), "resume from an older checkpoint");
  };
  TrainerState state;
  try {
    constexpr int deepest = 32;  // writing JSON, as below, calls itself for every level
    const auto refuse_deep = [&](int depth, json::parse_event_t, const json&) {
      if (depth > deepest) throw damaged("it is nested too deep");
      return true;
    };
    const json read = json::parse(text, refuse_deep);
    // An integer where one is due: a conversion from 1e18 or -1.5 would give some other number.
    const auto integer = [&](const char* key, Size most) {
      const json& value = read.at(key);
      const bool fits = value.is_number_integer() && value.get<Size>() >= 0 && value.get<Size>() <= most;
      if (!fits) throw damaged(fmt::format("{} is {}", key, value.dump()));
      return value.get<Size>();
    };
    state.step = integer("step", most_batches);
    state.updates = integer("updates", state.step);
    state.skipped_batches = integer("skipped_batches", most_batches);
    state.last_weight_cast =
        static_cast<std::uint32_t>(integer("last_weight_cast", std::min<Size>(state.step, UINT32_MAX)));
    state.switched = read.at("switched").get<bool>();
    state.loss_scale_log2 = static_cast<int>(integer("loss_scale_log2", LossScale::largest_log2));
    state.loss_scale_clean_steps = static_cast<int>(integer("loss_scale_clean_steps", INT32_MAX));
    state.watch = parse_watch_state(read.at("notes").get<std::map<std::string, double>>());
    state.unit_factors = read.at("unit_factors").get<std::vector<float>>();
    state.scale_book = read.at("scale_book").dump();
  } catch (const json::exception& error) {
    throw damaged(error.what());
  }
  if (static_cast<std::uint64_t>(state.step) != step) {
    throw damaged(fmt::format("it is of step {}, the manifest of step {}", state.step, step));
  }
  const auto finite = [](float factor) { return std::isfinite(factor); };
  if (!std::all_of(state.unit_factors.begin(), state.unit_factors.end(), finite)) {
    throw damaged("a unit-scaling factor is not finite");
  }
  return state;
}

}  // namespace quaver
