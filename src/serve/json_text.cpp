#include "serve/json_text.h"

#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <type_traits>

namespace quaver {

namespace {

template <class Number>
void append_numbers(std::string& json, const std::vector<Number>& values) {
  const auto out = std::back_inserter(json);
  json += '[';
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) json += ',';
    if constexpr (std::is_floating_point_v<Number>) {
      if (!std::isfinite(values[i])) {
        json += "null";
        continue;
      }
    }
    fmt::format_to(out, "{}", values[i]);
  }
  json += ']';
}

}  // namespace

std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_string(std::string_view text) { return json_text(nlohmann::json(text)); }

void append_array(std::string& json, const std::vector<std::uint64_t>& values) { append_numbers(json, values); }
void append_array(std::string& json, const std::vector<float>& values) { append_numbers(json, values); }
void append_array(std::string& json, const std::vector<double>& values) { append_numbers(json, values); }

}  // namespace quaver
