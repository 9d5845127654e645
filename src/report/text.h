// Text and numbers as a report shows them: escaped, measured, in units a reader expects.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quaver::report {

// Safe in HTML and SVG, between tags and in quoted attributes. Bytes that are not UTF-8, and control characters that
// XML does not allow, become U+FFFD.
std::string escape(std::string_view text);

// About how wide the text is, in pixels, in a sans-serif face of the given size: no font is at hand to ask.
double text_width(std::string_view text, double font_size);

// The text, or as much of it as fits with an ellipsis. Cuts between code points.
std::string shorten(std::string_view text, double width, double font_size);

// percent: the value is a fraction, 0.5 shows as 50 %. bytes: 1024-based. seconds: from ns to h.
enum class Unit : std::uint8_t { none, bytes, seconds, percent };

// A number to be divided by `divisor` and followed by `suffix`: 12 345 678 bytes → {1048576, " MiB"}.
struct DisplayUnit {
  double divisor;
  std::string suffix;
};
DisplayUnit display_unit(Unit unit, double largest_magnitude);

// Four significant digits with the unit: "11.77 MiB", "3.2 ms", "41.2 %", "12.3k", "−4.5e−5", "NaN".
std::string format_value(double value, Unit unit = Unit::none);

// A fixed number of decimals, with a true minus sign and no negative zero.
std::string format_fixed(double value, int decimals);

}  // namespace quaver::report
