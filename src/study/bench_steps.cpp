#include "study/bench_steps.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <set>

#include "engine/energy.h"
#include "engine/timed_engine.h"
#include "study/bench_decode.h"
#include "study/bench_sweeps.h"
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

Config steps_of(Config config, const std::string& recipe) {
  config.precision = {.recipes = config.precision.recipes, .recipe = recipe};
  config.train.steps = 1000;
  config.train.statistics_every = 0;
  return for_memorizing(std::move(config));
}

struct Phase {
  std::string name;
  double seconds = 0;
  Size bytes = 0;  // that it has to move at least
};

// What a step does in the blocks of a model, and hardly elsewhere.
bool is_of_blocks(const std::string& phase) {
  constexpr std::array kinds{OperationKind::gemm_fprop, OperationKind::gemm_dgrad, OperationKind::gemm_wgrad,
                             OperationKind::attention,  OperationKind::norm,       OperationKind::activation,
                             OperationKind::cast,       OperationKind::heads,      OperationKind::copy};
  return std::ranges::any_of(kinds, [&](OperationKind kind) { return name_of(kind) == phase; });
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
    if (records_all_steps()) timed_.set_mode(TimedEngine::Mode::recording);
    EnergyMeter meter(hardware());
    PowerWatch power(meter);
    const auto start = Clock::now();
    std::vector<double> times;
    while (static_cast<int>(times.size()) < fewest_steps || times.size() % 2 == 0 ||
           (static_cast<int>(times.size()) < most_steps && spent_since(start) < seconds)) {
      times.push_back(timed_step());  // an odd number: the median is a step, whose phases are its whole
    }
    timed_.set_mode(TimedEngine::Mode::idle);
    const double window = spent_since(start);
    const std::optional<double> watts = power.watts();
    Measurement step = measurement("step");
    step.workload = Workload::step;
    step.time = timing_of(times);
    step.flops = trainer_.model().flops_per_token(config_.train.context) * step.units;
    if (watts) step.joules = *watts * window / static_cast<double>(times.size());
    bench_.measurements.push_back(step);
    note_memory();
    add_phases();
    add_decoding(seconds / 2);
    bench_.losses.resize(static_cast<std::size_t>(compared_steps));
    return bench_;
  }

 private:
  static TrainingData repeated(const Config& config) {
    TrainingData data = stand_in_data(config, config.model.vocab);
    if (data.train != nullptr) data.train = std::make_unique<RepeatedBatch>(std::move(data.train));
    if (data.train_images != nullptr) {
      data.train_images = std::make_unique<RepeatedImages>(std::move(data.train_images));
    }
    return data;
  }

  void add_decoding(double seconds) {
    if (data_.train_images != nullptr) return;
    for (const Measurement& m : measure_decoding(trainer_, seconds)) bench_.measurements.push_back(m);
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
    const MemoryUse use = trainer_.memory();
    bench_.memory = {{"weights", use.weights},         {"quantized weights", use.quantized_weights},
                     {"gradients", use.gradients},     {"optimizer", use.optimizer},
                     {"activations", use.activations}, {"scratch", use.scratch},
                     {"workspace", workspace}};
    bench_.peak_memory = use.total() + workspace;
    if (hardware() != HardwareKind::gpu) return;
    bench_.peak_memory = static_cast<Size>(free_at_start_) - static_cast<Size>(engine_->device().free_memory());
  }

  // What a batch has: token ids with their targets, or the pixels of images with their classes.
  Size batch_bytes() const {
    const Size values = data_.train_images != nullptr ? data_.train_images->pixels() : config_.train.context;
    const Size targets = data_.train_images != nullptr ? 1 : config_.train.context;
    return config_.train.batch * (values + targets) * static_cast<Size>(sizeof(float));
  }

  // One step, every operation timed on the device. Memory is planned, so that nothing should be allocated; ranks are
  // one, which sends nothing.
  std::vector<Phase> recorded_step() {
    timed_.reset();
    const std::size_t sent = trainer_.ranks().sent_bytes();
    const double whole = one_step();
    std::vector<Phase> phases;
    for (std::size_t i = 0; i < operation_kinds; ++i) {
      const OperationTime& time = timed_.time(static_cast<OperationKind>(i));
      phases.push_back({std::string(name_of(static_cast<OperationKind>(i))), time.seconds, time.bytes});
    }
    phases.push_back({"data loading", report_.data_seconds, batch_bytes()});
    phases.push_back({"allocation", timed_.allocations().seconds, timed_.allocations().bytes});
    phases.push_back({"communication", report_.communication ? report_.communication->most : 0,
                      static_cast<Size>(trainer_.ranks().sent_bytes() - sent)});
    double inside = 0;
    for (const Phase& phase : phases) inside += phase.seconds;
    phases.push_back({"between operations", std::max(0.0, whole - inside), 0});
    return phases;
  }

  static double whole_of(const std::vector<Phase>& phases) {
    double whole = 0;
    for (const Phase& phase : phases) whole += phase.seconds;
    return whole;
  }

  // On a CPU noting times costs nothing. A GPU does not replay its graphs meanwhile: it records steps of their own.
  bool records_all_steps() const { return hardware() == HardwareKind::cpu; }

  double timed_step() {
    if (!records_all_steps()) return one_step();
    recorded_.push_back(recorded_step());
    return whole_of(recorded_.back());
  }

  void record_steps() {
    constexpr int rounds = 3;
    timed_.set_mode(TimedEngine::Mode::recording);
    for (int round = 0; round < rounds; ++round) recorded_.push_back(recorded_step());
    timed_.set_mode(TimedEngine::Mode::idle);
  }

  // Of the recorded steps the one of median length, so that its phases are its whole.
  void add_phases() {
    if (recorded_.empty()) record_steps();
    std::ranges::sort(recorded_, {}, whole_of);
    const std::vector<Phase>& middle = recorded_[recorded_.size() / 2];
    bench_.recorded_seconds = whole_of(middle);
    Measurement block = measurement("block");
    block.workload = Workload::block;
    for (std::size_t i = 0; i < middle.size(); ++i) {
      std::vector<double> seconds;
      for (const std::vector<Phase>& step : recorded_) seconds.push_back(step[i].seconds);
      Measurement phase = measurement(middle[i].name);
      phase.time = timing_of(seconds);
      phase.time.median = middle[i].seconds;
      phase.bytes = static_cast<double>(middle[i].bytes);
      if (phase.part == name_of(OperationKind::attention)) phase.flops = attention_flops();
      if (is_of_blocks(phase.part)) add_to(block, phase);
      const bool stated = phase.part == "allocation" || phase.part == "communication";  // also where there is none
      if (phase.time.median > 0 || stated) bench_.measurements.push_back(phase);
    }
    finish_block(block);
  }

  static void add_to(Measurement& sum, const Measurement& part) {
    const double square =
        std::pow(sum.time.median * sum.time.noise, 2) + std::pow(part.time.median * part.time.noise, 2);
    sum.time.median += part.time.median;
    sum.time.p95 += part.time.p95;
    sum.time.noise = sum.time.median > 0 ? std::sqrt(square) / sum.time.median : 0;
    sum.time.rounds = part.time.rounds;
    sum.bytes += part.bytes;
  }

  // What is not in the products of the layers.
  double attention_flops() const {
    double layers = 0;  // FLOPs of a token
    for (const LayerShape& layer : trainer_.model().layers()) {
      layers += 6 * static_cast<double>(layer.pixels * layer.in) * static_cast<double>(layer.out);
    }
    const auto tokens = static_cast<double>(config_.train.batch * config_.train.context);
    return std::max(0.0, trainer_.model().flops_per_token(config_.train.context) - layers) * tokens;
  }

  // The mean of all blocks: what the recorded step did in them, divided.
  void finish_block(Measurement block) {
    const std::vector<LayerShape>& layers = trainer_.model().layers();
    std::set<Size> numbers;
    double outside = 0;  // FLOPs of a token or image
    for (const LayerShape& layer : layers) {
      if (layer.block >= 0) {
        numbers.insert(layer.block);
      } else if (layer.name == "head") {  // the phases of a stem are not told from those of blocks
        outside += 6 * static_cast<double>(layer.pixels * layer.in) * static_cast<double>(layer.out);
      }
    }
    if (numbers.empty()) return;
    const auto count = static_cast<double>(numbers.size());
    block.flops = (trainer_.model().flops_per_token(config_.train.context) - outside) * block.units / count;
    block.time.median /= count;
    block.time.p95 /= count;
    block.bytes /= count;
    bench_.measurements.push_back(block);
  }

  Config config_;
  std::unique_ptr<Engine> engine_;
  TimedEngine timed_;
  std::size_t free_at_start_;
  TrainingData data_;
  Trainer trainer_;
  StepReport report_;
  std::vector<std::vector<Phase>> recorded_;
  StepBench bench_;
};

}  // namespace

StepBench measure_steps(Config config, const std::string& recipe, double seconds) {
  return Steps(steps_of(std::move(config), recipe)).measure(seconds);
}

StepBench middle_of(const std::vector<StepBench>& sweeps) {
  const auto step_seconds = [](const StepBench& sweep) { return sweep.measurements.front().time.median; };
  std::vector<StepBench> sorted = sweeps;
  std::ranges::sort(sorted, {}, step_seconds);
  StepBench middle = sorted[sorted.size() / 2];
  for (Measurement& m : middle.measurements) {
    std::vector<RunTiming> times;
    for (const StepBench& sweep : sweeps) {
      const auto same = std::ranges::find(sweep.measurements, key_of(m), key_of);
      if (same != sweep.measurements.end() && same->time.median > 0) times.push_back(same->time);
    }
    if (times.size() < 2) continue;  // a phase that takes no time, in some sweeps
    const double median = m.time.median;
    m.time = timing_of_sweeps(times);
    m.time.median = median;
  }
  return middle;
}

std::vector<RunTiming> step_times(const std::vector<StepBench>& sweeps) {
  std::vector<RunTiming> times;
  times.reserve(sweeps.size());
  for (const StepBench& sweep : sweeps) times.push_back(sweep.measurements.front().time);
  return times;
}

StepSpeed speed_of(const std::vector<RunTiming>& recipe, const std::vector<RunTiming>& bf16) {
  const RunTiming ours = timing_of_sweeps(recipe);
  const RunTiming reference = timing_of_sweeps(bf16);
  std::vector<double> speeds;
  for (std::size_t i = 0; i < std::min(recipe.size(), bf16.size()); ++i) {
    speeds.push_back(bf16[i].median / recipe[i].median);
  }
  const bool paired = speeds.size() > 1;
  std::ranges::sort(speeds);
  return {paired ? speeds[speeds.size() / 2] : reference.median / ours.median,
          paired ? noise_of_sweeps(speeds) : std::hypot(ours.noise, reference.noise)};
}

double share_of_fall(const std::vector<double>& losses, const std::vector<double>& reference) {
  if (losses.empty() || reference.empty()) return 0;
  const double fall = reference.front() - reference.back();
  return fall >= least_memorized_fall ? (losses.front() - losses.back()) / fall : 0;
}

}  // namespace quaver
