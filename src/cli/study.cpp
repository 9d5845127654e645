#include "cli/study.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>

#include "config/check.h"
#include "config/load.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t shown_width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

void notice(const std::string& text) { fmt::print(stderr, "quaver: {}\n", text); }

}  // namespace

std::unique_ptr<Subject> open_subject(const StudyArguments& arguments) {
  if (arguments.run.empty()) {
    if (arguments.step) throw Error("--step names a checkpoint, and there is no run", "add --run DIR");
    const Config config =
        load_config({.files = arguments.config.files, .texts = {}, .flags = arguments.config.settings});
    check(config, Purpose::training);
    return open_subject(config, notice);
  }
  if (!arguments.config.files.empty()) {
    throw Error("--run brings its own config, and " + arguments.config.files.front() + " is another",
                "leave the file out; settings such as --recipe apply on top of the run's config");
  }
  return open_subject(arguments.run, arguments.config.settings, arguments.step, notice);
}

void make_folder(const std::filesystem::path& folder) {
  if (folder.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw system_error("cannot make the folder", folder, failure.value());
}

Size warmup_steps(const StudyArguments& arguments) {
  constexpr Size fresh_model = 20;
  return arguments.warmup_steps.value_or(arguments.run.empty() ? fresh_model : 0);
}

StudyBar::StudyBar(std::string what, Output output)
    : what_(std::move(what)),
      options_(progress_options(stdout, output == Output::json ? OutputStyle::json : OutputStyle::human)),
      started_(seconds_now()) {}

StudyBar::~StudyBar() {
  if (is_drawn_) fmt::print(options_.out, "\n");
  std::fflush(options_.out);
}

void StudyBar::show(Size done, Size total) {
  if (options_.mode == ProgressMode::json || total <= 0) return;
  const double now = seconds_now();
  const double left = done > 0 ? (now - started_) / static_cast<double>(done) * static_cast<double>(total - done) : -1;
  const std::string line = fmt::format("{} {}/{}, {} left", what_, done, total, format_duration(left));
  if (options_.mode == ProgressMode::bar) {
    if (now - drawn_ < 0.1 && done < total) return;
    fmt::print(options_.out, "\r{}\033[K", line);
    drawn_ = now;
    is_drawn_ = true;
  } else if (10 * done / total > tenths_) {
    tenths_ = 10 * done / total;
    fmt::print(options_.out, "{}\n", line);
  }
  std::fflush(options_.out);
}

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], shown_width(row[c]));
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - shown_width(row[c]), ' ');
      text += c == 0 ? row[c] + padding : "  " + padding + row[c];
    }
    text += "\n";
  }
  return text;
}

std::string shown(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "–";
}

}  // namespace quaver
