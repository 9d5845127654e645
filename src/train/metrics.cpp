#include "train/metrics.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "io/file_io.h"

namespace quaver {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{8} << 30U;        // of a log: tens of millions of steps
constexpr std::size_t most_pending_bytes = std::size_t{256} << 20U;  // beyond it the newest lines are given up

// JSON has no infinity: a number that is not finite is null.
ordered_json number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

void append_to(const fs::path& path, std::string_view text) {
  const std::string before = fs::exists(path) ? read_file(path, most_bytes) : "";
  write_file_atomically(path, before + std::string(text));
}

fs::path unreadable_file(const fs::path& log) { return fs::path(log).replace_extension(".unreadable.txt"); }

std::string whole_file(int descriptor) {
  std::string text;
  std::string buffer(std::size_t{1} << 20U, '\0');
  while (true) {
    const ssize_t got = ::pread(descriptor, buffer.data(), buffer.size(), static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(buffer, 0, static_cast<std::size_t>(got));
  }
}

int open_log(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor < 0) throw system_error("cannot write", path, errno);
  return descriptor;
}

}  // namespace

MetricsHistory read_metrics(std::string_view text, Size last_step) {
  MetricsHistory history;
  double elapsed = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++history.lines;
    // Not ordered_json: it copies values as it grows, by a function that calls itself for every level of nesting.
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object()) {
      if (history.unreadable_lines++ == 0) history.first_unreadable = history.lines;
      history.unreadable.append(line).append("\n");
      continue;
    }
    const auto step = entry.find("step");
    const bool later = step != entry.end() && step->is_number_integer() && step->get<Size>() > last_step;
    if (later) continue;
    history.kept.append(line).append("\n");
    const auto seconds = entry.find("seconds");
    if (seconds != entry.end() && seconds->is_number()) elapsed += std::max(0.0, seconds->get<double>());
    const auto loss = entry.find("loss");
    const bool trained = step != entry.end() && step->is_number_integer() && loss != entry.end() && loss->is_number() &&
                         !entry.contains("skipped");
    if (trained) history.losses.push_back({step->get<Size>(), loss->get<double>(), elapsed});
  }
  return history;
}

bool has_trained(const fs::path& path) {
  if (!fs::exists(path)) return false;
  const std::string text = read_file(path, most_bytes);
  return read_metrics(text, 0).kept.size() != text.size();
}

MetricsLog::MetricsLog(fs::path path, Size last_step, Warning warning)
    : path_(std::move(path)), warning_(std::move(warning)) {
  if (fs::exists(path_)) {
    MetricsHistory history = read_metrics(read_file(path_, most_bytes), last_step);
    if (history.unreadable_lines > 0) {
      append_to(unreadable_file(path_), history.unreadable);
      warning_(
          fmt::format("{}: {} of {} lines cannot be read, the first is line {}; they are in {} now, the others "
                      "stay",
                      path_.string(), history.unreadable_lines, history.lines, history.first_unreadable,
                      unreadable_file(path_).filename().string()));
    }
    write_file_atomically(path_, history.kept);
    earlier_losses_ = std::move(history.losses);
  }
  descriptor_ = open_log(path_);
}

MetricsLog::~MetricsLog() {
  flush();
  ::close(descriptor_);
}

void MetricsLog::write(const std::string& line) {
  if (pending_.size() + line.size() < most_pending_bytes) pending_.append(line).append("\n");
  flush();
}

// A line that was written in part goes on where it stopped, so that no two lines run into each other.
void MetricsLog::flush() {
  while (!pending_.empty()) {
    const ssize_t written = ::write(descriptor_, pending_.data(), pending_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error_number = written < 0 ? errno : ENOSPC;
      if (!std::exchange(failing_, true)) {
        const Error error = system_error("cannot write", path_, error_number);
        warning_(fmt::format("{}; {}. Training goes on; the lines wait in memory and are written when they can be",
                             error.what(), error.remedy()));
      }
      return;
    }
    pending_.erase(0, static_cast<std::size_t>(written));
  }
  if (std::exchange(failing_, false)) warning_(path_.string() + " is written again: no line is missing");
}

bool MetricsLog::sync() {
  flush();
  return ::fsync(descriptor_) == 0 && pending_.empty();
}

void MetricsLog::put_back() {
  if (fs::exists(path_)) return;
  write_file_atomically(path_, whole_file(descriptor_));
  const int again = open_log(path_);
  ::close(std::exchange(descriptor_, again));
  flush();
}

std::string metrics_line(const StepReport& report, std::optional<double> validation_loss) {
  ordered_json line{{"step", report.step},
                    {"loss", number(report.loss)},
                    {"learning_rate", report.learning_rate},
                    {"gradient_norm", number(report.gradient_norm)},
                    {"seconds", report.seconds},
                    {"tokens", report.tokens},
                    {"saturated", report.saturated},
                    {"underflowed", report.underflowed},
                    {"overflows", report.overflows},
                    {"update_ratio", number(report.update_ratio)},
                    {"unmoved_percent", number(report.unmoved_percent)},
                    {"max_logit", number(report.max_logit)}};
  if (report.loss_scale != 1) line["loss_scale"] = report.loss_scale;
  if (report.skipped) line["skipped"] = true;
  if (validation_loss) line["validation_loss"] = number(*validation_loss);
  if (report.validation_accuracy) line["validation_accuracy"] = *report.validation_accuracy;
  return line.dump();
}

void MetricsLog::step(const StepReport& report, std::optional<double> validation_loss) {
  write(metrics_line(report, validation_loss));
}

void MetricsLog::event(Size step, const std::string& kind, const std::string& text) {
  write(ordered_json{{"step", step}, {"event", kind}, {"text", text}}.dump(-1, ' ', false,
                                                                           ordered_json::error_handler_t::replace));
}

}  // namespace quaver
