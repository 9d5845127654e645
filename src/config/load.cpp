#include "config/load.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <fmt/format.h>
#include <iterator>

#include "config/check.h"
#include "config/settings.h"
#include "config/value_text.h"
#include "interop/hf_config.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {
namespace {

constexpr std::uint64_t largest_file = std::uint64_t{1} << 20;

void append(std::vector<Setting>& settings, std::vector<Setting> more) {
  settings.insert(settings.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// What the weights of a model folder decide. (A GPT's context is the number of its learned positions.)
constexpr std::array decided_by_weights{"model.family",   "model.layers",    "model.width",      "model.heads",
                                        "model.kv_heads", "model.head_size", "model.ffn",        "model.vocab",
                                        "model.tie_head", "model.qkv_bias",  "model.activation", "model.qk_norm"};

void check_against_folder(const Config& config, const Config& folder) {
  const auto check_key = [&](const char* name) {
    const Key& key = *find_key(name);
    const Value asked = key.get(config), held = key.get(folder);
    if (asked == held) return;
    throw Error(fmt::format("{} = {}, and the model in {} has {}", name, toml_value(asked), config.model.from,
                            toml_value(held)),
                fmt::format("leave {} out: model.from decides it", name));
  };
  for (const char* name : decided_by_weights) check_key(name);
  if (folder.model.family == Family::gpt) check_key("model.context");
}

void refuse_model_folder(const std::vector<Setting>& flags) {
  for (const Setting& flag : flags) {
    if (flag.key->name != "model.from") continue;
    throw Error("model.from is where a new model begins, and a run has weights of its own",
                "leave model.from out, or start a new run");
  }
}

// Another benchmark than the run's own decides anew.
bool name_benchmark(const std::vector<Setting>& flags) {
  return std::ranges::any_of(flags,
                             [](const Setting& flag) { return flag.key->name == "precision.only_where_faster"; });
}

}  // namespace

Config load_config(const ConfigSources& sources) {
  // Flags are read first: what stands behind one that is not known may look like a file's name.
  std::vector<Setting> flags;
  for (const std::string& flag : sources.flags) flags.push_back(read_flag(flag));
  if (sources.model_folder == ModelFolder::recorded) refuse_model_folder(flags);
  std::vector<Setting> settings;
  for (const std::string& path : sources.files) append(settings, read_toml(read_file(path, largest_file), path));
  for (const ConfigText& text : sources.texts) append(settings, read_toml(text.text, text.name));
  if (sources.model_folder == ModelFolder::recorded && name_benchmark(flags)) {
    settings.push_back(read_flag("precision.layer_speeds={}"));
  }
  append(settings, std::move(flags));

  // The preset and the model's folder lie below files and flags, but are themselves named by them, as are recipes.
  Config named;
  for (const Setting& setting : settings) {
    const std::string& name = setting.key->name;
    if (name == "preset" || name == "model.from" || name == "recipes") apply(setting, named);
  }
  for (const Setting& setting : settings) check_recipe_names(setting, named.precision.recipes);
  Config config;
  for (const Setting& setting : read_preset(find_preset(named.preset))) apply(setting, config);
  const bool has_folder = !named.model.from.empty() && sources.model_folder == ModelFolder::read;
  if (has_folder) config.model = read_hf_config(named.model.from);
  const Config below = config;
  for (const Setting& setting : settings) apply(setting, config);
  if (has_folder) {
    check_against_folder(config, below);
    check_context(config.model.from, config.model.context);
  }
  if (config.data.kind == DataKind::examples && config.data.tokenizer.empty() && !config.model.from.empty()) {
    config.data.tokenizer = config.model.from + "/tokenizer.json";
  }
  check(config, Purpose::inspection);
  return config;
}

}  // namespace quaver
