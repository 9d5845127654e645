#include "study/estimate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <omp.h>
#include <unistd.h>

#include "engine/cuda_module.h"
#include "engine/nvml.h"
#include "models/factory.h"
#include "quaver/error.h"
#include "study/estimate_bench.h"
#include "study/estimate_scaling.h"
#include "study/estimate_time.h"
#include "train/engine_choice.h"
#include "train/faster_layers.h"
#include "train/resolved_config.h"
#include "train/training_data.h"

namespace quaver {

namespace {

constexpr Size mib = Size{1} << 20;

// CUDA's context with cuBLASLt's and cuDNN's kernels, for a GPU that is not here to be asked.
constexpr Size assumed_context = 600 * mib;
// Kernels loaded as they are first called, CUDA graphs, tables of sites: what a run takes beside the plan.
constexpr Size assumed_on_the_way = 150 * mib;

// Where the run would be trained.
struct Target {
  Hardware hardware;
  std::string device;
  std::unique_ptr<Engine> engine;   // null where the device is not here
  const GpuModel* model = nullptr;  // of the table, where it was named
  Size overhead = 0;
  Origin overhead_origin = Origin::measured;
  std::optional<Size> available;
  std::string available_how;

  bool is_gpu() const { return hardware.kind == HardwareKind::gpu; }
  Size needed(const MemoryPlan& plan) const {
    return plan.engine_total() + overhead + (is_gpu() ? 0 : plan.checkpoint);
  }
};

// That of the data, where it can be opened; without data a vocabulary is assumed and said so.
DataShape data_shape_of(const Config& config, std::vector<std::string>& notes) {
  if (config.data.kind == DataKind::dataset && config.data.path.empty()) {
    if (config.model.vocab > 0) return {.vocab = config.model.vocab};
    constexpr Size bytes = 257;
    notes.push_back("no data.path and no model.vocab: a vocabulary of bytes is assumed");
    return {.vocab = bytes};
  }
  const Size context = config.train.context > 0 ? config.train.context : config.model.context;
  return open_training_data(config.data, config.train.seed, context).shape();
}

bool wants_gpu(const Config& config, const EstimateOptions& options) {
  return config.train.device == DeviceChoice::cuda || !options.gpu.empty() || options.gpu_memory.has_value() ||
         options.cluster.has_value();
}

// What the process holds once the mathematics library has its buffers, which it takes at the first product.
Size program_with_libraries(Engine& engine) {
  constexpr Size extent = 512;
  View out{nullptr, Format::f32, extent, extent};
  {
    const auto memory = engine.device().allocate(static_cast<std::size_t>(3 * out.bytes()));
    const auto one = engine.device().allocate(sizeof(float));
    out.data = memory.get();
    const auto operand = [&](Size index) {
      return Operand{{.spec = {},
                      .rows = extent,
                      .cols = extent,
                      .codes = memory.get() + index * out.bytes(),
                      .tensor_scale = reinterpret_cast<float*>(one.get())}};
    };
    engine.run(Gemm{.a = operand(1), .b = operand(2), .out = out});
  }
  return process_memory().now;
}

// What a run keeps beside its tensors: the recorder and its SQLite, the loader's batches, the text of a checkpoint's
// state. Seen on runs of the presets tiny and small.
constexpr Size beside_tensors = Size{4} << 20;

Target this_cpu(const Config& config) {
  Target target;
  target.hardware.threads = config.train.threads > 0 ? config.train.threads : omp_get_num_procs();
  target.engine = make_cpu_engine(config.train.threads);
  target.device = target.engine->name();
  target.overhead = program_with_libraries(*target.engine) + beside_tensors;
  target.available = static_cast<Size>(target.engine->device().free_memory());
  target.available_how = "available on this machine";
  return target;
}

// The GPU of this machine, with an engine on it. Throws Error where there is none that can be used.
Target present_gpu(const Config& config) {
  const CudaReport cuda = inspect_cuda();
  if (cuda.machine.devices.empty()) throw Error(cuda.problem, cuda.remedy);
  const auto before = GpuMeter(cuda.machine.devices.front().pci_bus_id).card();
  Target target;
  target.engine = make_cuda_engine(gpu_options(config.precision));
  target.hardware = target.engine->device().hardware();
  target.device = target.engine->name();
  const auto after = static_cast<Size>(target.engine->device().free_memory());
  // The engine's own workspace is in the plan.
  const auto workspace = static_cast<Size>(target.engine->device().workspace_bytes());
  const Size free = before ? static_cast<Size>(before->memory_free) : after + workspace + assumed_context;
  target.overhead = std::max<Size>(0, free - after - workspace) + assumed_on_the_way;
  target.overhead_origin = before ? Origin::measured : Origin::assumed;
  target.available = free;
  target.available_how = "free on this GPU";
  return target;
}

Target absent_gpu(const EstimateOptions& options) {
  Target target;
  constexpr const char* usual = "h100";
  target.model = &find_gpu_model(options.gpu.empty() ? usual : options.gpu);
  target.hardware = {.kind = HardwareKind::gpu, .architecture = target.model->architecture};
  target.device = options.gpu.empty() ? fmt::format("a GPU like {}, not here", target.model->name)
                                      : fmt::format("{}, not here", target.model->name);
  target.overhead = assumed_context + assumed_on_the_way;
  target.overhead_origin = Origin::assumed;
  target.available = static_cast<Size>(target.model->memory_gib * 0x1p30);
  target.available_how = fmt::format("the whole memory of {}", target.model->name);
  return target;
}

Target choose_target(const Config& config, const EstimateOptions& options, std::vector<std::string>& notes) {
  const bool named = !options.gpu.empty();
  const bool maybe_here = config.train.device != DeviceChoice::cpu && !named && cuda_may_be_there();
  if (maybe_here) {
    try {
      return present_gpu(config);
    } catch (const Error& error) {
      notes.push_back(fmt::format("{}: {}", error.what(), error.remedy()));
    }
  }
  if (!wants_gpu(config, options)) return this_cpu(config);
  if (!named && !maybe_here) notes.push_back("no GPU can be used here: `quaver doctor` says why");
  return absent_gpu(options);
}

Target make_target(const Config& config, const EstimateOptions& options, std::vector<std::string>& notes) {
  Target target = choose_target(config, options, notes);
  if (options.gpu_memory) {
    target.available = options.gpu_memory;
    target.available_how = "as asked";
  }
  if (config.train.memory_limit_mb > 0) {
    const Size limit = config.train.memory_limit_mb * mib;
    if (!target.available || limit < *target.available) {
      target.available = limit;
      target.available_how = "train.memory_limit_mb";
    }
  }
  return target;
}

// Changes in the order of what they cost; each is tried as it stands.
class Fitting {
 public:
  Fitting(const Config& config, const Target& target) : config_(config), target_(target) {}

  std::optional<FittingChange> mildest() {
    const Config as_is = config_;
    for (const bool small : {false, true}) {
      Config config = as_is;
      if (small && !set_small(config)) continue;
      if (small &&
          fits(config, "nothing but time: operands are requantized, and hidden matrices recomputed, in backward"))
        return found_;
      if (smaller_batch(
              config, small ? "time: smaller matrix products, some of them recomputed"
                            : "time: smaller matrix products; the sum of the gradients is the same but for rounding")) {
        return found_;
      }
    }
    Config config = as_is;
    set_small(config);
    set_batch(config, 1);
    for (const MomentFormat moments : {MomentFormat::bf16, MomentFormat::fp8}) {
      if (as_is.optim.moments >= moments) continue;
      set(config.optim.moments, moments, moments == MomentFormat::bf16 ? "optim.moments=bf16" : "optim.moments=fp8",
          "optim.moments=");
      if (largest_batch(config, "moments of the optimizer rounded stochastically to fewer bits")) return found_;
    }
    if (as_is.optim.master == MasterWeights::f32) {
      set(config.optim.master, MasterWeights::bf16_stochastic, "optim.master=bf16-stochastic", "optim.master=");
      if (largest_batch(config, "weights kept in BF16 and rounded stochastically, beside rounded moments"))
        return found_;
    }
    return std::nullopt;
  }

 private:
  template <class Value>
  void set(Value& place, Value value, const std::string& setting, const std::string& key) {
    place = value;
    std::erase_if(settings_, [&](const std::string& old) { return old.starts_with(key); });
    settings_.push_back(setting);
  }

  bool set_small(Config& config) {
    if (config.train.memory == Memory::small) return false;
    set(config.train.memory, Memory::small, "train.memory=small", "train.memory=");
    return true;
  }

  // Keeps the sequences of a step, which the batch must divide.
  void set_batch(Config& config, Size batch) {
    const Size sequences = config_.train.batch * config_.train.accumulation;
    set(config.train.batch, batch, fmt::format("train.batch={}", batch), "train.batch=");
    set(config.train.accumulation, sequences / batch, fmt::format("train.accumulation={}", sequences / batch),
        "train.accumulation=");
  }

  bool fits(const Config& config, const std::string& cost) {
    const MemoryPlan plan = plan_memory(config, target_.hardware);
    const Size needed = target_.needed(plan);
    if (needed > *target_.available) return false;
    found_ = FittingChange{settings_, cost, plan, needed};
    leave_out_small(config);
    return true;
  }

  // Where the batch alone has made it fit.
  void leave_out_small(Config config) {
    if (config_.train.memory == Memory::small || config.train.memory != Memory::small) return;
    config.train.memory = config_.train.memory;
    const MemoryPlan plan = plan_memory(config, target_.hardware);
    if (target_.needed(plan) > *target_.available) return;
    found_->plan = plan;
    found_->needed = target_.needed(plan);
    std::erase(found_->settings, "train.memory=small");
  }

  bool smaller_batch(Config config, const std::string& cost) {
    const std::vector<std::string> before = settings_;
    const Size sequences = config_.train.batch * config_.train.accumulation;
    for (Size batch = config_.train.batch - 1; batch > 0; --batch) {
      if (sequences % batch != 0) continue;
      set_batch(config, batch);
      if (fits(config, cost)) return true;
    }
    settings_ = before;
    return false;
  }

  // The batch as it was where that fits, else the largest that does.
  bool largest_batch(Config config, const std::string& cost) {
    const std::vector<std::string> before = settings_;
    set_batch(config, config_.train.batch);
    std::erase_if(settings_, [](const std::string& setting) {
      return setting.starts_with("train.batch=") || setting.starts_with("train.accumulation=");
    });
    if (fits(config, cost)) return true;
    settings_ = before;
    return smaller_batch(config, cost);
  }

  const Config& config_;
  const Target& target_;
  std::vector<std::string> settings_;
  std::optional<FittingChange> found_;
};

double low_precision_share_of(const Config& config) {
  const std::vector<LayerShape> layers = make_model(config.model)->layers();
  return low_precision_share(flops_by_format(make_plan(config.precision, layers), layers));
}

// What is measured must fit where its steps are to be: the whole model, or one of two layers.
bool probe_fits(const Estimate& estimate, const Target& target) {
  Config probe = estimate.config;
  if (!is_measured_whole(probe, target.hardware.kind)) {
    probe.model.layers = std::min<Size>(2, probe.model.layers);
    probe.precision.layers.clear();
    probe.optim.learning_rate_of.clear();
    probe.optim.weight_decay_of.clear();
    probe.train.batch = probe_batch(estimate.config, target.hardware.kind);
  }
  return target.needed(plan_memory(probe, target.hardware)) <= static_cast<Size>(target.engine->device().free_memory());
}

// Empty without a benchmark, and where it does not tell: a note says why.
std::optional<TimeEstimate> benched_time(Estimate& estimate, const Target& target, const std::string& asked) {
  const std::string path = asked.empty() ? estimate.config.precision.only_where_faster : asked;
  if (path.empty()) return std::nullopt;
  try {
    const Bench bench = read_benchmark(path);
    const bool of_cpu = bench.machine.engine.starts_with("cpu");
    const std::string difference = target.engine != nullptr ? difference_of_machine(bench, *target.engine)
                                   : of_cpu                 ? "it is of " + bench.machine.engine
                                                            : "";
    const bool can_be_measured = target.engine != nullptr && is_measured_whole(estimate.config, target.hardware.kind) &&
                                 probe_fits(estimate, target);
    if (difference.empty()) {
      return time_from_bench(estimate.config, bench, can_be_measured ? StepScaling::refused : StepScaling::allowed);
    }
    throw Error("the benchmark is of another machine: " + difference,
                "measure this one, or name the GPU that it is of with --gpu");
  } catch (const Error& error) {
    estimate.notes.push_back(fmt::format("the time is not from {}: {}; {}", path, error.what(), error.remedy()));
    return std::nullopt;
  }
}

void measure_or_assume(Estimate& estimate, const Target& target) {
  if (target.engine == nullptr) {
    estimate.time = assume_time(estimate, *target.model);
  } else if (!probe_fits(estimate, target)) {
    estimate.time_missing = "not even a model that could be measured fits here";
  } else {
    estimate.time = measure_time(estimate.config, *target.engine);
  }
}

void add_time(Estimate& estimate, const Target& target, const EstimateOptions& options) {
  if (options.timing == Timing::leave_out) {
    estimate.time_missing = "not asked for";
  } else if (options.tokens_per_second > 0) {
    estimate.time =
        TimeEstimate{.seconds_per_step = static_cast<double>(estimate.tokens_per_step) / options.tokens_per_second,
                     .origin = Origin::given,
                     .how = "the tokens per second that were given"};
  } else {
    estimate.time = benched_time(estimate, target, options.bench);
    if (!estimate.time) measure_or_assume(estimate, target);
  }
}

}  // namespace

double Estimate::total_flops() const {
  return flops_per_token * static_cast<double>(tokens_per_step) * static_cast<double>(config.train.steps);
}

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    const bool now = line.starts_with("VmRSS:");
    if (!now && !line.starts_with("VmHWM:")) continue;
    (now ? memory.now : memory.peak) = std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return memory;
}

Estimate estimate(const Config& config, const EstimateOptions& options) {
  const Size program = process_memory().now;
  Estimate result;
  result.config = resolve_shape(config, data_shape_of(config, result.notes));
  const Target target = make_target(result.config, options, result.notes);
  result.config = resolve_layer_speeds(std::move(result.config), target.engine.get());
  result.device = target.device;
  result.kind = target.hardware.kind;
  result.plan = plan_memory(result.config, target.hardware);
  result.overhead = target.overhead;
  result.overhead_origin = target.overhead_origin;
  result.needed = target.needed(result.plan);
  result.available = target.available;
  result.available_how = target.available_how;
  result.host_needed = target.is_gpu() ? program + result.plan.checkpoint : result.needed;
  if (!result.fits()) result.change = Fitting(result.config, target).mildest();
  const TrainConfig& train = result.config.train;
  const auto model = make_model(result.config.model);
  result.parameters = model->parameters().count();
  result.tokens_per_step = train.accumulation * train.batch * train.context;
  result.flops_per_token = model->flops_per_token(train.context);
  result.low_precision_share = low_precision_share_of(result.config);
  add_time(result, target, options);
  if (options.cluster) result.scaling = estimate_scaling(result, target.hardware, options);
  return result;
}

Size parse_bytes(std::string_view text) {
  const auto fail = [&]() -> Size {
    throw Error(fmt::format("\"{}\" is no amount of memory", text), "write for example 80GiB, 24GB or 40960MiB");
  };
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{}) return fail();
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::pair<std::string_view, double> units[] = {
      {"", 1},       {"B", 1},      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"K", 0x1p10},
      {"M", 0x1p20}, {"G", 0x1p30}, {"T", 0x1p40},   {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
  const auto* found = std::ranges::find(units, unit, &std::pair<std::string_view, double>::first);
  if (found == std::end(units)) return fail();
  const double bytes = number * found->second;
  if (!(bytes >= 1) || bytes > 0x1p60) return fail();
  return static_cast<Size>(std::llround(bytes));
}

const std::vector<GpuModel>& gpu_models() {
  static const std::vector<GpuModel> all = {
      {"a100-40gb", 80, 40, 312, 0},      {"a100-80gb", 80, 80, 312, 0},  {"l4", 89, 22.5, 121, 242},
      {"l40s", 89, 45, 362, 733},         {"rtx-4090", 89, 24, 165, 330}, {"h100", 90, 79.6, 989, 1979},
      {"h100-pcie", 90, 79.6, 756, 1513}, {"h200", 90, 139.8, 989, 1979}, {"b200", 100, 179, 2250, 4500}};
  return all;
}

const GpuModel& find_gpu_model(std::string_view name) {
  std::string known;
  for (const GpuModel& model : gpu_models()) {
    if (model.name == name) return model;
    known += (known.empty() ? "" : ", ") + std::string(model.name);
  }
  throw Error(fmt::format("the table has no GPU \"{}\"", name),
              fmt::format("choose one of {}, or say how much memory it has with --gpu-memory", known));
}

}  // namespace quaver
