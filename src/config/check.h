// Whether settings that are each allowed make sense together.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace quaver {

// What the config is wanted for: estimating or inspecting a model needs no data, training does.
enum class Purpose : std::uint8_t { training, inspection };

// Throws Error naming the keys that contradict each other, and what to change. Checks every key's own range as well,
// for configs that were made by hand.
void check(const Config& config, Purpose purpose = Purpose::training);

}  // namespace quaver
