// The verbs that measure, plan, watch and export.
#include <map>

#include "cli/verb_parser.h"

namespace quaver {

namespace {

void add_bench_step(VerbParser& parser, CLI::App& bench) {
  struct Options {
    ConfigOptions config;
    BenchArguments bench;
  };
  Options& options = parser.keep<Options>();
  BenchArguments& arguments = options.bench;
  CLI::App& verb = *bench.add_subcommand("step", "whole optimizer steps on random tokens, and where their time goes");
  options.config.add_to(verb);
  verb.description(verb.get_description() +
                   "\nWithout a config file: --preset gpt-350m --recipe fp8-delayed --batch 64"
                   "\nStatic scales are calibrated first unless given. Fails if the loss does not fall as bf16's does");
  verb.add_option("--tokens", arguments.tokens, "per step, in as many micro-batches as that takes")
      ->capture_default_str()
      ->check(within(Size{1}, largest_count));
  verb.add_option("--steps", arguments.steps, "to time")->capture_default_str()->check(within(Size{1}, largest_count));
  verb.add_option("--warmup", arguments.warmup, "steps before those")
      ->capture_default_str()
      ->check(within(Size{0}, largest_count));
  verb.add_option("--json", arguments.json, "file to write the measurements to, for programs");
  verb.add_option("--reference", arguments.reference,
                  "such a file of the same model and steps: bf16's losses are taken from it, not trained for");
  add_example(verb, "quaver bench step --preset gpt-350m --recipe fp8-delayed --batch 64");
  parser.on(verb, [&] {
    arguments.config = options.config.arguments(verb);
    return bench_step_verb(arguments);
  });
}

void add_bench_attention(VerbParser& parser, CLI::App& bench) {
  struct Options {
    ConfigOptions config;
    AttentionBenchArguments bench;
  };
  Options& options = parser.keep<Options>();
  CLI::App& verb = *bench.add_subcommand("attention", "the attention of one layer by itself");
  options.config.add_to(verb);
  verb.description(verb.get_description() + "\nWithout a config file: --preset gpt-350m --batch 64");
  verb.add_option("--repeats", options.bench.repeats, "of each pass per round")
      ->capture_default_str()
      ->check(within(Size{1}, largest_count));
  add_example(verb, "quaver bench attention --preset gpt-350m --batch 64");
  parser.on(verb, [&] {
    options.bench.config = options.config.arguments(verb);
    return bench_attention_verb(options.bench);
  });
}

// What calibrate and localize share.
struct StudyOptions {
  ConfigOptions config;
  OutputOption output;

  void add_to(CLI::App& verb, StudyArguments& study, Size batches) {
    config.add_to(verb);
    study.batches = batches;
    verb.add_option("--run", study.run, "weights of this run's checkpoint; settings apply on top of its config");
    add_step(verb, study.step);
    verb.add_option("--batches", study.batches, "training batches to measure on")
        ->capture_default_str()
        ->check(within(Size{2}, Size{100000}));
    verb.add_option("--warmup-steps", study.warmup_steps,
                    "steps of training first; 20 for a fresh model, whose gradients are unlike later ones, 0 for a run")
        ->check(within(Size{0}, largest_count));
    output.add_to(verb);
  }
  void read(const CLI::App& verb, StudyArguments& study) const {
    study.config = config.arguments(verb);
    study.output = output.output();
  }
};

std::map<std::string, Grouping> groupings() {
  std::map<std::string, Grouping> all;
  for (const Grouping grouping : {Grouping::site, Grouping::layer, Grouping::block}) {
    all.emplace(name_of(grouping), grouping);
  }
  return all;
}

std::vector<std::string> weight_formats(WeightFormat first) {
  std::vector<std::string> names;
  for (const WeightFormat format : all_weight_formats) {
    if (format >= first) names.emplace_back(name_of(format));
  }
  return names;
}

// Many GPUs, which need not be here.
void add_cluster_options(CLI::App& verb, EstimateArguments& estimate) {
  constexpr Size most_gpus = 65536;
  const auto gpus =
      verb.add_option("--gpus", estimate.gpus, "predict training on this many GPUs in all, for each shard")
          ->check(within(Size{1}, most_gpus));
  const auto add = [&](const char* name, auto& value, const char* help) {
    return verb.add_option(name, value, help)->needs(gpus);
  };
  add("--nodes", estimate.nodes, "machines that hold them; as few of 8 GPUs as can by default")
      ->check(within(Size{1}, most_gpus));
  add("--link", estimate.links,
      "between the GPUs of a machine: nvlink (the default) or pcie; between machines: ib (the default) or ethernet; "
      "comma-separated for both")
      ->delimiter(',')
      ->allow_extra_args(false);  // a config file may follow
  add("--gradients", estimate.gradients, "format in which gradients travel; quaver's is fp32")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  add("--overlap", estimate.overlap,
      "share of a pass during which links can be busy, where exchange and passes overlap")
      ->check(within(0.0, 1.0))
      ->capture_default_str();
}

}  // namespace

void add_bench(VerbParser& parser) {
  struct Options {
    ConfigOptions config;
    BenchSuiteArguments suite;
    BenchDiffArguments diff;
  };
  Options& options = parser.keep<Options>();
  CLI::App& bench = parser.add_verb("bench", "measure this machine in every precision: is FP8 faster, and where");
  options.config.add_to(bench);
  bench.add_option("--recipes", options.suite.recipes, "to measure beside bf16, separated by commas")->delimiter(',');
  bench.add_option("--seconds", options.suite.seconds, "to spend, about")->check(within(1.0, 86400.0));
  bench.add_option("--json", options.suite.json, "file to write the measurements to, for programs and `bench diff`");
  bench.add_option("--csv", options.suite.csv, "the same as a table for spreadsheets");
  bench.add_option("--html", options.suite.html, "report to write");
  bench.require_subcommand(0, 1);
  add_example(bench, "quaver bench --html bench.html --json bench.json");
  parser.on(bench, [&] {
    options.suite.config = options.config.arguments(bench);
    return bench_suite_verb(options.suite);
  });
  add_bench_step(parser, bench);
  add_bench_attention(parser, bench);
  CLI::App& diff = *bench.add_subcommand("diff", "what changed between two benchmarks beyond their noise");
  diff.add_option("before", options.diff.before, "file of `bench --json`")->required();
  diff.add_option("after", options.diff.after, "another")->required();
  add_example(diff, "quaver bench diff before.json after.json");
  parser.on(diff, [&] { return bench_diff_verb(options.diff); });
}

void add_dash(VerbParser& parser) {
  struct Options {
    DashArguments dash;
    bool token = false;
    bool read_only = false;
    bool allow_changes = false;
    bool open = false;
  };
  Options& options = parser.keep<Options>();
  ServeOptions& serve = options.dash.serve;
  CLI::App& verb = parser.add_verb("dash", "watch runs in the browser while they train, and manage them");
  verb.add_option("runs", options.dash.path,
                  "a folder: every quaver.db in it and up to 4 folders below it; or one quaver.db; it need not exist "
                  "yet")
      ->capture_default_str();
  verb.add_option("--port", serve.port, "0 takes a free one")->capture_default_str();
  verb.add_option("--host", serve.host, "address to listen on; others than this machine's own need the token")
      ->capture_default_str();
  verb.add_flag("--token", options.token, "ask for a token on this machine too");
  CLI::Option* read_only =
      verb.add_flag("--read-only", options.read_only,
                    "refuse to rename, tag, annotate, hide and delete runs; the default where --host is not loopback");
  verb.add_flag("--allow-changes", options.allow_changes,
                "allow these changes where --host lets other machines in: to everyone who has the token")
      ->excludes(read_only);
  verb.add_flag("--open", options.open, "open the page in the browser");
  add_example(verb, "quaver dash runs --open");
  parser.on(verb, [&] {
    if (options.token) serve.token = TokenUse::always;
    if (options.read_only) serve.changes = Changes::refused;
    if (options.allow_changes) serve.changes = Changes::allowed;
    if (options.open) options.dash.browser = Browser::open;
    return dash_verb(options.dash);
  });
}

void add_export(VerbParser& parser) {
  static const std::map<std::string, ExportFormat> formats{
      {"jsonl", ExportFormat::jsonl}, {"csv", ExportFormat::csv}, {"tensorboard", ExportFormat::tensorboard}};
  struct Options {
    ExportArguments arguments;
    std::string format;
    std::string dtype = "f32";
    std::string quantize;
    std::optional<Size> step;
    bool adapter = false;
  };
  Options& options = parser.keep<Options>();
  ExportArguments& arguments = options.arguments;
  CLI::App& verb = parser.add_verb("export", "write recorded runs, or a trained model, as files for other programs");
  verb.add_option("runs", arguments.path, "a folder of runs, its quaver.db, or the folder of one run")->required();
  const auto* const run = verb.add_option("--run", arguments.runs,
                                          "id or name of a run, comma-separated; by default all that are not deleted")
                              ->delimiter(',');
  verb.add_option("--format", options.format,
                  "what to write: what was recorded, or with hf the model of one run as a Hugging Face model folder")
      ->required()
      ->check(CLI::IsMember({"jsonl", "csv", "tensorboard", "hf"}));
  const auto* const statistics =
      verb.add_option("--statistics", arguments.options.statistics,
                      "of sites, comma-separated; by default all of them, for tensorboard none")
          ->delimiter(',');
  const auto* const dtype =
      verb.add_option("--dtype", options.dtype,
                      "hf: of the weights; with --quantize of those that are not quantized, and then bf16 by default")
          ->capture_default_str()
          ->check(CLI::IsMember({"f32", "bf16"}));
  verb.add_option("--quantize", options.quantize,
                  "hf: quantize linear layers, for serving; embeddings, norms and the head stay in high precision")
      ->check(CLI::IsMember(weight_formats(WeightFormat::fp8_tensor)));
  verb.add_flag("--adapter", options.adapter,
                "hf: low-rank adapters alone, as PEFT has them; by default they are merged into the weights");
  verb.add_option("--step", options.step, "hf: checkpoint to use; the newest good one by default")
      ->check(within(Size{0}, largest_count));
  verb.add_option("--out", arguments.out, "folder to write; with one folder per run, unless it is hf")->required();
  add_example(verb,
              "quaver export runs --run first --format csv --out tables\n"
              "  quaver export runs/first --format hf --dtype bf16 --out models/first\n"
              "  quaver export runs/first --format hf --quantize fp8-block --out models/first-fp8");
  parser.on(verb, [&options, &arguments, run, statistics, dtype] {
    const bool model = options.format == "hf";
    if (model && (run->count() > 0 || statistics->count() > 0)) {
      throw Error("--run and --statistics are of what was recorded, and --format hf writes a model",
                  "name the folder of the run: quaver export runs/first --format hf --out FOLDER");
    }
    if (!model && (dtype->count() > 0 || options.step || options.adapter || !options.quantize.empty())) {
      throw Error("--dtype, --quantize, --adapter and --step are of --format hf", "leave them out, or add --format hf");
    }
    if (options.adapter && !options.quantize.empty()) {
      throw Error("--adapter with --quantize: adapters are in high precision", "leave one of them out");
    }
    if (model) {
      ExportModelArguments what{.run = arguments.path, .step = options.step, .out = arguments.out};
      what.adapter = options.adapter;
      if (!options.quantize.empty()) what.quantize = parse_weight_format(options.quantize);
      const bool serving = what.quantize && dtype->count() == 0;
      what.dtype = serving || options.dtype == "bf16" ? WeightFormat::bf16 : WeightFormat::f32;
      return export_model_verb(what);
    }
    arguments.options.format = formats.at(options.format);
    return export_verb(arguments);
  });
}

void add_convert(VerbParser& parser) {
  struct Options {
    ConvertArguments arguments;
    std::string to;
    bool force = false;
  };
  Options& options = parser.keep<Options>();
  ConvertArguments& arguments = options.arguments;
  CLI::App& verb = parser.add_verb(
      "convert", "the weights of a Hugging Face model folder in another format: FP8, NVFP4, or high precision again");
  verb.add_option("from", arguments.from, "model folder, of any architecture")->required();
  verb.add_option("out", arguments.out, "folder to write; it must be empty or not exist")->required();
  verb.add_option("--to", options.to,
                  "fp8-tensor, -channel, -block and nvfp4: as compressed-tensors has them, with a scale per tensor, "
                  "channel, block of 128x128 or 16 values; deepseek-block: blocks of 128x128 as DeepSeek has them")
      ->required()
      ->check(CLI::IsMember(weight_formats(WeightFormat::f32)));
  verb.add_option("--keep", arguments.options.keep,
                  "pattern of layers that stay in high precision, as '*.mlp.down_proj'; may be repeated. Embeddings, "
                  "norms, routers and the head always do")
      ->allow_extra_args(false);
  verb.add_option("--least-sqnr", arguments.options.least_sqnr,
                  "refuse the conversion if a layer's SQNR is below this many dB; by default 25 for FP8, 15 for nvfp4, "
                  "40 for high precision")
      ->check(within(-1000.0, 1000.0));
  verb.add_flag("--force", options.force, "write the model although a layer is below that, saturates or is not finite");
  verb.add_option(
          "--calibration", arguments.calibration,
          "scale file of `quaver calibrate`: say which layers' weights are not those that it has measured; with "
          "--to nvfp4, quantize activations too, by its ranges")
      ->check(CLI::ExistingFile);
  verb.add_option("--json", arguments.json, "file to write the statistics of every layer to, for programs");
  verb.add_option("--html", arguments.html, "file to write a report to");
  add_example(verb,
              "quaver convert models/Qwen2.5-0.5B models/Qwen2.5-0.5B-FP8 --to fp8-block --html fp8.html\n"
              "  quaver convert models/DeepSeek-FP8 models/DeepSeek-BF16 --to bf16\n"
              "  quaver convert models/Qwen2.5-0.5B models/Qwen2.5-0.5B-FP4 --to nvfp4 --keep '*.down_proj'");
  parser.on(verb, [&] {
    arguments.options.to = parse_weight_format(options.to);
    if (options.force) arguments.options.beyond_limits = BeyondLimits::allow;
    return convert_verb(arguments);
  });
}

void add_estimate(VerbParser& parser) {
  struct Options {
    ConfigOptions config;
    EstimateArguments estimate;
    bool no_time = false;
    OutputOption output;
  };
  Options& options = parser.keep<Options>();
  EstimateArguments& estimate = options.estimate;
  CLI::App& verb = parser.add_verb("estimate", "memory and time of a run before it is started, on one GPU or many");
  options.config.add_to(verb);
  verb.add_option("--gpu", estimate.gpu, "plan for this model, here or not: h100, h200, a100-80gb …");
  verb.add_option("--gpu-memory", estimate.gpu_memory, "plan for a GPU with this much free, such as 80GiB");
  CLI::Option* no_time = verb.add_flag("--no-time", options.no_time, "memory only: nothing is measured");
  verb.add_option("--tokens-per-second", estimate.tokens_per_second,
                  "that one GPU was measured to train (bench step), in place of an estimate")
      ->check(within(1e-3, 1e12))
      ->excludes(no_time);
  verb.add_option("--bench", estimate.bench, "file of `bench --json` to take the time from")->excludes(no_time);
  add_cluster_options(verb, estimate);
  options.output.add_to(verb);
  add_example(verb,
              "quaver estimate --preset gpt-350m --recipe fp8-delayed --batch 32 --gpu h200\n"
              "  quaver estimate --preset qwen2.5-1.5b --recipe fp8-delayed --gpu h200 --gpus 16 --nodes 2 --link ib\n"
              "  quaver estimate --preset small --recipe fp8-delayed --bench bench.json");
  parser.on(verb, [&] {
    estimate.config = options.config.arguments(verb);
    if (options.no_time) estimate.timing = EstimateTiming::leave_out;
    estimate.output = options.output.output();
    return estimate_verb(estimate);
  });
}

void add_doctor(VerbParser& parser) {
  OutputOption& output = parser.keep<OutputOption>();
  CLI::App& verb = parser.add_verb("doctor", "what this machine can do, and whether it works");
  output.add_to(verb);
  add_example(verb, "quaver doctor");
  parser.on(verb, [&] { return doctor_verb({output.output()}); });
}

void add_calibrate(VerbParser& parser) {
  struct Options {
    StudyOptions study;
    CalibrateArguments calibrate;
  };
  Options& options = parser.keep<Options>();
  CalibrateArguments& calibrate = options.calibrate;
  CLI::App& verb = parser.add_verb("calibrate", "ranges in high precision, and the scales that follow from them");
  options.study.add_to(verb, calibrate.study, 16);
  verb.add_option("--percentile", calibrate.percentile, "of each tensor's magnitudes that must fit")
      ->capture_default_str()
      ->check(within(50.0, 100.0));
  verb.add_option("--margin", calibrate.margin, "binades of headroom above that")
      ->capture_default_str()
      ->check(within(0, 16));
  verb.add_option("--against", calibrate.against, "an earlier scale file: how far the ranges have moved since")
      ->check(CLI::ExistingFile);
  verb.add_option("--out", calibrate.out, "scale file to write; its report goes beside it, as .html")->required();
  add_example(verb, "quaver calibrate --run runs/first --recipe fp8-static --out scales.json");
  parser.on(verb, [&] {
    options.study.read(verb, calibrate.study);
    return calibrate_verb(calibrate);
  });
}

void add_localize(VerbParser& parser) {
  struct Options {
    StudyOptions study;
    LocalizeArguments localize;
    std::string grouping{name_of(Grouping::site)};
  };
  Options& options = parser.keep<Options>();
  LocalizeArguments& localize = options.localize;
  CLI::App& verb = parser.add_verb(
      "localize", "sensitivity analysis: which operands tolerate the recipe's formats, and a plan from that");
  options.study.add_to(verb, localize.study, 4);
  verb.add_option("--budget", localize.budget, "of the loss that the plan may cost, in percent")->capture_default_str();
  verb.add_option("--group", options.grouping, "what is tried together")
      ->check(CLI::IsMember(groupings()))
      ->capture_default_str();
  verb.add_option("--out", localize.out, "folder for precision.toml, localization.json and report.html")->required();
  add_example(verb, "quaver localize --run runs/first --recipe nvfp4 --out plan");
  parser.on(verb, [&] {
    options.study.read(verb, localize.study);
    localize.grouping = groupings().at(options.grouping);
    return localize_verb(localize);
  });
}

}  // namespace quaver
