// How the result of a benchmark looks.
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/bench_step.h"
#include "cli/progress.h"
#include "train/run_folder.h"

namespace quaver {

namespace {

std::string bytes(Size count) { return format_bytes(static_cast<std::uint64_t>(std::max<Size>(0, count))); }

std::string memory_line(const StepBenchmark& benchmark) {
  const MemoryUse& use = benchmark.memory;
  return fmt::format(
      "{}: weights {}, quantized weights {}, gradients {}, optimizer {}, activations {}, scratch {}, workspace {}",
      bytes(benchmark.peak_memory()), bytes(use.weights), bytes(use.quantized_weights), bytes(use.gradients),
      bytes(use.optimizer), bytes(use.activations), bytes(use.scratch), bytes(benchmark.workspace));
}

// Times of the watched step, for one of its micro-steps: the optimizer's are spread over them.
std::string kernel_table(const StepBenchmark& benchmark) {
  const double per_micro = 1e3 / static_cast<double>(benchmark.config.train.accumulation);
  const double total = benchmark.watched_seconds;
  std::string text = fmt::format("{:<28}{:>10}{:>8}{:>8}\n", "time per micro-step", "ms", "%", "calls");
  const auto line = [&](std::string_view name, double seconds, const std::string& calls) {
    const double percent = total > 0 ? 100 * seconds / total : 0;
    text += fmt::format("{:<28}{:>10.3f}{:>8.1f}{:>8}\n", name, seconds * per_micro, percent, calls);
  };
  double inside = 0;
  for (std::size_t i = 0; i < operation_kinds; ++i) {
    const OperationTime& time = benchmark.kernels[i];
    inside += time.seconds;
    if (time.calls == 0) continue;
    const double calls = static_cast<double>(time.calls) / static_cast<double>(benchmark.config.train.accumulation);
    line(name_of(static_cast<OperationKind>(i)), time.seconds, fmt::format("{:.0f}", calls));
  }
  line("between operations", std::max(0.0, total - inside), "");
  line("one operation at a time", total, "");
  text += fmt::format("{:<28}{:>10.3f}\n", "as trained", benchmark.median_seconds() * per_micro);
  return text;
}

std::string scales_line(const CalibratedScales& scales) {
  return fmt::format("{:<14}calibrated in this run: {} batches over {} steps in bf16\n", "static scales",
                     scales.batches, scales.steps);
}

std::string zero_codes_line(const LearningCheck& check) {
  std::string text;
  for (const Role role : {Role::x, Role::w, Role::dy}) {
    const ZeroCodes& codes = check.zero_codes[static_cast<std::size_t>(role)];
    if (codes.elements == 0) continue;
    text += fmt::format("{}{} {:.2f} % ({:.2f} % underflowed)", text.empty() ? "" : ", ", name_of(role),
                        100 * codes.share(), 100 * codes.underflow_share());
  }
  return fmt::format("{:<14}{}\n", "zero codes", text.empty() ? "nothing is cast to 8 bits or fewer" : text);
}

std::string steps_of(const LearningCheck& check) {
  return fmt::format("{} steps{}", check.losses.size(),
                     check.data == LearningData::one_batch ? " on one micro-batch" : "");
}

std::string learning_line(const LearningCheck& check) {
  return fmt::format("{:<14}{:.4f} → {:.4f} in {}; bf16 {:.4f} → {:.4f}: {:.3f} of its fall\n", "loss",
                     check.losses.front(), check.losses.back(), steps_of(check), check.reference.front(),
                     check.reference.back(), check.share());
}

// By role; null where nothing of the role is in low precision.
nlohmann::ordered_json shares_by_role(const LearningCheck& check, double (ZeroCodes::*share)() const) {
  nlohmann::ordered_json shares = nlohmann::ordered_json::object();
  for (const Role role : {Role::x, Role::w, Role::dy}) {
    const ZeroCodes& codes = check.zero_codes[static_cast<std::size_t>(role)];
    auto& entry = shares[std::string(name_of(role))];
    if (codes.elements > 0) entry = (codes.*share)();
  }
  return shares;
}

nlohmann::ordered_json json_of(const std::optional<CalibratedScales>& scales) {
  if (!scales) return nullptr;
  return {{"batches", scales->batches}, {"steps", scales->steps}};
}

}  // namespace

double StepBenchmark::median_seconds() const {
  if (step_seconds.empty()) return 0;
  std::vector<double> sorted = step_seconds;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

std::string benchmark_table(const StepBenchmark& benchmark) {
  const TrainConfig& train = benchmark.config.train;
  const auto [fastest, slowest] = std::minmax_element(benchmark.step_seconds.begin(), benchmark.step_seconds.end());
  const double median = benchmark.median_seconds();
  std::string text = fmt::format("{} · {} parameters · {} · {}\n", model_name(benchmark.config),
                                 format_count(static_cast<double>(benchmark.parameters)),
                                 benchmark.config.precision.recipe, benchmark.engine);
  if (benchmark.learning.verdict() != LearningVerdict::learns)
    text += "NOT VALID: these are not measurements of training\n";
  text += fmt::format("{:<14}{} = {} micro-steps × {} sequences × {}\n", "tokens/step", benchmark.tokens_per_step,
                      train.accumulation, train.batch, train.context);
  text += fmt::format("{:<14}{:.0f} ({:.0f} – {:.0f}, {} step{})\n", "tokens/s", benchmark.tokens_per_second(median),
                      benchmark.tokens_per_second(*slowest), benchmark.tokens_per_second(*fastest),
                      benchmark.step_seconds.size(), benchmark.step_seconds.size() == 1 ? "" : "s");
  text += fmt::format("{:<14}{:.1f}\n", "ms/step", median * 1e3);
  text += fmt::format("{:<14}{:.4g}, {:.1f} % of the matrix products' operations in 8 bits or fewer\n", "TFLOP/s",
                      benchmark.tflops(), 100 * benchmark.low_precision_share);
  text += fmt::format("{:<14}{}\n", "peak memory", memory_line(benchmark));
  if (benchmark.calibrated) text += scales_line(*benchmark.calibrated);
  text += zero_codes_line(benchmark.learning);
  text += learning_line(benchmark.learning);
  if (benchmark.skipped > 0) {
    text += fmt::format("{} steps had gradients that were not finite: the measurements are not those of training\n",
                        benchmark.skipped);
  }
  return text + "\n" + kernel_table(benchmark);
}

std::string benchmark_json(const StepBenchmark& benchmark) {
  const Config& config = benchmark.config;
  const auto [fastest, slowest] = std::minmax_element(benchmark.step_seconds.begin(), benchmark.step_seconds.end());
  const double accumulation = static_cast<double>(config.train.accumulation);
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < operation_kinds; ++i) {
    const OperationTime& time = benchmark.kernels[i];
    kernels.push_back({{"kind", name_of(static_cast<OperationKind>(i))},
                       {"seconds", time.seconds / accumulation},
                       {"share", time.seconds / benchmark.watched_seconds},
                       {"calls", static_cast<double>(time.calls) / accumulation}});
  }
  const MemoryUse& use = benchmark.memory;
  const nlohmann::ordered_json object{
      {"quaver", QUAVER_VERSION},
      {"engine", benchmark.engine},
      {"wide_format", std::string(info(benchmark.high_precision).name)},
      {"preset", config.preset},
      {"recipe", config.precision.recipe},
      {"parameters", benchmark.parameters},
      {"batch", config.train.batch},
      {"context", config.train.context},
      {"accumulation", config.train.accumulation},
      {"tokens_per_step", benchmark.tokens_per_step},
      {"setup_seconds", benchmark.setup_seconds},
      {"step_seconds", benchmark.step_seconds},
      {"losses", benchmark.losses},
      {"skipped", benchmark.skipped},
      {"valid", benchmark.learning.verdict() == LearningVerdict::learns},
      {"learning",
       {{"steps", steps_of(benchmark.learning)},
        {"losses", benchmark.learning.losses},
        {"bf16_losses", benchmark.learning.reference},
        {"fall", benchmark.learning.fall()},
        {"bf16_fall", benchmark.learning.reference_fall()},
        {"share_of_bf16_fall", benchmark.learning.share()}}},
      {"zero_codes", shares_by_role(benchmark.learning, &ZeroCodes::share)},
      {"underflow", shares_by_role(benchmark.learning, &ZeroCodes::underflow_share)},
      {"calibrated", json_of(benchmark.calibrated)},
      {"reference",
       {{"config", benchmark.learning.timed_reference.config}, {"losses", benchmark.learning.timed_reference.losses}}},
      {"tokens_per_second",
       {{"median", benchmark.tokens_per_second(benchmark.median_seconds())},
        {"min", benchmark.tokens_per_second(*slowest)},
        {"max", benchmark.tokens_per_second(*fastest)}}},
      {"ms_per_step", benchmark.median_seconds() * 1e3},
      {"tflops", benchmark.tflops()},
      {"narrow_share", benchmark.low_precision_share},
      {"memory_bytes",
       {{"peak", benchmark.peak_memory()},
        {"measured", benchmark.device_memory.has_value()},
        {"weights", use.weights},
        {"quantized_weights", use.quantized_weights},
        {"gradients", use.gradients},
        {"optimizer", use.optimizer},
        {"activations", use.activations},
        {"scratch", use.scratch},
        {"workspace", benchmark.workspace}}},
      {"micro_step",
       {{"seconds", benchmark.median_seconds() / accumulation},
        {"watched_seconds", benchmark.watched_seconds / accumulation},
        {"kernels", kernels}}}};
  return object.dump(1);
}

}  // namespace quaver
