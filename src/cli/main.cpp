// The command line: what can be asked, in one place. The verbs themselves are beside this file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>
#include <limits>
#include <map>

#include "cli/option_checks.h"
#include "cli/settings.h"
#include "cli/startup.h"
#include "cli/verbs.h"
#include "config/suggest.h"
#include "quaver/error.h"

namespace quaver {
namespace {

constexpr std::uint64_t largest_seed = std::numeric_limits<std::int64_t>::max();
constexpr Size most = Size{1} << 40U;  // of anything that is counted: more is a slip, and its products overflow

void add_settings(CLI::App& verb) {
  verb.allow_extras();
  const std::string& name =
      verb.get_parent()->get_parent() == nullptr ? verb.get_name() : verb.get_parent()->get_name();
  verb.footer(settings_help(name));
}

// What help ends with: a line to type.
void add_example(CLI::App& verb, const std::string& line) {
  const std::string footer = verb.get_footer();
  verb.footer(footer + (footer.empty() ? "" : "\n\n") + "Example:\n  " + line);
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

std::map<std::string, Grouping> groupings() {
  std::map<std::string, Grouping> all;
  for (const Grouping grouping : {Grouping::site, Grouping::layer, Grouping::block}) {
    all.emplace(name_of(grouping), grouping);
  }
  return all;
}

class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", std::string("quaver " QUAVER_VERSION));
    app_.footer(
        "Start with:  quaver data my-text/ --out data/mine && quaver train --data data/mine --recipe fp8-delayed");
    add_train();
    add_compare();
    add_eval();
    add_sample();
    add_data();
    add_inspect();
    add_bench();
    add_calibrate();
    add_localize();
    add_estimate();
    add_doctor();
    add_dash();
    add_export();
  }

  int run(int count, char** words) {
    std::vector<std::string> arguments = join_settings({words + 1, words + count});
    refuse_unknown_verb(arguments);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
      app_.parse(arguments);
    } catch (const CLI::Success& help) {
      return app_.exit(help);
    } catch (const CLI::ParseError& error) {
      const auto all = verbs();
      const bool has_verb = count > 1 && std::find(all.begin(), all.end(), words[1]) != all.end();
      throw Error(error.what(), has_verb ? fmt::format("`quaver {} --help` lists what it takes", words[1])
                                         : fmt::format("verbs are {}", fmt::join(all, ", ")));
    }
    return action_();
  }

 private:
  std::vector<std::string> verbs() const {
    std::vector<std::string> names;
    for (const CLI::App* verb : app_.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(verb->get_name());
    }
    return names;
  }

  void refuse_unknown_verb(const std::vector<std::string>& words) const {
    if (words.empty() || words[0].starts_with("-")) return;
    const auto all = verbs();
    if (std::find(all.begin(), all.end(), words[0]) != all.end()) return;
    const std::string guess = did_you_mean(words[0], all);
    throw Error(fmt::format("there is no verb '{}'", words[0]),
                guess.empty() ? fmt::format("verbs are {}", fmt::join(all, ", ")) : guess);
  }

  void add_json(CLI::App& verb) { verb.add_flag("--json", json_, "output for programs"); }
  Output output() const { return json_ ? Output::json : Output::human; }

  void add_train() {
    CLI::App& verb = *app_.add_subcommand("train", "train a model");
    train_config_.add_to(verb);
    verb.add_option("--resume", train_.resume, "continue the run in this folder");
    verb.add_option("--take-back", train_.take_back,
                    "with --resume: undo the latest change of the sites that match, such as 'blocks.3.*/dy'");
    verb.add_flag("--allow-other-data", allow_other_data_,
                  "with --resume: go on although the data is not what the run was trained on; recorded as a change");
    add_json(verb);
    add_example(verb, "quaver train --preset small --data data/mine --recipe fp8-delayed --name first");
    verb.callback([this, &verb] {
      action_ = [this, &verb] {
        train_.config = train_config_.arguments(verb);
        train_.other_data = allow_other_data_ ? OtherData::accept : OtherData::refuse;
        train_.output = output();
        return train_verb(train_);
      };
    });
  }

  void add_compare() {
    CLI::App& verb = *app_.add_subcommand("compare", "train the same model under several recipes and report");
    compare_config_.add_to(verb);
    compare_.recipes = {"fp32", "bf16", "fp8-delayed"};
    verb.add_option("--recipes", compare_.recipes, "comma-separated; NAME@umup sets the parametrisation too")
        ->delimiter(',')
        ->capture_default_str();
    verb.add_option("--seeds", compare_.seeds, "comma-separated: each recipe is trained once per seed")
        ->delimiter(',')
        ->check(within<std::uint64_t>(0, largest_seed));
    verb.add_option("--base", compare_.base, "the one of --recipes that gaps are to (by default the widest)");
    verb.add_option("--out", compare_.out, "folder for the runs, report.html and comparison.json")->required();
    add_json(verb);
    add_example(verb,
                "quaver compare --preset tiny --data data/mine --recipes bf16,fp8-delayed,mxfp4 --out runs/recipes");
    verb.callback([this, &verb] {
      action_ = [this, &verb] {
        compare_.config = compare_config_.arguments(verb);
        compare_.output = output();
        return compare_verb(compare_);
      };
    });
  }

  void add_eval() {
    CLI::App& verb = *app_.add_subcommand("eval",
                                          "loss of a trained model on its validation data or on other text, in its own "
                                          "precision or another");
    verb.add_option("run", eval_.run, "folder of the run")->required();
    verb.add_option("--text", eval_.text, "a file or folder of text to evaluate on, not the validation data");
    verb.add_option("--step", eval_.step, "checkpoint to use; the newest good one by default")
        ->check(within(Size{0}, most));
    verb.add_option("--batches", eval_.batches, "at most; all by default, train.eval_batches of generated text")
        ->check(within(Size{1}, most));
    add_json(verb);
    add_settings(verb);
    add_example(verb, "quaver eval runs/first --recipe bf16");
    verb.callback([this, &verb] {
      action_ = [this, &verb] {
        eval_.settings = settings_from(verb.remaining());
        eval_.output = output();
        return eval_verb(eval_);
      };
    });
  }

  void add_sample() {
    CLI::App& verb = *app_.add_subcommand("sample", "text from a trained model");
    verb.add_option("run", sample_.run, "folder of the run")->required();
    verb.add_option("--step", sample_.step, "checkpoint to use; the newest good one by default")
        ->check(within(Size{0}, most));
    verb.add_option("--prompt", sample_.prompt, "text to continue");
    verb.add_option("--tokens", sample_.tokens, "at most this many")
        ->capture_default_str()
        ->check(within(Size{1}, most));
    verb.add_option("--temperature", sample_.temperature, "0: always the likeliest")
        ->capture_default_str()
        ->check(within(0.0, 1000.0));
    verb.add_option("--top-k", sample_.top_k, "only among the k likeliest; 0: all")
        ->capture_default_str()
        ->check(within(0, std::numeric_limits<int>::max()));
    verb.add_option("--seed", sample_.seed, "of the draw")
        ->capture_default_str()
        ->check(within<std::uint64_t>(0, largest_seed));
    verb.add_option("--count", sample_.count, "how many samples")
        ->capture_default_str()
        ->check(within(Size{1}, Size{1000000}));
    verb.allow_extras();
    add_example(verb, R"(quaver sample runs/first --prompt "Once upon a time" --tokens 100)");
    verb.callback([this, &verb] {
      action_ = [this, &verb] {
        sample_.settings = settings_from(verb.remaining());
        return sample_verb(sample_);
      };
    });
  }

  void add_data() {
    CLI::App& verb = *app_.add_subcommand("data", "turn text into shards to train on");
    PrepareOptions& options = data_.options;
    CLI::Option* const inputs = verb.add_option("inputs", options.inputs, "text files, folders, .jsonl files");
    CLI::Option* const out = verb.add_option("--out", options.output, "folder to write")->needs(inputs);
    inputs->needs(out);
    verb.add_option("--tokenizer", options.tokenizer, "bytes, bpe:SIZE to train one, or a tokenizer.json")
        ->capture_default_str();
    verb.add_option("--include", options.include, "globs of files to take from folders")->delimiter(',');
    verb.add_option("--exclude", options.exclude, "globs of files to leave out")->delimiter(',');
    verb.add_option("--text-field", options.reading.text_field, "of JSONL documents")->capture_default_str();
    verb.add_option("--valid", options.valid_fraction,
                    "share for validation, below 1: of the documents; of the text, whole files and one's end, where "
                    "they are few")
        ->capture_default_str()
        ->check(within(0.0, 1.0));
    verb.add_option("--shard-tokens", options.shard_tokens, "tokens per shard")
        ->capture_default_str()
        ->check(within(Size{2}, most));
    verb.add_flag("--llmc", llmc_, "write llm.c's shard format");
    verb.add_flag("--keep-duplicates", keep_duplicates_, "keep documents that occur twice");
    verb.add_flag("--skip-bad-lines", skip_bad_lines_,
                  "pass over lines of JSONL files that are broken, and count them");
    verb.add_flag("--keep-invalid", keep_invalid_, "keep documents that are not UTF-8");
    verb.add_flag("--overwrite", overwrite_, "replace a data set that is already there, once the new one is complete");
    verb.add_option("--verify", data_.verify,
                    "read a data set or shard to the end and check it, in place of writing one")
        ->excludes(inputs, out);
    add_json(verb);
    add_example(verb, "quaver data my-text/ --out data/mine --tokenizer bpe:8192");
    verb.callback([this] {
      action_ = [this] {
        PrepareOptions& chosen = data_.options;
        if (chosen.inputs.empty() && data_.verify.empty()) {
          throw Error("no text to prepare", "quaver data TEXT --out FOLDER, or quaver data --verify FOLDER");
        }
        if (llmc_) chosen.format = ShardFormat::llmc;
        if (keep_duplicates_) chosen.duplicates = Duplicates::keep;
        if (skip_bad_lines_) chosen.reading.malformed = MalformedLine::skip;
        if (keep_invalid_) chosen.invalid_text = InvalidText::keep;
        if (overwrite_) chosen.existing = ExistingDataset::overwrite;
        data_.output = output();
        return data_verb(data_);
      };
    });
  }

  void add_inspect() {
    CLI::App& verb = *app_.add_subcommand("inspect", "look at a run, data set, shard or file, or list what there is");
    verb.require_subcommand(0, 1);
    verb.add_option("path", inspect_.path, "a run, data set, shard or .safetensors file");
    verb.add_option("--against", inspect_.other, "a second run: what differs in config and scales");
    add_example(verb, "quaver inspect runs/first --against runs/second");
    verb.callback([this, &verb] {
      if (!verb.get_subcommands().empty()) return;
      action_ = [this] {
        if (inspect_.path.empty()) throw Error("nothing to inspect", "name a run, data set, shard or file");
        return inspect_verb(inspect_);
      };
    });
    const auto add_list = [&](const char* name, const char* help, InspectWhat what) {
      verb.add_subcommand(name, help)->callback([this, what] {
        action_ = [this, what] {
          inspect_.what = what;
          return inspect_verb(inspect_);
        };
      });
    };
    add_list("config", "every config key, as Markdown", InspectWhat::config_reference);
    add_list("recipes", "the recipes", InspectWhat::recipes);
    add_list("presets", "the presets", InspectWhat::presets);
    CLI::App& plan = *verb.add_subcommand("plan", "how every operand of a config would be stored");
    plan_config_.add_to(plan);
    add_example(plan, "quaver inspect plan --preset tiny --recipe fp8-delayed");
    plan.callback([this, &plan] {
      action_ = [this, &plan] {
        inspect_.what = InspectWhat::plan;
        inspect_.config = plan_config_.arguments(plan);
        return inspect_verb(inspect_);
      };
    });
  }

  void add_bench() {
    CLI::App& bench = *app_.add_subcommand("bench", "measure how fast this machine trains");
    bench.require_subcommand(1);
    add_example(bench, "quaver bench step --preset gpt-350m --recipe fp8-delayed");
    CLI::App& verb = *bench.add_subcommand("step", "whole optimiser steps on random tokens, and where their time goes");
    bench_config_.add_to(verb);
    verb.description(
        verb.get_description() +
        "\nWithout a config file: --preset gpt-350m --recipe fp8-delayed --batch 64"
        "\nStatic scales are calibrated first unless given. Fails if the loss does not fall as bf16's does");
    verb.add_option("--tokens", bench_.tokens, "a step, in as many micro-batches as that takes")
        ->capture_default_str()
        ->check(within(Size{1}, most));
    verb.add_option("--steps", bench_.steps, "to time")->capture_default_str()->check(within(Size{1}, most));
    verb.add_option("--warmup", bench_.warmup, "steps before those")
        ->capture_default_str()
        ->check(within(Size{0}, most));
    verb.add_option("--json", bench_.json, "file to write the figures to, for programs");
    verb.add_option("--reference", bench_.reference,
                    "such a file of the same model and steps: bf16's losses are taken from it, not trained for");
    add_example(verb, "quaver bench step --preset gpt-350m --recipe fp8-delayed --batch 64");
    verb.callback([this, &verb] {
      action_ = [this, &verb] {
        bench_.config = bench_config_.arguments(verb);
        return bench_step_verb(bench_);
      };
    });

    CLI::App& attention = *bench.add_subcommand("attention", "the attention of one layer by itself");
    attention_bench_config_.add_to(attention);
    attention.description(attention.get_description() + "\nWithout a config file: --preset gpt-350m --batch 64");
    attention.add_option("--repeats", attention_bench_.repeats, "of each pass in a round")
        ->capture_default_str()
        ->check(within(Size{1}, most));
    add_example(attention, "quaver bench attention --preset gpt-350m --batch 64");
    attention.callback([this, &attention] {
      action_ = [this, &attention] {
        attention_bench_.config = attention_bench_config_.arguments(attention);
        return bench_attention_verb(attention_bench_);
      };
    });
  }

  void add_dash() {
    CLI::App& verb = *app_.add_subcommand("dash", "watch runs in the browser while they train, and manage them");
    verb.add_option("runs", dash_.path,
                    "a folder: every quaver.db in it and up to 4 folders below it; or one quaver.db; it need not exist "
                    "yet")
        ->capture_default_str();
    verb.add_option("--port", dash_.serve.port, "0 takes a free one")->capture_default_str();
    verb.add_option("--host", dash_.serve.host, "address to listen on; others than this machine's own need the token")
        ->capture_default_str();
    verb.add_flag("--token", token_, "ask for a token on this machine too");
    CLI::Option* read_only = verb.add_flag(
        "--read-only", read_only_,
        "refuse to rename, tag, annotate, hide and delete runs; the default where --host is not loopback");
    verb.add_flag("--allow-changes", allow_changes_,
                  "allow these changes where --host lets other machines in: to everyone who has the token")
        ->excludes(read_only);
    verb.add_flag("--open", open_, "open the page in the browser");
    add_example(verb, "quaver dash runs --open");
    verb.callback([this] {
      action_ = [this] {
        if (token_) dash_.serve.token = TokenUse::always;
        if (read_only_) dash_.serve.changes = Changes::refused;
        if (allow_changes_) dash_.serve.changes = Changes::allowed;
        if (open_) dash_.browser = Browser::open;
        return dash_verb(dash_);
      };
    });
  }

  void add_export() {
    CLI::App& verb = *app_.add_subcommand("export", "write recorded runs as files for other programs");
    verb.add_option("runs", export_.path, "a folder of runs, its quaver.db, or the folder of one run")->required();
    verb.add_option("--run", export_.runs, "id or name of a run, comma-separated; by default all that are not deleted")
        ->delimiter(',');
    verb.add_option("--format", export_format_, "what to write")
        ->required()
        ->check(CLI::IsMember({"jsonl", "csv", "tensorboard"}));
    verb.add_option("--statistics", export_.options.statistics,
                    "of sites, comma-separated; by default all of them, for tensorboard none")
        ->delimiter(',');
    verb.add_option("--out", export_.out, "folder to write, with a folder a run")->required();
    add_example(verb, "quaver export runs --run first --format csv --out tables");
    verb.callback([this] {
      action_ = [this] {
        const bool is_csv = export_format_ == "csv";
        export_.options.format = is_csv                            ? ExportFormat::csv
                                 : export_format_ == "tensorboard" ? ExportFormat::tensorboard
                                                                   : ExportFormat::jsonl;
        return export_verb(export_);
      };
    });
  }

  void add_estimate() {
    CLI::App& verb = *app_.add_subcommand("estimate", "memory and time of a run before it is started");
    estimate_config_.add_to(verb);
    verb.add_option("--gpu", estimate_.gpu, "plan for this model, here or not: h100, h200, a100-80gb …");
    verb.add_option("--gpu-memory", estimate_.gpu_memory, "plan for a GPU with this much free, such as 80GiB");
    verb.add_flag("--no-time", no_time_, "memory only: nothing is measured");
    add_json(verb);
    add_example(verb, "quaver estimate --preset gpt-350m --recipe fp8-delayed --batch 32 --gpu h200");
    verb.callback([this, &verb] {
      action_ = [this, &verb] {
        estimate_.config = estimate_config_.arguments(verb);
        if (no_time_) estimate_.timing = EstimateTiming::leave_out;
        estimate_.output = output();
        return estimate_verb(estimate_);
      };
    });
  }

  void add_doctor() {
    CLI::App& verb = *app_.add_subcommand("doctor", "what this machine can do, and whether it works");
    add_json(verb);
    add_example(verb, "quaver doctor");
    verb.callback([this] {
      action_ = [this] {
        doctor_.output = output();
        return doctor_verb(doctor_);
      };
    });
  }

  void add_study(CLI::App& verb, ConfigOptions& config, StudyArguments& study, Size batches) {
    config.add_to(verb);
    study.batches = batches;
    verb.add_option("--run", study.run, "weights of this run's checkpoint; settings apply on top of its config");
    verb.add_option("--step", study.step, "checkpoint to use; the newest good one by default")
        ->check(within(Size{0}, most));
    verb.add_option("--batches", study.batches, "training batches to look at")
        ->capture_default_str()
        ->check(within(Size{2}, Size{100000}));
    verb.add_option("--warmup-steps", study.warmup_steps,
                    "steps of training first; 20 for a fresh model, whose gradients are unlike later ones, 0 for a run")
        ->check(within(Size{0}, most));
    add_json(verb);
  }

  void add_calibrate() {
    CLI::App& verb =
        *app_.add_subcommand("calibrate", "ranges in high precision, and the scales that follow from them");
    add_study(verb, calibrate_config_, calibrate_.study, 16);
    verb.add_option("--percentile", calibrate_.percentile, "of each tensor's magnitudes that must fit")
        ->capture_default_str()
        ->check(within(50.0, 100.0));
    verb.add_option("--margin", calibrate_.margin, "binades of headroom above that")
        ->capture_default_str()
        ->check(within(0, 16));
    verb.add_option("--against", calibrate_.against, "an earlier scale file: how far the ranges have moved since")
        ->check(CLI::ExistingFile);
    verb.add_option("--out", calibrate_.out, "scale file to write; its report goes beside it, as .html")->required();
    add_example(verb, "quaver calibrate --run runs/first --recipe fp8-static --out scales.json");
    verb.callback([this, &verb] {
      action_ = [this, &verb] {
        calibrate_.study.config = calibrate_config_.arguments(verb);
        calibrate_.study.output = output();
        return calibrate_verb(calibrate_);
      };
    });
  }

  void add_localize() {
    CLI::App& verb = *app_.add_subcommand("localize", "which operands bear the recipe's formats, and a plan from that");
    add_study(verb, localize_config_, localize_.study, 4);
    verb.add_option("--budget", localize_.budget, "of the loss that the plan may cost")->capture_default_str();
    verb.add_option("--group", grouping_, "what is tried together")
        ->check(CLI::IsMember(groupings()))
        ->capture_default_str();
    verb.add_option("--out", localize_.out, "folder for precision.toml, localization.json and report.html")->required();
    add_example(verb, "quaver localize --run runs/first --recipe nvfp4 --out plan");
    verb.callback([this, &verb] {
      action_ = [this, &verb] {
        localize_.study.config = localize_config_.arguments(verb);
        localize_.study.output = output();
        localize_.grouping = groupings().at(grouping_);
        return localize_verb(localize_);
      };
    });
  }

  CLI::App app_{"quaver trains transformers in 8 bits and fewer.", "quaver"};
  std::function<int()> action_ = [] { return 0; };
  bool json_ = false;
  bool llmc_ = false;
  bool keep_duplicates_ = false;
  bool keep_invalid_ = false;
  bool skip_bad_lines_ = false;
  bool overwrite_ = false;
  bool no_time_ = false;
  bool token_ = false;
  bool open_ = false;
  bool read_only_ = false;
  bool allow_changes_ = false;
  std::string export_format_;
  std::string grouping_{name_of(Grouping::site)};
  ConfigOptions train_config_;
  ConfigOptions compare_config_;
  ConfigOptions plan_config_;
  ConfigOptions bench_config_;
  ConfigOptions attention_bench_config_;
  ConfigOptions calibrate_config_;
  ConfigOptions localize_config_;
  ConfigOptions estimate_config_;
  TrainArguments train_;
  bool allow_other_data_ = false;
  CompareArguments compare_;
  RunArguments eval_;
  SampleArguments sample_;
  DataArguments data_;
  InspectArguments inspect_;
  BenchArguments bench_;
  AttentionBenchArguments attention_bench_;
  CalibrateArguments calibrate_;
  LocalizeArguments localize_;
  EstimateArguments estimate_;
  DoctorArguments doctor_;
  DashArguments dash_;
  ExportArguments export_;
};

}  // namespace
}  // namespace quaver

int main(int count, char** words) {
  quaver::wait_briefly(words);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error like a full disk, with a message
  try {
    return quaver::with_output_written(quaver::CommandLine().run(count, words));
  } catch (const quaver::Error& error) {
    std::cerr << "quaver: " << error.what() << '\n';
    if (!error.remedy().empty()) std::cerr << "  → " << error.remedy() << '\n';
    return 1;
  } catch (const std::bad_alloc&) {
    std::cerr << "quaver: out of memory\n  → choose a smaller model or train.batch\n";
    return 1;
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) return quaver::with_output_written(1);
    std::cerr << "quaver: " << error.what() << '\n';
    return 1;
  }
}
