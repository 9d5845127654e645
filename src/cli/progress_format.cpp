// How a step of progress looks: as a bar, as a line, as JSON.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/progress.h"

namespace quaver {
namespace {

enum class Tint : std::uint8_t { plain, strong, good, alarm, bad };

std::string_view escape_of(Tint tint) {
  switch (tint) {
    case Tint::strong:
      return "\x1b[1m";
    case Tint::good:
      return "\x1b[36m";
    case Tint::alarm:
      return "\x1b[33m";
    case Tint::bad:
      return "\x1b[31m";
    case Tint::plain:
      break;
  }
  return "";
}

std::string tinted(const std::string& text, Tint tint, Colors colors) {
  if (colors == Colors::off || tint == Tint::plain) return text;
  return fmt::format("{}{}\x1b[0m", escape_of(tint), text);
}

// A piece of the bar's line. `rank` decides who goes first when the terminal is narrow: the highest.
struct Field {
  std::string text;
  int rank;
  Tint tint = Tint::plain;
};

std::string left_text(std::optional<double> seconds_left) {
  return seconds_left ? format_duration(*seconds_left) : "--";
}

double done_share(const ProgressLine& line) {
  if (line.steps <= 0) return 0;
  return std::clamp(static_cast<double>(line.step) / static_cast<double>(line.steps), 0.0, 1.0);
}

std::vector<Field> bar_fields(const ProgressLine& line, std::optional<double> seconds_left) {
  const std::string steps = fmt::format("{}", line.steps);
  std::vector<Field> fields;
  fields.push_back({fmt::format("{:>{}}/{}", line.step, steps.size(), steps), 0});
  fields.push_back({fmt::format("loss {:.4f}", line.loss), 1, std::isfinite(line.loss) ? Tint::strong : Tint::bad});
  if (line.validation_loss) fields.push_back({fmt::format("val {:.4f}", *line.validation_loss), 4});
  if (line.validation_accuracy) fields.push_back({fmt::format("accuracy {:.2f}%", 100 * *line.validation_accuracy), 4});
  fields.push_back({fmt::format("{} {}/s", format_count(line.tokens_per_second), line.unit), 3});
  fields.push_back({fmt::format("{} TFLOP/s", format_count(line.tflops)), 6});
  fields.push_back({fmt::format("8-bit {:.0f}%", line.low_precision_percent), 7});
  if (line.overflows > 0) fields.push_back({fmt::format("overflow {}", line.overflows), 5, Tint::alarm});
  if (line.skipped > 0) fields.push_back({fmt::format("skipped {}", line.skipped), 5, Tint::alarm});
  fields.push_back({fmt::format("lr {:.2e}", line.learning_rate), 8});
  fields.push_back({fmt::format("norm {:.2f}", line.gradient_norm), 9});
  fields.push_back({fmt::format("ETA {}", left_text(seconds_left)), 2});
  return fields;
}

constexpr int gap = 2;

int width_of(const std::vector<Field>& fields) {
  int width = 0;
  for (const Field& field : fields) width += static_cast<int>(field.text.size()) + gap;
  return std::max(0, width - gap);
}

void drop_until_fit(std::vector<Field>& fields, int columns) {
  while (!fields.empty() && width_of(fields) > columns) {
    fields.erase(std::ranges::max_element(fields, {}, &Field::rank));
  }
}

std::string drawn_bar(double share, int width, Colors colors, Glyphs glyphs) {
  const int full = static_cast<int>(share * width);
  const std::string_view done = glyphs == Glyphs::unicode ? "━" : "=";
  const std::string_view open = glyphs == Glyphs::unicode ? "─" : "-";
  std::string left, right;
  for (int i = 0; i < full; ++i) left += done;
  for (int i = full; i < width; ++i) right += open;
  return tinted(left, Tint::good, colors) + right;
}

// Three significant digits of x in units of 1000 (or 1024) with the unit's name after it.
template <std::size_t count>
std::string in_units(double x, double base, const std::array<std::string_view, count>& units, std::string_view space) {
  std::size_t unit = 0;
  // 999.5 would be written with four digits, so it moves to the next unit.
  while (unit + 1 < count && std::abs(x) >= (unit == 0 ? base : 999.5)) {
    x /= base;
    ++unit;
  }
  const double size = std::abs(x);
  const bool whole = unit == 0 && x == std::floor(x);
  const int decimals = whole || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}{}", x, decimals, space, units[unit]);
}

}  // namespace

std::string format_duration(double seconds) {
  constexpr double longest = 1e9;
  if (!std::isfinite(seconds) || seconds < 0 || seconds > longest) return "--";
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  if (total < 60) return fmt::format("{}s", total);
  if (total < 3600) return fmt::format("{}m{:02}s", total / 60, total % 60);
  if (total < 86400) return fmt::format("{}h{:02}m", total / 3600, total / 60 % 60);
  return fmt::format("{}d{:02}h", total / 86400, total / 3600 % 24);
}

std::string format_count(double count) {
  if (!std::isfinite(count)) return "--";
  constexpr std::array<std::string_view, 6> units = {"", "k", "M", "G", "T", "P"};
  return in_units(count, 1000, units, "");
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 7> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return in_units(static_cast<double>(bytes), 1024, units, " ");
}

std::string format_bar(const ProgressLine& line, std::optional<double> seconds_left, int columns, Colors colors,
                       Glyphs glyphs) {
  constexpr int narrowest_bar = 8, widest_bar = 24;
  std::vector<Field> fields = bar_fields(line, seconds_left);
  // The bar itself is worth more than the last fields of a narrow terminal, less than step, loss and time left.
  const bool with_bar = columns >= 40;
  drop_until_fit(fields, with_bar ? columns - narrowest_bar - gap : columns);
  std::string text;
  for (const Field& field : fields) {
    if (!text.empty()) text += std::string(gap, ' ');
    text += tinted(field.text, field.tint, colors);
    if (with_bar && field.rank == 0) {
      const int width = std::clamp(columns - gap - width_of(fields), narrowest_bar, widest_bar);
      text += std::string(gap, ' ') + drawn_bar(done_share(line), width, colors, glyphs);
    }
  }
  return text;
}

std::string format_line(const ProgressLine& line, std::optional<double> seconds_left) {
  const std::string steps = fmt::format("{}", line.steps);
  const std::string validation = line.validation_loss ? fmt::format("{:.4f}", *line.validation_loss) : "-";
  const std::string accuracy =
      line.validation_accuracy ? fmt::format("  accuracy {:.2f}%", 100 * *line.validation_accuracy) : "";
  return fmt::format(
      "step {:>{}}/{}  loss {:8.4f}  val {:>8}  lr {:.2e}  norm {:8.3f}  {:>5} {}/s  {:>6} TFLOP/s  8-bit {:5.1f}%  "
      "overflow {:4}  skipped {:3}  eta {:>6}{}",
      line.step, steps.size(), steps, line.loss, validation, line.learning_rate, line.gradient_norm,
      format_count(line.tokens_per_second), line.unit, format_count(line.tflops), line.low_precision_percent,
      line.overflows, line.skipped, left_text(seconds_left), accuracy);
}

std::string format_json(const ProgressLine& line, std::optional<double> seconds_left) {
  nlohmann::ordered_json object;
  object["event"] = "step";
  object["step"] = line.step;
  object["steps"] = line.steps;
  object["loss"] = line.loss;
  if (line.validation_loss) object["validation_loss"] = *line.validation_loss;
  if (line.validation_accuracy) object["validation_accuracy"] = *line.validation_accuracy;
  object["learning_rate"] = line.learning_rate;
  object["gradient_norm"] = line.gradient_norm;
  object["tokens_per_second"] = line.tokens_per_second;
  object["tflops"] = line.tflops;
  object["narrow_percent"] = line.low_precision_percent;
  object["overflows"] = line.overflows;
  object["skipped"] = line.skipped;
  object["seconds_left"] = seconds_left ? nlohmann::ordered_json(*seconds_left) : nlohmann::ordered_json(nullptr);
  return object.dump();
}

}  // namespace quaver
