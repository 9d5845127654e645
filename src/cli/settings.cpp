#include "cli/settings.h"

#include <fmt/format.h>
#include <string_view>
#include <utility>

#include "quaver/error.h"

namespace quaver {
namespace {

// Options that stand for one setting each.
struct Shortcut {
  const char* option;
  const char* key;
  const char* help;
};
constexpr Shortcut shortcuts[] = {
    {"--preset", "preset", "starting point: tiny, small, gpt-124m … (see inspect presets)"},
    {"--recipe", "precision.recipe", "number formats and scales (see inspect recipes)"},
    {"--data", "data.path", "a folder that `quaver data` wrote, a shard, or a file of examples"},
    {"--steps", "train.steps", "optimizer steps"},
    {"--batch", "train.batch", "sequences per micro-batch"},
    {"--seed", "train.seed", "of weights, data order and stochastic rounding"},
    {"--device", "train.device", "auto, cpu or cuda"},
    {"--name", "run.name", "of the run: its folder is runs/NAME"},
    {"--dir", "run.dir", "folder of the run"}};

bool takes_config(const std::vector<std::string>& words) {
  if (words.empty()) return false;
  return words[0] == "train" || words[0] == "compare" ||
         (words.size() > 1 && words[0] == "inspect" && words[1] == "plan") || words[0] == "bench" ||
         words[0] == "estimate" || words[0] == "calibrate" || words[0] == "localize" || words[0] == "eval" ||
         words[0] == "sample";
}

// `sample --seed` is another seed. A benchmark has steps of its own, and neither data nor a run. A trained model is
// looked at in another precision, on other data or elsewhere, and stays the model it is.
bool is_known(const Shortcut& shortcut, const std::string& verb) {
  const std::string_view option = shortcut.option;
  const bool looks = option == "--recipe" || option == "--batch" || option == "--device";
  if (verb == "sample") return looks;
  if (verb == "eval") return looks || option == "--data";
  return verb != "bench" || (option != "--steps" && option != "--data" && option != "--name" && option != "--dir");
}

// The setting a word stands for, "--section.key" with or without "=value"; empty if it is none.
std::string setting_of(const std::string& word, const std::string& verb) {
  for (const Shortcut& shortcut : shortcuts) {
    if (!is_known(shortcut, verb)) continue;
    const std::string option = shortcut.option;
    if (word == option || word.starts_with(option + "=")) return "--" + (shortcut.key + word.substr(option.size()));
  }
  const bool is_key = word.starts_with("--") && word.substr(0, word.find('=')).find('.') != std::string::npos;
  return is_key ? word : "";
}

}  // namespace

std::vector<std::string> join_settings(const std::vector<std::string>& words) {
  if (!takes_config(words)) return words;
  std::vector<std::string> joined;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string setting = setting_of(words[i], words[0]);
    if (setting.empty()) {
      joined.push_back(words[i]);
      continue;
    }
    const bool has_value = setting.find('=') != std::string::npos;
    if (!has_value && i + 1 < words.size() && !words[i + 1].starts_with("--")) setting += "=" + words[++i];
    joined.push_back(std::move(setting));
  }
  return joined;
}

std::vector<std::string> settings_from(const std::vector<std::string>& extras) {
  for (const std::string& word : extras) {
    if (word.starts_with("--")) continue;
    throw Error("'" + word + "' is not something this verb takes", "settings are written --section.key=value");
  }
  return extras;
}

std::string settings_help(const std::string& verb) {
  std::string help = "Settings, of which later ones win:\n";
  for (const Shortcut& shortcut : shortcuts) {
    if (!is_known(shortcut, verb)) continue;
    help += fmt::format("  {:<26}{}\n", std::string(shortcut.option) + " VALUE", shortcut.help);
  }
  return help + "  --section.key=value       any key of docs/config.md";
}

}  // namespace quaver
