#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

#include "cli/progress.h"
#include "cli/scale_table.h"
#include "cli/verbs.h"
#include "cli/verify.h"
#include "config/dump.h"
#include "config/load.h"
#include "config/presets.h"
#include "config/recipe_table.h"
#include "config/reference.h"
#include "data/dataset.h"
#include "data/shard.h"
#include "io/file_io.h"
#include "models/factory.h"
#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/engine_choice.h"
#include "train/faster_layers.h"
#include "train/resolved_config.h"
#include "train/run.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

void print_recipes() {
  fmt::print("# The recipes that are built in. To change one, put it into a config file under another name.\n");
  for (const RecipeInfo& info : recipes()) fmt::print("\n{}", recipe_toml(make_recipe(info.name, {})));
}

void print_presets() {
  for (const Preset& preset : presets()) fmt::print("{:<14} {}\n", preset.name, preset.description);
}

void print_plan(const ConfigArguments& arguments) {
  Config config = load_config({.files = arguments.files, .texts = {}, .flags = arguments.settings});
  constexpr Size bytes = 320;  // rounded up: the shares depend on it a little
  const DataShape data = stand_in_data(config, bytes).shape();
  config = resolve_shape(std::move(config), data);
  const std::vector<LayerShape> layers = make_model(config.model)->layers();
  if (!config.precision.only_where_faster.empty()) {
    const auto engine = make_engine(config, [](const std::string&) {});
    config = resolve_layer_speeds(std::move(config), layers, engine.get());
  }
  const Plan plan = make_plan(config.precision, layers);
  std::size_t width = 0;
  for (const PlanRow& row : plan.rows) {
    width = std::max({width, describe(row.spec.rows).size(), describe(row.spec.columns).size()});
  }
  fmt::print("{:<22} {:<12} {:<{}} {:<{}} {}\n", "site", "recipe", "rowwise", width, "columnwise", width, "why");
  for (const PlanRow& row : plan.rows) {
    fmt::print("{:<22} {:<12} {:<{}} {:<{}} {}\n", row.site, row.recipe, describe(row.spec.rows), width,
               describe(row.spec.columns), width, row.reason);
  }
  fmt::print("\nshare of the matrix products' operations:");
  for (const auto& [format, share] : flops_by_format(plan, layers)) fmt::print(" {} {:.1f} %", format, 100 * share);
  fmt::print("\n");
}

void print_scales(const std::string& path) {
  const auto run = open_run(path, {}, std::nullopt, [](const std::string&) {});
  Trainer& trainer = *run->trainer;
  fmt::print("{}: step {}, {} parameters, {}\n\n", path, trainer.steps_done(),
             format_count(static_cast<double>(trainer.model().parameters().count())),
             trainer.config().precision.recipe);
  fmt::print("{:<22} {:<10} {:>12} {:>12} {:>12} {:>12} {:>9} {}\n", "site", "format", "scale", "last amax",
             "saturated", "underflowed", "nonfinite", "changes");
  for (const auto& entry : trainer.book().entries()) {
    fmt::print("{:<22} {:<10} {:>12.5g} {:>12.5g} {:>12} {:>12} {:>9} {}\n", entry->site.name,
               info(entry->site.spec.rows.format).name, entry->site.scale,
               entry->history.empty() ? 0.0F : entry->history.back(), entry->saturated, entry->underflowed,
               entry->nonfinite, entry->changes.size());
  }
  fmt::print("\n");
  for (const SettingChange& change : run->provenance.changes) {
    fmt::print("step {}: {}: {} → {}\n", change.step, change.key, change.before, change.after);
  }
  for (const auto& entry : trainer.book().entries()) {
    for (const ScaleChange& change : entry->changes) {
      if (change.cause == ChangeCause::history) continue;
      fmt::print("step {}: {}: {}: scale {:.5g} → {:.5g}, {} → {}\n", change.step, entry->site.name, change.reason,
                 change.scale_before, change.scale_after, describe(change.spec_before.rows),
                 describe(change.spec_after.rows));
    }
  }
}

void compare_runs(const std::string& first, const std::string& second) {
  const std::string config = config_difference(load_run_config(first, {}), load_run_config(second, {}));
  fmt::print("config:\n{}\n", config.empty() ? "no difference" : config);
  const auto scales = compare_books(read_file(fs::path(first) / "scales.json", largest_scale_file),
                                    read_file(fs::path(second) / "scales.json", largest_scale_file));
  fmt::print("scales:\n{}", scales.empty() ? "no difference\n" : scale_table(scales));
}

void print_dataset(const fs::path& path) {
  const Dataset dataset = open_dataset(path);
  fmt::print("{}: {} training tokens in {} shards, {} validation tokens, vocabulary {} ({})\n", path.string(),
             dataset.train_tokens, dataset.train.size(), dataset.valid_tokens, dataset.vocab_size,
             dataset.tokenizer->name());
  verify_shards(path, Output::human);
}

void print_safetensors(const fs::path& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  for (const TensorEntry& tensor : file.tensors()) {
    fmt::print("{:<40} {:<8} [{}]\n", tensor.name, tensor.dtype, fmt::join(tensor.shape, ", "));
  }
  for (const auto& [key, value] : file.metadata()) fmt::print("{} = {}\n", key, value);
}

void print_shard(const fs::path& path) {
  const Shard shard = Shard::open(path);
  fmt::print("{}: {} tokens, {} format\n", path.string(), shard.tokens(), name_of(shard.info().format));
  verify_shards(path, Output::human);
}

void inspect_path(const std::string& path) {
  if (fs::exists(fs::path(path) / "config.toml")) return print_scales(path);
  if (fs::exists(fs::path(path) / dataset_file_name)) return print_dataset(path);
  if (!fs::is_regular_file(path)) {
    throw Error(path + " is neither a run, a data set, a shard nor a safetensors file", "check the path");
  }
  if (fs::path(path).extension() == ".safetensors") return print_safetensors(path);
  print_shard(path);
}

}  // namespace

int inspect_verb(const InspectArguments& arguments) {
  switch (arguments.what) {
    case InspectWhat::config_reference:
      fmt::print("{}", config_reference());
      return 0;
    case InspectWhat::recipes:
      print_recipes();
      return 0;
    case InspectWhat::presets:
      print_presets();
      return 0;
    case InspectWhat::plan:
      print_plan(arguments.config);
      return 0;
    case InspectWhat::run:
      break;
  }
  if (arguments.other.empty()) {
    inspect_path(arguments.path);
  } else {
    compare_runs(arguments.path, arguments.other);
  }
  return 0;
}

}  // namespace quaver
