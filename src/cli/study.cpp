#include "cli/study.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "comm/agreement.h"
#include "config/check.h"
#include "config/load.h"
#include "quaver/error.h"
#include "train/rank_agreement.h"

namespace quaver {

namespace {

std::unique_ptr<Subject> open_named(const StudyArguments& arguments, const Launch& launch) {
  const Notice notice = [first = launch.rank == 0](const std::string& text) {
    if (first) fmt::print(stderr, "quaver: {}\n", text);
  };
  if (arguments.run.empty()) {
    if (arguments.step) throw Error("--step names a checkpoint, and there is no run", "add --run DIR");
    const Config config =
        load_config({.files = arguments.config.files, .texts = {}, .flags = arguments.config.settings});
    check(config, Purpose::training);
    return open_subject(config, notice, launch);
  }
  if (!arguments.config.files.empty()) {
    throw Error("--run brings its own config, and " + arguments.config.files.front() + " is another",
                "leave the file out; settings such as --recipe apply on top of the run's config");
  }
  return open_subject(arguments.run, arguments.config.settings, arguments.step, notice, launch);
}

}  // namespace

std::unique_ptr<Subject> open_subject(const StudyArguments& arguments, Communicator& ranks, const Launch& launch) {
  std::unique_ptr<Subject> subject;
  on_all_ranks(ranks, [&] { subject = open_named(arguments, launch); });
  require_same_program(ranks, subject->config);
  require_same(ranks, {"model", subject->source, "name the same run and --step everywhere"});
  subject->ranks = &ranks;
  return subject;
}

bool is_fresh(const StudyArguments& arguments, const Subject& subject) {
  return arguments.run.empty() && subject.config.model.from.empty();
}

Size warmup_steps(const StudyArguments& arguments, const Subject& subject) {
  constexpr Size fresh_model = 20;
  return arguments.warmup_steps.value_or(is_fresh(arguments, subject) ? fresh_model : 0);
}

void introduce(const StudyArguments& arguments, const std::string& text) {
  if (arguments.output == Output::human) fmt::print("{}\n", text);
}

StudyBar::StudyBar(std::string what, Output output, Communicator& ranks)
    : what_(std::move(what)),
      options_(progress_options(stdout, output == Output::json ? OutputStyle::json : OutputStyle::human)),
      ranks_(ranks),
      started_(steady_seconds()) {}

StudyBar::~StudyBar() {
  if (is_drawn_) fmt::print(options_.out, "\n");
  std::fflush(options_.out);
}

void StudyBar::show(Size done, Size total) {
  if (options_.mode == ProgressMode::json || total <= 0 || !ranks_.is_first()) return;
  const double now = steady_seconds();
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

std::string shown(double value, const char* format) {
  return std::isfinite(value) ? fmt::format(fmt::runtime(format), value) : "–";
}

}  // namespace quaver
