// Values as text: shortest numbers that read back exactly, TOML strings, and words for messages.
#pragma once

#include <string>
#include <string_view>

#include "config/schema.h"

namespace quaver {

// The shortest text that reads back as the same double: "0.001", "1e-8", "10000".
std::string number_text(double x);

// A TOML basic string, with quotes.
std::string toml_string(std::string_view text);

// The value as TOML, on one line: 3, 1e-8, true, "text", { "blocks.*" = 0.5 }.
std::string toml_value(const Value& value);

// For "found …" in messages: `text "fast"`, `integer 3`, `number 1.5`, `a table`.
std::string describe_value(const Value& value);

// Text from outside for use in a message: quoted, shortened when long, and safe to print whatever bytes it holds.
std::string quoted_excerpt(std::string_view text);

// Well-formed UTF-8 without NUL: what TOML strings, paths and terminals can all hold.
bool is_plain_text(std::string_view text);

}  // namespace quaver
