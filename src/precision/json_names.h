// The words that stand for an enumeration's values in scale files.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "quaver/error.h"

namespace quaver {

template <class Enum, std::size_t N>
using Names = std::array<std::pair<Enum, std::string_view>, N>;

template <class Enum, std::size_t N>
std::string_view name_in(const Names<Enum, N>& names, Enum value) {
  for (const auto& [key, name] : names) {
    if (key == value) return name;
  }
  return "";
}

template <class Enum, std::size_t N>
Enum value_in(const Names<Enum, N>& names, const std::string& text) {
  for (const auto& [key, name] : names) {
    if (name == text) return key;
  }
  throw Error("the scale file says '" + text + "', which means nothing there", "export it again");
}

// A whole number within the limits of its type; Error for anything else, which get<> would convert.
template <class Integer>
Integer integer_in(const nlohmann::json& value) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<Integer>(value.get<std::uint64_t>())
                        : value.is_number_integer() && std::in_range<Integer>(value.get<std::int64_t>());
  if (!fits)
    throw Error("the scale file has a number that cannot be, where a whole one is expected", "export it again");
  return value.get<Integer>();
}

}  // namespace quaver
