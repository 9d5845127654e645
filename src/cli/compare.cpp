#include "cli/compare.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <set>

#include "cli/interrupt.h"
#include "cli/narrator.h"
#include "cli/ranks.h"
#include "cli/verbs.h"
#include "comm/agreement.h"
#include "config/load.h"
#include "io/file_io.h"
#include "precision/recipe.h"
#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

Config config_for(const CompareArguments& arguments, const std::string& label) {
  std::vector<std::string> settings = arguments.config.settings;
  const auto at = label.find('@');
  settings.push_back("precision.recipe=" + label.substr(0, at));
  if (at != std::string::npos) settings.push_back("model.parametrization=" + label.substr(at + 1));
  return load_config({.files = arguments.config.files, .texts = {}, .flags = settings});
}

std::string folder_name(std::string label, std::uint64_t seed, std::size_t seeds) {
  std::replace(label.begin(), label.end(), '@', '-');
  return seeds > 1 ? fmt::format("{}-seed{}", label, seed) : label;
}

// What ends a run on all ranks: the next one can begin.
bool ends_on_all(const Error& error, const Communicator& ranks) {
  return ranks.is_alone() || dynamic_cast<const AgreedError*>(&error) != nullptr;
}

// A run that ends in an error after it began to train is a result of the comparison; before, it is a mistake in the
// settings that every other run shares.
SeedRun run_one(const Config& config, const CompareArguments& arguments, RunOptions options) {
  SeedRun run;
  run.seed = config.train.seed;
  Communicator& ranks = *options.ranks;
  std::optional<Narrator> narrator;
  if (arguments.output != Output::json && ranks.is_first()) {
    options.observer = narrator.emplace(config, arguments.output).observer();
  }
  bool has_trained = false;
  options.observer.stepped = [&, tell = options.observer.stepped](const StepReport& report,
                                                                  std::optional<double> validation_loss) {
    has_trained = true;
    if (tell) tell(report, validation_loss);
  };
  try {
    run.result = run_training(config, options);
    if (narrator) narrator->conclude(run.result);
  } catch (const Error& error) {
    if (!ends_on_all(error, ranks) || !any_of_ranks(ranks, has_trained)) throw;  // the first rank hears of steps
    run.status = dynamic_cast<const RunDiverged*>(&error) != nullptr ? SeedStatus::diverged : SeedStatus::failed;
    run.failure = error.what();
    narrator.reset();
    if (ranks.is_first()) fmt::print(stderr, "quaver: {}: {}\n", config.run.dir, error.what());
  }
  return run;
}

void print_samples(const Comparison& comparison) {
  for (const RecipeMetrics& recipe : comparison.recipes) {
    if (recipe.example == nullptr || recipe.example->sample.empty()) continue;
    fmt::print("\n── {} ──\n{}\n", recipe.label, recipe.example->sample);
  }
}

std::vector<std::uint64_t> seeds_of(const CompareArguments& arguments) {
  return arguments.seeds.empty() ? std::vector<std::uint64_t>{1} : arguments.seeds;
}

// Before anything is trained.
void check_folders(const CompareArguments& arguments) {
  const std::vector<std::uint64_t> seeds = seeds_of(arguments);
  std::set<std::string> folders;
  for (const std::string& label : arguments.recipes) {
    for (const std::uint64_t seed : seeds) {
      if (folders.insert(folder_name(label, seed, seeds.size())).second) continue;
      throw Error(fmt::format("--recipes and --seeds name {} with seed {} twice", label, seed),
                  "name each recipe and each seed once");
    }
  }
}

std::vector<Contender> contenders_of(const CompareArguments& arguments) {
  const fs::path out = arguments.out;
  if (fs::exists(out / "report.html")) {
    throw Error(out.string() + " already holds a comparison", "choose another --out, or remove that folder");
  }
  check_folders(arguments);
  std::vector<Contender> contenders;
  for (const std::string& label : arguments.recipes) contenders.push_back({label, config_for(arguments, label), {}});
  compare(contenders, arguments.base);  // refuses an unknown base before anything is trained
  return contenders;
}

// Every run on all ranks, one after the other; the first rank tells and writes.
int compare_as(Communicator& ranks, const Launch& launch, const CompareArguments& arguments) {
  const fs::path out = arguments.out;
  std::vector<Contender> contenders;
  on_all_ranks(ranks, [&] { contenders = contenders_of(arguments); });
  const std::vector<std::uint64_t> seeds = seeds_of(arguments);
  const Interrupt interrupt;
  RunOptions options;
  options.stop = interrupt.flag();
  options.ranks = &ranks;
  options.launch = launch;
  for (Contender& contender : contenders) {
    for (const std::uint64_t seed : seeds) {
      Config config = contender.config;
      config.train.seed = arguments.seeds.empty() ? config.train.seed : seed;
      config.run.dir = (out / folder_name(contender.label, seed, seeds.size())).string();
      contender.runs.push_back(run_one(config, arguments, options));
      if (contender.runs.back().result.end == RunEnd::interrupted) return 130;
    }
  }
  if (!ranks.is_first()) return 0;
  const Comparison comparison = compare(contenders, arguments.base);
  write_file_atomically(out / "report.html", comparison_report(contenders, comparison));
  write_file_atomically(out / "comparison.json", comparison_json(comparison));
  const auto has_failed = [](const RecipeMetrics& recipe) { return recipe.completed < recipe.seeds.size(); };
  const int status = std::ranges::any_of(comparison.recipes, has_failed) ? 1 : 0;
  if (arguments.output == Output::json) {
    fmt::print("{}\n", comparison_json(comparison));
    return status;
  }
  print_samples(comparison);
  fmt::print("\n{}\nreport: {}\n", comparison_table(comparison), (out / "report.html").string());
  return status;
}

}  // namespace

int compare_verb(const CompareArguments& arguments) {
  return on_ranks([&](Communicator& ranks, const Launch& launch) { return compare_as(ranks, launch, arguments); });
}

}  // namespace quaver
