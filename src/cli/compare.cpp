#include "cli/compare.h"

#include <algorithm>
#include <fmt/format.h>

#include "cli/interrupt.h"
#include "cli/narrator.h"
#include "cli/verbs.h"
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

RunResult run_one(const Config& config, const CompareArguments& arguments, const Interrupt& interrupt) {
  RunOptions options;
  options.stop = interrupt.flag();
  if (arguments.output == Output::json) return run_training(config, options);
  Narrator narrator(config, arguments.output);
  options.observer = narrator.observer();
  RunResult result = run_training(config, options);
  narrator.conclude(result);
  return result;
}

void print_samples(const std::vector<Contender>& contenders) {
  for (const Contender& contender : contenders) {
    if (contender.runs.empty() || contender.runs.front().sample.empty()) continue;
    fmt::print("\n── {} ──\n{}\n", contender.label, contender.runs.front().sample);
  }
}

}  // namespace

int compare_verb(const CompareArguments& arguments) {
  const fs::path out = arguments.out;
  if (fs::exists(out / "report.html")) {
    throw Error(out.string() + " already holds a comparison", "choose another --out, or remove that folder");
  }
  const std::vector<std::uint64_t> seeds = arguments.seeds.empty() ? std::vector<std::uint64_t>{1} : arguments.seeds;
  std::vector<Contender> contenders;
  for (const std::string& label : arguments.recipes) contenders.push_back({label, config_for(arguments, label), {}});
  const Interrupt interrupt;
  for (Contender& contender : contenders) {
    for (const std::uint64_t seed : seeds) {
      Config config = contender.config;
      config.train.seed = arguments.seeds.empty() ? config.train.seed : seed;
      config.run.dir = (out / folder_name(contender.label, seed, seeds.size())).string();
      contender.runs.push_back(run_one(config, arguments, interrupt));
      if (contender.runs.back().end == RunEnd::interrupted) return 130;
    }
  }
  write_file_atomically(out / "report.html", comparison_report(contenders));
  write_file_atomically(out / "comparison.json", comparison_json(contenders));
  if (arguments.output == Output::json) {
    fmt::print("{}\n", comparison_json(contenders));
    return 0;
  }
  print_samples(contenders);
  fmt::print("\n{}\nreport: {}\n", comparison_table(contenders), (out / "report.html").string());
  return 0;
}

}  // namespace quaver
