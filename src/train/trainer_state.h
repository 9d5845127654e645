// state.json of a checkpoint: the counters, random positions and scales of a trainer, typed and checked as they are
// read. The tensors lie beside it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/quant_spec.h"
#include "train/watch_state.h"

namespace quaver {

struct TrainerState {
  Size step = 0;
  Size updates = 0;  // of the optimizer: skipped steps are not among them
  Size skipped_batches = 0;
  std::uint32_t last_weight_cast = 0;
  bool switched = false;
  int loss_scale_log2 = 0;
  int loss_scale_clean_steps = 0;
  WatchState watch;
  std::vector<float> unit_factors;
  std::string scale_book;  // JSON
};

std::string to_json(const TrainerState& state);

// `step` is what the manifest says. Throws Error, naming the source, where the text is no state, is of another step, or
// holds numbers that no run comes to.
TrainerState parse_state(std::string_view text, std::uint64_t step, std::string_view source);

}  // namespace quaver
