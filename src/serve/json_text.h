// JSON text: long arrays of numbers in their shortest exact form, and strings.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quaver {

// On one line. Bytes that are not UTF-8 are replaced.
std::string json_text(const nlohmann::json& value);

// With its quotes. Bytes that are not UTF-8 are replaced.
std::string json_string(std::string_view text);

// Numbers that are not finite become null.
void append_array(std::string& json, const std::vector<std::uint64_t>& values);
void append_array(std::string& json, const std::vector<float>& values);
void append_array(std::string& json, const std::vector<double>& values);

}  // namespace quaver
