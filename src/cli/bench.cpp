// `bench`: a machine and a model in every precision, and `bench diff`, which compares two such benchmarks.
#include "cli/bench.h"

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

#include "cli/verbs.h"
#include "config/load.h"
#include "engine/cuda_module.h"
#include "io/file_io.h"
#include "precision/recipe.h"
#include "quaver/error.h"

namespace quaver {

namespace {

Config loaded_config(const ConfigArguments& arguments, std::vector<std::string> defaults) {
  if (!arguments.files.empty()) defaults.clear();
  defaults.insert(defaults.end(), arguments.settings.begin(), arguments.settings.end());
  return load_config({.files = arguments.files, .texts = {}, .flags = defaults});
}

// What is not set: GPT 350M where there is a GPU, else a model and batches that two cores train.
std::vector<std::string> bench_defaults(const Config& asked, HardwareKind hardware) {
  const bool gpu = hardware == HardwareKind::gpu;
  if (has_images(asked.data.kind)) return gpu ? std::vector<std::string>{} : std::vector<std::string>{"train.batch=32"};
  return gpu ? std::vector<std::string>{"preset=gpt-350m", "train.batch=64"}
             : std::vector<std::string>{"preset=small", "train.batch=4"};
}

BenchPlan bench_plan(const BenchSuiteArguments& arguments) {
  const Config asked = loaded_config(arguments.config, {"preset=small"});
  const bool gpu = asked.train.device != DeviceChoice::cpu && inspect_cuda().state == CudaState::ready;
  const HardwareKind hardware = gpu ? HardwareKind::gpu : HardwareKind::cpu;
  const Config config = loaded_config(arguments.config, bench_defaults(asked, hardware));
  BenchPlan plan = default_bench_plan(config, hardware);
  std::vector<std::string> recipes;  // once each
  for (const std::string& recipe : arguments.recipes) {
    make_recipe(recipe, config.precision);  // or an Error with the known ones
    if (std::ranges::find(recipes, recipe) == recipes.end()) recipes.push_back(recipe);
  }
  if (!arguments.recipes.empty()) plan.recipes = plan.step_recipes = recipes;
  if (arguments.seconds > 0) plan.seconds = arguments.seconds;
  return plan;
}

void show_bench_progress(double done, const std::string& what) {
  if (::isatty(STDERR_FILENO) == 0) return;
  constexpr int width = 24;
  const int filled = static_cast<int>(done * width);
  fmt::print(stderr, "\r\033[K[{:#<{}}{:.<{}}] {:3.0f} %  {}", "", filled, "", width - filled, 100 * done, what);
}

void end_progress() {
  if (::isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");
}

void write_unless_empty(const std::string& path, const std::string& text) {
  if (!path.empty()) write_file_atomically(path, text);
}

}  // namespace

int bench_suite_verb(const BenchSuiteArguments& arguments) {
  const Bench bench = run_bench(bench_plan(arguments), show_bench_progress);
  end_progress();
  fmt::print("{}", bench_tables(bench));
  write_unless_empty(arguments.json, to_json(bench) + "\n");
  write_unless_empty(arguments.csv, to_csv(bench));
  write_unless_empty(arguments.html, bench_page(bench));
  if (!arguments.html.empty()) fmt::print("\nreport: {}\n", arguments.html);
  return 0;
}

int bench_diff_verb(const BenchDiffArguments& arguments) {
  const Bench before = read_benchmark(arguments.before);
  const Bench after = read_benchmark(arguments.after);
  if (before.machine.engine != after.machine.engine) {
    fmt::print("engines: {} and {}\n", before.machine.engine, after.machine.engine);
  }
  if (before.model != after.model) fmt::print("models: {} and {}\n", before.model, after.model);
  const BenchDifference difference = compare_benches(before, after);
  fmt::print("{}", bench_difference_text(difference));
  return difference.is_same() ? 0 : 1;
}

}  // namespace quaver
