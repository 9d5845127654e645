#include "cli/progress.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

namespace quaver {
namespace {

constexpr double redraw_interval = 0.1;
constexpr std::string_view erase_to_end = "\x1b[K";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = environment(name);
    if (value.empty()) continue;
    std::ranges::transform(value, value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

int terminal_columns(std::FILE* out) {
  winsize size{};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// A terminal obeys control characters, and text sampled from a model may hold any. C1 controls are two bytes in UTF-8.
std::string without_controls(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool starts_c1 =
        byte == 0xC2 && i + 1 < text.size() && (static_cast<unsigned char>(text[i + 1]) & 0xE0U) == 0x80;
    const bool is_control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    if (starts_c1) ++i;
    result += starts_c1 || is_control ? '?' : text[i];
  }
  return result;
}

std::string json_event(std::string_view event, std::string_view text) {
  nlohmann::ordered_json object;
  object["event"] = event;
  object["text"] = text;
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ProgressOptions progress_options(std::FILE* out, OutputStyle style) {
  ProgressOptions options;
  options.out = out;
  if (style == OutputStyle::json) {
    options.mode = ProgressMode::json;
  } else if (::isatty(::fileno(out)) != 0 && environment("TERM") != "dumb") {
    options.mode = ProgressMode::bar;
    options.colors = environment("NO_COLOR").empty() ? Colors::on : Colors::off;
    options.glyphs = locale_is_utf8() ? Glyphs::unicode : Glyphs::ascii;
  }
  return options;
}

Progress::Progress(ProgressOptions options) : options_(std::move(options)) {
  if (!options_.seconds) options_.seconds = steady_seconds;
  options_.log_every = std::max<std::int64_t>(1, options_.log_every);
}

Progress::~Progress() { finish(); }

void Progress::update(const ProgressLine& line) {
  updated_at_ = options_.seconds();
  if (!first_step_) {
    first_step_ = line.step;
    started_at_ = updated_at_;
  }
  const auto known_validation = last_.validation_loss;
  const auto known_accuracy = last_.validation_accuracy;
  last_ = line;
  if (options_.mode == ProgressMode::bar) {
    if (!last_.validation_loss) last_.validation_loss = known_validation;
    if (!last_.validation_accuracy) last_.validation_accuracy = known_accuracy;
    bar_is_stale_ = true;
    const bool is_last = line.step >= line.steps;
    if (!bar_is_drawn_ || is_last || updated_at_ - drawn_at_ >= redraw_interval) redraw();
  } else if (is_due(line)) {
    write(
        (options_.mode == ProgressMode::json ? format_json(line, seconds_left()) : format_line(line, seconds_left())) +
        "\n");
  }
}

void Progress::message(std::string_view text) {
  if (options_.mode == ProgressMode::json) {
    write(json_event("message", text));
  } else {
    print_above_bar(without_controls(text) + "\n");
  }
}

void Progress::warning(std::string_view text) { labelled("warning", "\x1b[33m", text); }

void Progress::critical(std::string_view text) { labelled("critical", "\x1b[31m", text); }

void Progress::labelled(std::string_view label, std::string_view color, std::string_view text) {
  if (options_.mode == ProgressMode::json) {
    write(json_event(label, text));
    return;
  }
  const bool colored = options_.colors == Colors::on;
  print_above_bar(
      fmt::format("{}{}:{} {}\n", colored ? color : "", label, colored ? "\x1b[0m" : "", without_controls(text)));
}

void Progress::finish() {
  if (!bar_is_drawn_) return;
  if (bar_is_stale_) redraw();
  write("\n");
  bar_is_drawn_ = false;
}

bool Progress::is_due(const ProgressLine& line) const {
  return line.step % options_.log_every == 0 || line.step >= line.steps || line.validation_loss.has_value();
}

// At the mean pace since the first update, which includes validations and checkpoints as the rest of the run will, but
// not what came before the first step.
std::optional<double> Progress::seconds_left() const {
  const std::int64_t done = last_.step - *first_step_;
  if (done <= 0 || last_.steps < last_.step) return std::nullopt;
  return (updated_at_ - started_at_) / static_cast<double>(done) * static_cast<double>(last_.steps - last_.step);
}

// Text first, then erase what the last one left behind: erasing first would flicker. The last column stays free, since
// terminals differ on where the cursor is after it.
void Progress::redraw() {
  const int columns = options_.columns > 0 ? options_.columns : terminal_columns(options_.out);
  write(fmt::format("\r{}{}", format_bar(last_, seconds_left(), columns - 1, options_.colors, options_.glyphs),
                    erase_to_end));
  bar_is_drawn_ = true;
  bar_is_stale_ = false;
  drawn_at_ = updated_at_;
}

void Progress::print_above_bar(const std::string& text) {
  if (!bar_is_drawn_) {
    write(text);
    return;
  }
  const int columns = options_.columns > 0 ? options_.columns : terminal_columns(options_.out);
  write(fmt::format("\r{}{}{}", erase_to_end, text,
                    format_bar(last_, seconds_left(), columns - 1, options_.colors, options_.glyphs)));
  bar_is_stale_ = false;
}

void Progress::write(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), options_.out);
  if (std::fflush(options_.out) == 0 || (errno != EPIPE && errno != EIO)) return;
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  ::dup2(nowhere, ::fileno(options_.out));
  ::close(nowhere);
  std::clearerr(options_.out);
}

}  // namespace quaver
