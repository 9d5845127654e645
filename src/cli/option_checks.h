// Checks of options' values that CLI11 does not have.
#pragma once

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace quaver {

// From low to high, both allowed. Unlike CLI::Range it refuses what is not a number.
template <typename Number>
CLI::Validator within(Number low, Number high) {
  return {[low, high](const std::string& text) -> std::string {
            Number value{};
            if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return {};
            return fmt::format("{} is not in the range from {} to {}", text, low, high);
          },
          fmt::format("from {} to {}", low, high)};
}

}  // namespace quaver
