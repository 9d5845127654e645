#include "report/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <fmt/core.h>

#include "io/utf8.h"

namespace quaver::report {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view minus = "\xE2\x88\x92";        // U+2212

// Length of the character at the start of the text; 0 where it is ill-formed UTF-8 or none that XML allows.
std::size_t character_length(std::string_view text) {
  const CodePoint point = decode_utf8(text, 0);
  const bool is_allowed = point.valid && point.value != 0xFFFE && point.value != 0xFFFF;
  return is_allowed ? static_cast<std::size_t>(point.bytes) : 0;
}

// Relative widths in the wider of the common sans-serif faces: room to spare is better than an overlap.
double glyph_width(std::string_view glyph) {
  if (glyph.size() > 1) return glyph.size() >= 3 && glyph[0] >= '\xE3' ? 1.0 : 0.64;
  const char c = glyph[0];
  if (std::string_view("iljtfrI.,:;'|!()[] ").find(c) != std::string_view::npos) return 0.37;
  if (std::string_view("mwMW@%").find(c) != std::string_view::npos) return 0.9;
  return c >= 'A' && c <= 'Z' ? 0.7 : 0.62;
}

std::string with_true_minus(std::string text) {
  for (std::size_t at = text.find('-'); at != std::string::npos; at = text.find('-', at + minus.size())) {
    text.replace(at, 1, minus);
  }
  return text;
}

// Digits for four significant ones, without trailing zeros.
std::string four_digits(double value) {
  const double magnitude = std::abs(value);
  const int before = magnitude < 1 ? 1 : static_cast<int>(std::log10(magnitude)) + 1;
  std::string text = fmt::format("{:.{}f}", value, magnitude < 1 ? 4 : std::max(0, 4 - before));
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    if (length == 0 || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F) {
      safe += replacement;
    } else if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else if (c == '\'') {
      safe += "&#39;";
    } else {
      safe += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return safe;
}

double text_width(std::string_view text, double font_size) {
  double width = 0;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(character_length(text), 1);
    width += glyph_width(text.substr(0, length));
    text.remove_prefix(length);
  }
  return width * font_size;
}

std::string shorten(std::string_view text, double width, double font_size) {
  if (text_width(text, font_size) <= width) return std::string(text);
  const double room = width - font_size;
  double used = 0;
  std::size_t end = 0;
  while (end < text.size()) {
    const std::size_t length = std::max<std::size_t>(character_length(text.substr(end)), 1);
    used += glyph_width(text.substr(end, length)) * font_size;
    if (used > room) break;
    end += length;
  }
  return std::string(text.substr(0, end)) + "\xE2\x80\xA6";
}

DisplayUnit display_unit(Unit unit, double largest) {
  struct Step {
    double from;
    double divisor;
    const char* suffix;
  };
  static constexpr std::array<Step, 7> byte_steps{{{0, 1, " B"},
                                                   {0x1p10, 0x1p10, " KiB"},
                                                   {0x1p20, 0x1p20, " MiB"},
                                                   {0x1p30, 0x1p30, " GiB"},
                                                   {0x1p40, 0x1p40, " TiB"},
                                                   {0x1p50, 0x1p50, " PiB"},
                                                   {0x1p60, 0x1p60, " EiB"}}};
  static constexpr std::array<Step, 6> second_steps{{{0, 1e-9, " ns"},
                                                     {1e-6, 1e-6, " µs"},
                                                     {1e-3, 1e-3, " ms"},
                                                     {1, 1, " s"},
                                                     {120, 60, " min"},
                                                     {7200, 3600, " h"}}};
  static constexpr std::array<Step, 5> plain_steps{
      {{0, 1, ""}, {1e4, 1e3, "k"}, {1e6, 1e6, "M"}, {1e9, 1e9, "G"}, {1e12, 1e12, "T"}}};
  const auto pick = [&](const auto& steps) {
    DisplayUnit chosen{steps[0].divisor, steps[0].suffix};
    for (const Step& step : steps) {
      if (largest >= step.from) chosen = {step.divisor, step.suffix};
    }
    return chosen;
  };
  // Powers of ten outside what anyone reads with a prefix; base is what one of the suffix is worth.
  const auto scientific = [&](double base, std::string_view suffix) {
    const int exponent =
        std::max(-300, static_cast<int>(std::floor(std::log10(largest) - std::log10(base))));  // 10^-300 divides
    return DisplayUnit{base * std::pow(10.0, exponent),
                       with_true_minus(fmt::format("e{}", exponent)) + std::string(suffix)};
  };
  const auto within = [&](double low, double high) {
    return largest == 0 || !std::isfinite(largest) || (largest >= low && largest < high);
  };
  switch (unit) {
    case Unit::bytes:
      return within(1e-2, 1e21) ? pick(byte_steps) : scientific(1, " B");
    case Unit::seconds:
      if (largest == 0) return {1, " s"};
      return within(1e-12, 1e9) ? pick(second_steps) : scientific(1, " s");
    case Unit::percent:
      return within(1e-5, 1e4) ? DisplayUnit{0.01, " %"} : scientific(0.01, " %");
    case Unit::none:
      break;
  }
  return within(1e-3, 1e15) ? pick(plain_steps) : scientific(1, "");
}

std::string format_value(double value, Unit unit) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+∞" : std::string(minus) + "∞";
  if (value == 0 && unit == Unit::none) return "0";
  const DisplayUnit display = display_unit(unit, std::abs(value));
  return with_true_minus(four_digits(value / display.divisor)) + display.suffix;
}

std::string format_fixed(double value, int decimals) {
  if (!std::isfinite(value)) return format_value(value);
  std::string text = fmt::format("{:.{}f}", value, std::clamp(decimals, 0, 17));
  if (text.find_first_of("123456789") == std::string::npos && text[0] == '-') text.erase(0, 1);
  return with_true_minus(std::move(text));
}

}  // namespace quaver::report
