#include "cli/localize.h"

#include <cmath>
#include <filesystem>
#include <fmt/format.h>

#include "cli/ranks.h"
#include "cli/study.h"
#include "cli/verbs.h"
#include "comm/agreement.h"
#include "io/file_io.h"
#include "quaver/error.h"
#include "store/recorder.h"
#include "train/run_record.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

std::string introduction(const Subject& subject, const LocalizeArguments& arguments, Size warmup) {
  std::string text = fmt::format("{}: {} by {}, on {} batches", subject.source, subject.config.precision.recipe,
                                 name_of(arguments.grouping), arguments.study.batches);
  if (warmup > 0) text += fmt::format(", after {} steps of training", warmup);
  return text;
}

void remove_empty(const fs::path& folder) {
  std::error_code ignored;  // it is not empty
  fs::remove(folder, ignored);
}

// The dashboard shows the map beside the run it was made of. The files are written by then: a store that cannot take it
// costs no more than that.
void record(const Subject& subject, const fs::path& run, const std::string& map) {
  const fs::path store = store_of(subject.config, run);
  if (store.empty() || !fs::exists(store)) return;
  try {
    store_document(store, run_id(run), "localization", map);
  } catch (const Error& error) {
    fmt::print(stderr, "quaver: the dashboard will not show this map: {}; {}\n", error.what(), error.remedy());
  }
}

// What the folder gets, and what is said at the end.
void write_down(const Localization& localization, const Subject& subject, const LocalizeArguments& arguments,
                const fs::path& out) {
  const std::string plan = to_plan_file(localization, subject.config.precision, out / "localization.json");
  write_file_atomically(out / "precision.toml", plan);
  write_file_atomically(out / "report.html", localization_report(localization, plan));
  const std::string map = to_json(localization);
  write_file_atomically(out / "localization.json", map);  // last: it says that all is there
  if (!arguments.study.run.empty()) record(subject, arguments.study.run, map);
  if (arguments.study.output == Output::json) {
    fmt::print("{}\n", map);
    return;
  }
  fmt::print("\n{}\nplan:   {}\nreport: {}\nuse:    quaver train … {}\n", localization_table(localization),
             (out / "precision.toml").string(), (out / "report.html").string(),
             (fs::path(arguments.out) / "precision.toml").string());
}

int localize_as(Communicator& ranks, const Launch& launch, const LocalizeArguments& arguments) {
  const fs::path out = fs::absolute(arguments.out).lexically_normal();
  double budget = 0;
  on_all_ranks(ranks, [&] {
    if (fs::exists(out / "localization.json")) {
      throw Error(out.string() + " already holds a localization", "choose another --out, or remove that folder");
    }
    budget = parse_budget(arguments.budget);
  });
  const auto subject = open_subject(arguments.study, ranks, launch);
  on_all_ranks(ranks, [&] { make_folder(out); });
  const Size warmup = warmup_steps(arguments.study, *subject);
  if (ranks.is_first()) introduce(arguments.study, introduction(*subject, arguments, warmup));
  const Interrupt interrupt;
  Localization localization;
  try {
    StudyBar bar("localizing", arguments.study.output, ranks);
    localization = localize(*subject, {.batches = arguments.study.batches,
                                       .warmup_steps = warmup,
                                       .budget = budget,
                                       .grouping = arguments.grouping,
                                       .progress = bar.progress(interrupt)});
  } catch (const StudyInterrupted&) {
    remove_empty(out);
    return 130;
  } catch (const Error&) {
    remove_empty(out);
    throw;
  }
  if (ranks.is_first()) write_down(localization, *subject, arguments, out);
  return 0;
}

}  // namespace

double parse_budget(const std::string& text) {
  std::size_t used = 0;
  double percent = -1;
  try {
    percent = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string rest = text.substr(used);
  if (used == 0 || (!rest.empty() && rest != "%" && rest != " %") || !(percent >= 0) || percent > 100) {
    throw Error("--budget " + text + " is not a percentage", "write it like --budget 0.25%");
  }
  return percent / 100;
}

int localize_verb(const LocalizeArguments& arguments) {
  return on_ranks([&](Communicator& ranks, const Launch& launch) { return localize_as(ranks, launch, arguments); });
}

}  // namespace quaver
