#include "study/bench_steps.h"

#include <algorithm>
#include <chrono>

#include "engine/energy.h"
#include "engine/timed_engine.h"
#include "study/repeated_batch.h"
#include "train/engine_choice.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace quaver {

namespace {

using Clock = std::chrono::steady_clock;

double spent_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int warmup_steps = 3;  // a GPU measures GEMMs, then captures its graph; the loss must fall too
constexpr int fewest_steps = 3;
constexpr int most_steps = 20;
constexpr Size compared_steps = warmup_steps + fewest_steps;  // that every recipe makes
constexpr double shortest_energy_window = 0.5;                // seconds: counters move in steps

Config steps_of(Config config, const std::string& recipe) {
  config.precision = {.recipes = config.precision.recipes, .recipe = recipe};
  config.train.steps = 1000;
  config.train.statistics_every = 0;
  return for_memorizing(std::move(config));
}

class Steps {
 public:
  explicit Steps(const Config& config)
      : config_(config),
        engine_(make_engine(config_, [](const std::string&) {})),
        timed_(*engine_),
        free_at_start_(engine_->device().free_memory()),
        data_(repeated(config_)),
        trainer_(config_, data_, timed_, [](const std::string&) {}) {}

  StepBench measure(double seconds) {
    for (int i = 0; i < warmup_steps; ++i) one_step();
    EnergyMeter meter(hardware());
    const std::optional<double> before = meter.joules();
    const auto start = Clock::now();
    std::vector<double> times;
    while (static_cast<int>(times.size()) < fewest_steps ||
           (static_cast<int>(times.size()) < most_steps && spent_since(start) < seconds)) {
      times.push_back(one_step());
    }
    const double window = spent_since(start);
    const std::optional<double> after = meter.joules();
    Measurement step = measurement("step");
    step.workload = Workload::step;
    step.time = timing_of(times);
    step.flops = trainer_.model().flops_per_token(config_.train.context) * step.units;
    if (before && after && window >= shortest_energy_window) {
      step.joules = (*after - *before) / static_cast<double>(times.size());
    }
    bench_.measurements.push_back(step);
    note_memory();
    record_phases();
    bench_.losses.resize(static_cast<std::size_t>(compared_steps));
    return bench_;
  }

 private:
  static TrainingData repeated(const Config& config) {
    TrainingData data = stand_in_data(config, config.model.vocab);
    if (data.train != nullptr) data.train = std::make_unique<RepeatedBatch>(std::move(data.train));
    return data;
  }

  HardwareKind hardware() const { return engine_->device().hardware().kind; }

  Measurement measurement(const std::string& part) const {
    return {.workload = Workload::phase,
            .subject = model_name(config_),
            .part = part,
            .recipe = config_.precision.recipe,
            .units = static_cast<double>(config_.train.batch * config_.train.context)};
  }

  double one_step() {
    timed_.device().synchronize();
    const auto start = Clock::now();
    report_ = trainer_.step();
    timed_.device().synchronize();
    bench_.losses.push_back(report_.loss);
    return spent_since(start);
  }

  void note_memory() {
    const auto workspace = static_cast<Size>(engine_->device().workspace_bytes());
    bench_.peak_memory = trainer_.memory().total() + workspace;
    if (hardware() != HardwareKind::gpu) return;
    bench_.peak_memory = static_cast<Size>(free_at_start_) - static_cast<Size>(engine_->device().free_memory());
  }

  // Three steps: medians of each phase, and of what lies between the operations.
  void record_phases() {
    constexpr int rounds = 3;
    std::vector<std::vector<double>> seconds(operation_kinds + 2);
    timed_.set_mode(TimedEngine::Mode::recording);
    for (int round = 0; round < rounds; ++round) {
      timed_.reset();
      const double whole = one_step();
      double inside = report_.data_seconds;
      for (std::size_t kind = 0; kind < operation_kinds; ++kind) {
        const double spent = timed_.time(static_cast<OperationKind>(kind)).seconds;
        seconds[kind].push_back(spent);
        inside += spent;
      }
      seconds[operation_kinds].push_back(report_.data_seconds);
      seconds[operation_kinds + 1].push_back(std::max(0.0, whole - inside));
    }
    timed_.set_mode(TimedEngine::Mode::idle);
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      Measurement phase = measurement(i < operation_kinds    ? std::string(name_of(static_cast<OperationKind>(i)))
                                      : i == operation_kinds ? "data loading"
                                                             : "between operations");
      phase.time = timing_of(seconds[i]);
      if (phase.time.median > 0) bench_.measurements.push_back(phase);
    }
  }

  Config config_;
  std::unique_ptr<Engine> engine_;
  TimedEngine timed_;
  std::size_t free_at_start_;
  TrainingData data_;
  Trainer trainer_;
  StepReport report_;
  StepBench bench_;
};

}  // namespace

StepBench measure_steps(Config config, const std::string& recipe, double seconds) {
  return Steps(steps_of(std::move(config), recipe)).measure(seconds);
}

double share_of_fall(const std::vector<double>& losses, const std::vector<double>& reference) {
  if (losses.empty() || reference.empty()) return 0;
  const double fall = reference.front() - reference.back();
  return fall >= least_memorized_fall ? (losses.front() - losses.back()) / fall : 0;
}

}  // namespace quaver
