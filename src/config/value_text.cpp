#include "config/value_text.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <variant>

#include "config/recipe_table.h"
#include "io/utf8.h"

namespace quaver {
namespace {

template <class Table, class ValueText>
std::string inline_table(const Table& table, ValueText value_text) {
  if (table.empty()) return "{}";
  std::string text = "{ ";
  for (const auto& [pattern, value] : table) {
    if (text.size() > 2) text += ", ";
    text += toml_string(pattern) + " = " + value_text(value);
  }
  return text + " }";
}

// TOML tells 1 from 1.0; a number is always written as one.
std::string toml_number(double x) {
  std::string text = number_text(x);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

struct TomlWriter {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return toml_number(value); }
  std::string operator()(const std::string& value) const { return toml_string(value); }
  std::string operator()(const NumberTable& value) const { return inline_table(value, toml_number); }
  std::string operator()(const TextTable& value) const { return inline_table(value, toml_string); }
  std::string operator()(const RecipeTable& value) const { return inline_table(value, inline_recipe); }
};

struct Describer {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("integer {}", value); }
  std::string operator()(double value) const { return "number " + toml_number(value); }
  std::string operator()(const std::string& value) const { return "text " + quoted_excerpt(value); }
  std::string operator()(const NumberTable&) const { return "a table"; }
  std::string operator()(const TextTable&) const { return "a table"; }
  std::string operator()(const RecipeTable&) const { return "a table"; }
};

}  // namespace

std::string number_text(double x) {
  std::string text = fmt::format("{}", x);
  const auto exponent = text.find('e');
  if (exponent == std::string::npos) return text;
  // "1e-08" and "1e+16" are written as people write them.
  const std::string sign = text[exponent + 1] == '-' ? "-" : "";
  const auto digit = text.find_first_not_of("+-0", exponent + 1);
  return text.substr(0, exponent) + "e" + sign + (digit == std::string::npos ? "0" : text.substr(digit));
}

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\u{:04X}", byte);
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string toml_value(const Value& value) { return std::visit(TomlWriter{}, value); }

std::string describe_value(const Value& value) { return std::visit(Describer{}, value); }

std::string quoted_excerpt(std::string_view text) {
  constexpr std::size_t longest = 60;
  const bool readable = is_plain_text(text);
  std::size_t end = std::min(text.size(), longest);
  const auto byte_at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  while (readable && end > 0 && end < text.size() && (byte_at(end) & 0xC0U) == 0x80) --end;  // whole characters only
  std::string result = "\"";
  for (std::size_t i = 0; i < end; ++i) {
    const bool printable = byte_at(i) >= 0x20 && byte_at(i) != 0x7F && (readable || byte_at(i) < 0x80);
    result += printable ? std::string(1, text[i]) : fmt::format("\\x{:02x}", byte_at(i));
  }
  return result + (end < text.size() ? "…\"" : "\"");
}

bool is_plain_text(std::string_view text) {
  return text.find('\0') == std::string_view::npos && find_invalid_utf8(text) == std::string_view::npos;
}

}  // namespace quaver
