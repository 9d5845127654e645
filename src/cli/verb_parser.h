// What the definitions of verbs share: where their options are kept, how they take config files and settings, and how
// the verb that was asked for is remembered. Includes CLI11, so only the files that define verbs include it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/option_checks.h"
#include "cli/settings.h"
#include "cli/verbs.h"

namespace quaver {

inline constexpr std::uint64_t largest_seed = std::numeric_limits<std::int64_t>::max();
inline constexpr Size largest_count = Size{1} << 40U;  // more is a slip, and products of such counts overflow

// Settings as words that CLI11 leaves over.
inline void add_settings(CLI::App& verb) {
  verb.allow_extras();
  const std::string& name =
      verb.get_parent()->get_parent() == nullptr ? verb.get_name() : verb.get_parent()->get_name();
  verb.footer(settings_help(name));
}

// What help ends with: a line to type.
inline void add_example(CLI::App& verb, const std::string& line) {
  const std::string footer = verb.get_footer();
  verb.footer(footer + (footer.empty() ? "" : "\n\n") + "Example:\n  " + line);
}

inline void add_step(CLI::App& verb, std::optional<Size>& step) {
  verb.add_option("--step", step, "checkpoint to use; the newest good one by default")
      ->check(within(Size{0}, largest_count));
}

// Config files and settings of a verb that takes them.
struct ConfigOptions {
  std::vector<std::string> files;

  void add_to(CLI::App& verb) {
    verb.add_option("config", files, "TOML files; later ones win");
    add_settings(verb);
  }
  ConfigArguments arguments(const CLI::App& verb) const { return {files, settings_from(verb.remaining())}; }
};

// --json, for verbs whose output has a form for programs.
struct OutputOption {
  bool json = false;

  void add_to(CLI::App& verb) { verb.add_flag("--json", json, "output for programs"); }
  Output output() const { return json ? Output::json : Output::human; }
};

class VerbParser {
 public:
  explicit VerbParser(CLI::App& app) : app_(app) {}

  CLI::App& add_verb(const std::string& name, const std::string& help) { return *app_.add_subcommand(name, help); }

  // A verb's options live as long as the parser.
  template <typename Options>
  Options& keep() {
    auto options = std::make_shared<Options>();
    kept_.push_back(options);
    return *options;
  }

  // What to do where the verb was typed, unless one below it, whose callback comes first, has said what.
  void on(CLI::App& verb, std::function<int()> action) {
    verb.callback([this, action = std::move(action)] {
      if (!chosen_) chosen_ = action;
    });
  }

  int act() const { return chosen_ ? chosen_() : 0; }

 private:
  CLI::App& app_;
  std::vector<std::shared_ptr<void>> kept_;
  std::function<int()> chosen_;
};

void add_train(VerbParser& parser);
void add_compare(VerbParser& parser);
void add_eval(VerbParser& parser);
void add_sample(VerbParser& parser);
void add_data(VerbParser& parser);
void add_inspect(VerbParser& parser);
void add_bench(VerbParser& parser);
void add_calibrate(VerbParser& parser);
void add_localize(VerbParser& parser);
void add_estimate(VerbParser& parser);
void add_doctor(VerbParser& parser);
void add_dash(VerbParser& parser);
void add_export(VerbParser& parser);
void add_convert(VerbParser& parser);

}  // namespace quaver
