// The parser, and the verbs that train a model or look at what was trained.
#include "cli/command_line.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/ranks.h"
#include "cli/verb_parser.h"
#include "config/suggest.h"
#include "quaver/error.h"

namespace quaver {

namespace {

class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", std::string("quaver " QUAVER_VERSION));
    app_.footer(
        "Start with:  quaver data my-text/ --out data/mine && quaver train --data data/mine --recipe fp8-delayed");
    for (const auto add : {add_train, add_compare, add_eval, add_sample, add_data, add_inspect, add_bench,
                           add_calibrate, add_localize, add_estimate, add_doctor, add_dash, add_export, add_convert}) {
      add(parser_);
    }
  }

  int run(const std::vector<std::string>& words) {
    std::vector<std::string> arguments = join_settings(words);
    refuse_unknown_verb(arguments);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
      app_.parse(arguments);
    } catch (const CLI::Success& help) {
      return app_.exit(help);
    } catch (const CLI::ParseError& error) {
      const auto all = verbs();
      const bool has_verb = !words.empty() && std::find(all.begin(), all.end(), words[0]) != all.end();
      throw Error(error.what(), has_verb ? fmt::format("`quaver {} --help` lists what it takes", words[0])
                                         : fmt::format("verbs are {}", fmt::join(all, ", ")));
    }
    constexpr std::array<std::string_view, 5> on_ranks{"train", "compare", "eval", "calibrate", "localize"};
    if (std::find(on_ranks.begin(), on_ranks.end(), words[0]) != on_ranks.end()) return parser_.act();
    return in_one_process(words[0], [this] { return parser_.act(); });
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

  CLI::App app_{"quaver trains transformers in 8 bits and fewer.", "quaver"};
  VerbParser parser_{app_};
};

}  // namespace

int run_command_line(const std::vector<std::string>& words) { return CommandLine().run(words); }

void add_train(VerbParser& parser) {
  struct Options {
    ConfigOptions config;
    TrainArguments train;
    int gpus = 0;
    bool allow_other_data = false;
    OutputOption output;
  };
  Options& options = parser.keep<Options>();
  CLI::App& verb = parser.add_verb("train", "train a model");
  options.config.add_to(verb);
  verb.add_option("--resume", options.train.resume, "continue the run in this folder");
  verb.add_option("--take-back", options.train.take_back,
                  "with --resume: undo the latest change of the sites that match, such as 'blocks.3.*/dy'");
  verb.add_flag("--allow-other-data", options.allow_other_data,
                "with --resume: go on although the data is not what the run was trained on; recorded as a change");
  constexpr int most_ranks = 1024;
  const auto gpus = verb.add_option("--gpus", options.gpus, "train on this many GPUs of this machine, a process each")
                        ->check(within(1, most_ranks));
  verb.add_option("--ranks", options.train.ranks, "train in this many CPU processes of this machine, over MPI")
      ->check(within(1, most_ranks))
      ->excludes(gpus);
  verb.add_option("--restarts", options.train.restarts,
                  "with --gpus or --ranks: how often a run that lost a rank goes on from its last checkpoint")
      ->check(within(0, most_ranks));
  verb.add_option("--tensorboard", options.train.tensorboard,
                  "write every step's metrics to an event file of TensorBoard in this folder");
  verb.add_option("--log-to", options.train.log_to,
                  "start this command and write every step's metrics to its standard input, as JSON lines");
  options.output.add_to(verb);
  add_example(
      verb,
      "quaver train --model.from=models/Qwen2.5-0.5B --data data/mine --train.context=1024\n"
      "  quaver train --model.from=models/Qwen2.5-0.5B --data.kind=examples --data chats.jsonl --train.context=1024\n"
      "  quaver train --preset small --data data/mine --recipe fp8-delayed --name first");
  parser.on(verb, [&] {
    if (options.gpus > 0) {
      options.train.ranks = options.gpus;
      options.train.rank_kind = RankKind::gpus;
    }
    options.train.config = options.config.arguments(verb);
    options.train.other_data = options.allow_other_data ? OtherData::accept : OtherData::refuse;
    options.train.output = options.output.output();
    return train_verb(options.train);
  });
}

void add_compare(VerbParser& parser) {
  struct Options {
    ConfigOptions config;
    CompareArguments compare;
    OutputOption output;
  };
  Options& options = parser.keep<Options>();
  CompareArguments& compare = options.compare;
  CLI::App& verb = parser.add_verb("compare", "train the same model under several recipes and report");
  options.config.add_to(verb);
  compare.recipes = {"fp32", "bf16", "fp8-delayed"};
  verb.add_option("--recipes", compare.recipes, "comma-separated; NAME@umup sets the parametrization too")
      ->delimiter(',')
      ->capture_default_str();
  verb.add_option("--seeds", compare.seeds, "comma-separated: each recipe is trained once per seed")
      ->delimiter(',')
      ->check(within<std::uint64_t>(0, largest_seed));
  verb.add_option("--base", compare.base,
                  "the one of --recipes that gaps are to (by default the one of highest precision)");
  verb.add_option("--out", compare.out, "folder for the runs, report.html and comparison.json")->required();
  options.output.add_to(verb);
  add_example(verb,
              "quaver compare --preset tiny --data data/mine --recipes bf16,fp8-delayed,mxfp4 --out runs/recipes");
  parser.on(verb, [&] {
    compare.config = options.config.arguments(verb);
    compare.output = options.output.output();
    return compare_verb(compare);
  });
}

void add_eval(VerbParser& parser) {
  struct Options {
    RunArguments eval;
    OutputOption output;
  };
  Options& options = parser.keep<Options>();
  RunArguments& eval = options.eval;
  CLI::App& verb = parser.add_verb(
      "eval", "loss of a trained model on its validation data or on other text, in its own precision or another");
  verb.add_option("run", eval.run, "folder of the run; or --model.from=FOLDER, a Hugging Face model");
  verb.add_option("--text", eval.text, "a file or folder of text or JSONL to evaluate on, not the validation data");
  verb.add_option("--documents", eval.documents, "JSON file to write: loss, tokens and bytes of each document");
  add_step(verb, eval.step);
  verb.add_option("--batches", eval.batches, "at most; all by default, train.eval_batches of generated text")
      ->check(within(Size{1}, largest_count));
  options.output.add_to(verb);
  add_settings(verb);
  add_example(
      verb,
      "quaver eval runs/first --recipe bf16\n"
      "  quaver eval --model.from=models/Qwen2.5-0.5B --text my-text/ --recipe fp8-current --documents loss.json");
  parser.on(verb, [&] {
    eval.settings = settings_from(verb.remaining());
    eval.output = options.output.output();
    return eval_verb(eval);
  });
}

void add_sample(VerbParser& parser) {
  struct Options {
    SampleArguments sample;
    OutputOption output;
  };
  Options& options = parser.keep<Options>();
  SampleArguments& sample = options.sample;
  CLI::App& verb = parser.add_verb("sample", "text from a trained model, in its own precision or another");
  verb.add_option("run", sample.run, "folder of the run; or --model.from=FOLDER, a Hugging Face model");
  add_step(verb, sample.step);
  CLI::Option* const prompt = verb.add_option("--prompt", sample.prompt, "text to continue");
  verb.add_option("--prompts", sample.prompts,
                  "a file of them, one per line; .jsonl: the fields \"prompt\" or \"messages\"; -: lines of standard "
                  "input")
      ->excludes(prompt);
  verb.add_flag("--chat", sample.chat, "answer prompts as the messages of a user, by data.template");
  verb.add_option("--tokens", sample.tokens, "at most this many")
      ->capture_default_str()
      ->check(within(Size{1}, largest_count));
  verb.add_option("--temperature", sample.temperature, "0: always the likeliest")
      ->capture_default_str()
      ->check(within(0.0, 1000.0));
  verb.add_option("--top-k", sample.top_k, "only among the k likeliest; 0: all")
      ->capture_default_str()
      ->check(within(0, std::numeric_limits<int>::max()));
  verb.add_option("--top-p", sample.top_p, "only among the likeliest that have this probability together; 1: all")
      ->capture_default_str()
      ->check(within(0.0, 1.0));
  verb.add_option("--stop", sample.stop, "end the text before this string; may be given several times")
      ->allow_extra_args(false)
      ->check([](const std::string& text) { return text.empty() ? "a stop string is empty" : std::string(); });
  verb.add_option("--seed", sample.seed, "of the draw; each text after the first has the next one")
      ->capture_default_str()
      ->check(within<std::uint64_t>(0, largest_seed));
  verb.add_option("--count", sample.count, "how many samples of each prompt")
      ->capture_default_str()
      ->check(within(Size{1}, Size{1000000}));
  options.output.add_to(verb);
  add_settings(verb);
  add_example(verb,
              "quaver sample runs/first --prompt \"Once upon a time\" --tokens 100\n"
              "  quaver sample runs/first --prompts prompts.txt --batch 8 --top-p 0.9 --stop . --json\n"
              "  quaver sample runs/tuned --chat --prompt \"What does E4M3 mean?\"");
  parser.on(verb, [&] {
    sample.settings = settings_from(verb.remaining());
    sample.output = options.output.output();
    return sample_verb(sample);
  });
}

void add_data(VerbParser& parser) {
  struct Options {
    DataArguments data;
    bool llmc = false;
    bool keep_duplicates = false;
    bool skip_bad_lines = false;
    bool keep_invalid = false;
    bool overwrite = false;
    OutputOption output;
  };
  Options& options = parser.keep<Options>();
  PrepareOptions& prepare = options.data.options;
  CLI::App& verb = parser.add_verb("data", "turn text into shards to train on");
  CLI::Option* const inputs = verb.add_option("inputs", prepare.inputs, "text files, folders, .jsonl files");
  CLI::Option* const out = verb.add_option("--out", prepare.output, "folder to write")->needs(inputs);
  inputs->needs(out);
  verb.add_option("--tokenizer", prepare.tokenizer,
                  "bytes, bpe:SIZE to train one, or a Hugging Face tokenizer.json or its folder")
      ->capture_default_str();
  verb.add_option("--include", prepare.include, "globs of files to take from folders")->delimiter(',');
  verb.add_option("--exclude", prepare.exclude, "globs of files to leave out")->delimiter(',');
  verb.add_option("--text-field", prepare.reading.text_field, "of JSONL documents")->capture_default_str();
  verb.add_option("--valid", prepare.valid_fraction,
                  "share for validation, below 1: of the documents; of the text, whole files and one's end, where "
                  "they are few")
      ->capture_default_str()
      ->check(within(0.0, 1.0));
  verb.add_option("--shard-tokens", prepare.shard_tokens, "tokens per shard")
      ->capture_default_str()
      ->check(within(Size{2}, largest_count));
  verb.add_flag("--llmc", options.llmc, "write llm.c's shard format");
  verb.add_flag("--keep-duplicates", options.keep_duplicates, "keep documents that occur twice");
  verb.add_flag("--skip-bad-lines", options.skip_bad_lines,
                "pass over lines of JSONL files that are broken, and count them");
  verb.add_flag("--keep-invalid", options.keep_invalid, "keep documents that are not UTF-8");
  verb.add_flag("--overwrite", options.overwrite,
                "replace a data set that is already there, once the new one is complete");
  verb.add_option("--verify", options.data.verify,
                  "read a data set or shard to the end and check it, in place of writing one")
      ->excludes(inputs, out);
  options.output.add_to(verb);
  add_example(verb, "quaver data my-text/ --out data/mine --tokenizer bpe:8192");
  parser.on(verb, [&] {
    if (prepare.inputs.empty() && options.data.verify.empty()) {
      throw Error("no text to prepare", "quaver data TEXT --out FOLDER, or quaver data --verify FOLDER");
    }
    if (options.llmc) prepare.format = ShardFormat::llmc;
    if (options.keep_duplicates) prepare.duplicates = Duplicates::keep;
    if (options.skip_bad_lines) prepare.reading.malformed = MalformedLine::skip;
    if (options.keep_invalid) prepare.invalid_text = InvalidText::keep;
    if (options.overwrite) prepare.existing = ExistingDataset::overwrite;
    options.data.output = options.output.output();
    return data_verb(options.data);
  });
}

void add_inspect(VerbParser& parser) {
  struct Options {
    InspectArguments inspect;
    ConfigOptions plan_config;
  };
  Options& options = parser.keep<Options>();
  InspectArguments& inspect = options.inspect;
  CLI::App& verb = parser.add_verb("inspect", "look at a run, data set, shard or file, or list what there is");
  verb.require_subcommand(0, 1);
  verb.add_option("path", inspect.path, "a run, data set, shard or .safetensors file");
  verb.add_option("--against", inspect.other, "a second run: what differs in config and scales");
  add_example(verb, "quaver inspect runs/first --against runs/second");
  // Its own callback runs after that of a verb below it, which has then said what to inspect.
  parser.on(verb, [&] {
    if (inspect.what == InspectWhat::run && inspect.path.empty()) {
      throw Error("nothing to inspect", "name a run, data set, shard or file");
    }
    return inspect_verb(inspect);
  });
  const auto add_list = [&](const char* name, const char* help, InspectWhat what) {
    verb.add_subcommand(name, help)->callback([&inspect, what] { inspect.what = what; });
  };
  add_list("config", "every config key, as Markdown", InspectWhat::config_reference);
  add_list("recipes", "the recipes", InspectWhat::recipes);
  add_list("presets", "the presets", InspectWhat::presets);
  CLI::App& plan = *verb.add_subcommand("plan", "how every operand of a config would be stored");
  options.plan_config.add_to(plan);
  add_example(plan, "quaver inspect plan --preset tiny --recipe fp8-delayed");
  plan.callback([&] {
    inspect.what = InspectWhat::plan;
    inspect.config = options.plan_config.arguments(plan);
  });
}

}  // namespace quaver
