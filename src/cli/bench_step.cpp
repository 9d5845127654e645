#include "cli/bench_step.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include "cli/progress.h"
#include "config/load.h"
#include "io/file_io.h"
#include "models/factory.h"
#include "quaver/error.h"
#include "study/calibrate.h"
#include "train/engine_choice.h"
#include "train/faster_layers.h"
#include "train/resolved_config.h"
#include "train/run_folder.h"

namespace quaver {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void tell(const std::string& text) { fmt::print(stderr, "{}\n", text); }

// Micro-batches per step, so that a step has the tokens asked for.
Size accumulation_for(const Config& config, Size tokens) {
  const Size micro = config.train.batch * config.train.context;
  if (tokens % micro == 0) return tokens / micro;
  throw Error(
      fmt::format("{} tokens per step are not a multiple of the {} tokens of a micro-batch ({} sequences of {} tokens)",
                  tokens, micro, config.train.batch, config.train.context),
      fmt::format("choose --tokens {}, or another --batch", std::max<Size>(1, tokens / micro) * micro));
}

Config config_of(const BenchArguments& arguments) {
  Config config = benchmark_config(arguments.config);
  config.train.accumulation = accumulation_for(config, arguments.tokens);
  config.train.steps = arguments.warmup + arguments.steps + 1;
  config.train.statistics_every = 0;
  config.precision.switch_to.clear();  // one recipe is measured
  return config;
}

// Static scales that nobody gave: neither as a file nor as settings other than the defaults, which suit no model.
bool lacks_scales(const Config& config) {
  const PrecisionConfig& precision = config.precision;
  const PrecisionConfig defaults;
  if (!precision.scales.empty() || precision.static_activation_scale != defaults.static_activation_scale ||
      precision.static_weight_scale != defaults.static_weight_scale ||
      precision.static_gradient_scale != defaults.static_gradient_scale) {
    return false;
  }
  const Config resolved = resolve_shape(config, {.vocab = config.model.vocab});
  const std::vector<LayerShape> layers = make_model(resolved.model)->layers();
  const Plan plan = make_plan(resolve_layer_speeds(resolved, layers, nullptr).precision, layers);
  return std::any_of(plan.rows.begin(), plan.rows.end(),
                     [](const PlanRow& row) { return row.spec.rows.policy == ScalePolicy::fixed; });
}

// Scales of a benchmark that has none, in a file that lives as long as this.
class CalibratedFile {
 public:
  explicit CalibratedFile(Config& config) {
    if (!lacks_scales(config)) return;
    Config micro = config;
    micro.train.make_single();  // operands are those of a micro-batch
    const Size steps = micro.train.steps;
    const auto subject = open_subject(micro, benchmark_data(micro), tell);
    const Calibration calibration =
        calibrate(*subject, {.batches = std::min(most_batches, steps + 1), .warmup_steps = steps});
    made_ = {static_cast<Size>(calibration.steps.size()), calibration.last_step};
    path_ = std::filesystem::temp_directory_path() / fmt::format("quaver-bench-{}.json", ::getpid());
    write_file_atomically(path_, to_scale_file(calibration));
    config.precision.scales = path_.string();
    tell(fmt::format("static scales: calibrated on {} batches over {} steps in bf16", made_->batches, made_->steps));
  }
  ~CalibratedFile() {
    std::error_code ignored;
    if (made_) std::filesystem::remove(path_, ignored);
  }
  CalibratedFile(const CalibratedFile&) = delete;
  CalibratedFile& operator=(const CalibratedFile&) = delete;

  const std::optional<CalibratedScales>& made() const { return made_; }

 private:
  static constexpr Size most_batches = 4;

  std::filesystem::path path_;
  std::optional<CalibratedScales> made_;
};

class StepMeasurement {
 public:
  StepMeasurement(const BenchArguments& arguments, const Config& config)
      : arguments_(arguments),
        config_(config),
        started_(Clock::now()),
        engine_(make_engine(config_, tell)),
        timed_(*engine_),
        free_at_start_(engine_->device().free_memory()),
        data_(benchmark_data(config_)),
        trainer_(config_, data_, timed_, tell) {}

  StepBenchmark measure() {
    introduce();
    for (Size i = 0; i < arguments_.warmup; ++i) one_step(fmt::format("warm-up {}/{}", i + 1, arguments_.warmup));
    for (Size i = 0; i < arguments_.steps; ++i) {
      result_.step_seconds.push_back(one_step(fmt::format("step {}/{}", i + 1, arguments_.steps)));
    }
    note_memory();
    watch_one_step();
    return result_;
  }

 private:
  void introduce() {
    timed_.device().synchronize();
    result_.setup_seconds = seconds_since(started_);
    result_.config = trainer_.config();
    result_.engine = engine_->name();
    result_.high_precision = engine_->high_precision();
    result_.parameters = trainer_.model().parameters().count();
    result_.tokens_per_step = arguments_.tokens;
    result_.flops_per_token = trainer_.model().flops_per_token(result_.config.train.context);
    result_.low_precision_share = low_precision_share(trainer_.format_shares());
    tell(fmt::format("{} · {} parameters · {} · {} · set up in {:.1f} s", model_name(result_.config),
                     format_count(static_cast<double>(result_.parameters)), result_.config.precision.recipe,
                     result_.engine, result_.setup_seconds));
  }

  double one_step(const std::string& name) {
    timed_.device().synchronize();
    const auto start = Clock::now();
    const StepReport report = trainer_.step();
    timed_.device().synchronize();
    const double seconds = seconds_since(start);
    result_.losses.push_back(report.loss);
    result_.skipped += report.skipped ? 1 : 0;
    tell(fmt::format("{}: {:.1f} ms, {} tokens/s, loss {:.4f}{}", name, seconds * 1e3,
                     format_count(result_.tokens_per_second(seconds)), report.loss,
                     report.skipped ? ", skipped: not finite" : ""));
    return seconds;
  }

  // Memory that the trainer and the operations took is kept, so the end is the peak. The CPU's memory is shared
  // with everything else, and what is missing there says nothing.
  void note_memory() {
    result_.memory = trainer_.memory();
    result_.workspace = static_cast<Size>(engine_->device().workspace_bytes());
    if (engine_->name().starts_with("cpu")) return;
    result_.device_memory = static_cast<Size>(free_at_start_) - static_cast<Size>(engine_->device().free_memory());
  }

  void watch_one_step() {
    timed_.set_mode(TimedEngine::Mode::watching);
    result_.watched_seconds = one_step("one operation at a time");
    for (std::size_t kind = 0; kind < operation_kinds; ++kind) {
      result_.kernels[kind] = timed_.time(static_cast<OperationKind>(kind));
    }
  }

  const BenchArguments& arguments_;
  Config config_;
  Clock::time_point started_;
  std::unique_ptr<Engine> engine_;
  TimedEngine timed_;
  std::size_t free_at_start_;
  TrainingData data_;
  Trainer trainer_;
  StepBenchmark result_;
};

}  // namespace

Config benchmark_config(const ConfigArguments& arguments) {
  std::vector<std::string> settings;
  if (arguments.files.empty()) settings = {"preset=gpt-350m", "precision.recipe=fp8-delayed", "train.batch=64"};
  settings.insert(settings.end(), arguments.settings.begin(), arguments.settings.end());
  Config config = load_config({.files = arguments.files, .texts = {}, .flags = settings});
  if (has_images(config.data.kind)) {
    throw Error("bench step measures language models, on random tokens, and data.kind names images",
                "choose a preset of a language model");
  }
  if (config.model.vocab == 0) config.model.vocab = 256;
  if (config.train.context == 0) config.train.context = config.model.context;
  return config;
}

TrainingData benchmark_data(const Config& config) { return stand_in_data(config, config.model.vocab); }

// One trainer after the other: each has the device's memory to itself.
int bench_step_verb(const BenchArguments& arguments) {
  Config config = config_of(arguments);
  std::optional<Reference> reference;
  if (!arguments.reference.empty()) reference = read_reference(arguments.reference, config);
  const CalibratedFile scales(config);
  StepBenchmark benchmark = StepMeasurement(arguments, config).measure();
  benchmark.calibrated = scales.made();
  benchmark.learning = check_learning(config, benchmark.losses, reference, tell);
  fmt::print("{}", benchmark_table(benchmark));
  if (!arguments.json.empty()) write_file_atomically(arguments.json, benchmark_json(benchmark) + "\n");
  benchmark.learning.require();
  return 0;
}

}  // namespace quaver
