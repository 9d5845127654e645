// A JSON object from outside, read field by field: every value has a type and bounds, and what does not fit is an Error
// with the file and the field. Included by .cpp files of this module alone.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/quant_spec.h"

namespace quaver {

// A name out of a file, fit for a message: bounded, and without control characters.
std::string printable(std::string_view text);

// "[480, 96]".
std::string shape_text(std::span<const std::int64_t> shape);

// The text as an object; Error where it is none, and where it is nested deeper than such files are.
nlohmann::json parse_object(std::string_view text, std::string_view source);

class Fields {
 public:
  // Both must outlive it.
  Fields(const nlohmann::json& object, std::string_view source) : object_(object), source_(source) {}

  const nlohmann::json* find(const char* key) const;  // null where the field is absent or null
  bool has(const char* key) const { return find(key) != nullptr; }
  bool is_null(const char* key) const;  // there, and null

  // Without a default the field must be there.
  Size integer(const char* key, Size most, std::optional<Size> otherwise = std::nullopt) const;  // at least 1
  double number(const char* key, double least, double most, std::optional<double> otherwise = std::nullopt) const;
  bool boolean(const char* key, bool otherwise) const;
  std::string text(const char* key, std::optional<std::string> otherwise = std::nullopt) const;

  std::string_view source() const { return source_; }
  [[noreturn]] void wrong(const char* key, const std::string& expected) const;
  [[noreturn]] void missing(const char* key) const;

 private:
  const nlohmann::json& object_;
  std::string_view source_;
};

}  // namespace quaver
