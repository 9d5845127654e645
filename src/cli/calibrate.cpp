#include "cli/calibrate.h"

#include <filesystem>
#include <fmt/format.h>

#include "cli/ranks.h"
#include "cli/study.h"
#include "cli/verbs.h"
#include "comm/agreement.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

fs::path report_beside(const fs::path& out) { return fs::path(out).replace_extension(".html"); }

void refuse_existing(const fs::path& out) {
  if (out.extension() == ".html") {
    throw Error("--out is the scale file, and " + out.string() + " is where its report would go",
                "name it .json, for example --out scales.json");
  }
  for (const fs::path& path : {out, report_beside(out)}) {
    if (fs::exists(path)) throw Error(path.string() + " is there already", "choose another --out, or remove it");
  }
}

std::string introduction(const Subject& subject, const CalibrateArguments& arguments, Size warmup) {
  std::string text =
      fmt::format("{}: {} batches in bf16, forward and backward", subject.source, arguments.study.batches);
  if (warmup > 0) text += fmt::format(", spread over {} steps of training", warmup);
  if (is_fresh(arguments.study, subject) && warmup == 0) {
    text += "\nA fresh model's gradients are unlike those after some steps: --warmup-steps 20 would see both";
  }
  return text;
}

void show(const Calibration& calibration, const std::optional<Drift>& drift, const CalibrateArguments& arguments) {
  fmt::print("\n{}", calibration_table(calibration));
  if (drift) fmt::print("\nsince {}\n{}", arguments.against, drift_table(*drift));
  fmt::print("\nscales: {}\nreport: {}\nuse:    quaver train … --recipe {} --precision.scales={}\n", arguments.out,
             report_beside(arguments.out).string(), calibration.recipe, arguments.out);
}

int calibrate_as(Communicator& ranks, const Launch& launch, const CalibrateArguments& arguments) {
  std::string before;
  on_all_ranks(ranks, [&] {
    refuse_existing(arguments.out);
    if (!arguments.against.empty()) before = read_file(arguments.against, largest_scale_file);
    if (!before.empty()) drift_since(before, arguments.against, {});  // refuses what is no scale file at once
  });
  const auto subject = open_subject(arguments.study, ranks, launch);
  on_all_ranks(ranks, [&] { make_folder(fs::path(arguments.out).parent_path()); });
  const Size warmup = warmup_steps(arguments.study, *subject);
  if (ranks.is_first()) introduce(arguments.study, introduction(*subject, arguments, warmup));
  const Interrupt interrupt;
  Calibration calibration;
  try {
    StudyBar bar("calibrating", arguments.study.output, ranks);
    calibration = calibrate(*subject, {.batches = arguments.study.batches,
                                       .warmup_steps = warmup,
                                       .percentile = arguments.percentile,
                                       .margin = arguments.margin,
                                       .progress = bar.progress(interrupt)});
  } catch (const StudyInterrupted&) {
    return 130;
  }
  if (!ranks.is_first()) return 0;
  std::optional<Drift> drift;
  if (!arguments.against.empty()) drift = drift_since(before, arguments.against, calibration);
  write_file_atomically(arguments.out, to_scale_file(calibration));
  write_file_atomically(report_beside(arguments.out), calibration_report(calibration, drift, arguments.against));
  if (arguments.study.output == Output::human) {
    show(calibration, drift, arguments);
  } else {
    fmt::print("{}\n", calibration_json(calibration, drift));
  }
  return 0;
}

}  // namespace

int calibrate_verb(const CalibrateArguments& arguments) {
  return on_ranks([&](Communicator& ranks, const Launch& launch) { return calibrate_as(ranks, launch, arguments); });
}

}  // namespace quaver
