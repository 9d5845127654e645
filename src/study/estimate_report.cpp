// An estimate as text for people and as JSON for programs.
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "study/estimate.h"
#include "train/run_folder.h"

namespace quaver {

namespace {

std::string bytes_text(Size bytes) {
  const auto value = static_cast<double>(bytes);
  if (std::abs(value) >= 0x1p30) return fmt::format("{:.2f} GiB", value / 0x1p30);
  return fmt::format("{:.1f} MiB", value / 0x1p20);
}

std::string count_text(double value) {
  if (value >= 1e9) return fmt::format("{:.2f}B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.0f}", value);
}

std::string duration_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.1f} days", seconds / 86400);
}

const char* origin_name(Origin origin) {
  if (origin == Origin::given) return "given";
  return origin == Origin::measured ? "measured" : "assumed";
}

struct Line {
  const char* key;   // in JSON
  const char* name;  // in text
  Size bytes;
};

std::vector<Line> memory_lines(const Estimate& estimate) {
  const MemoryPlan& plan = estimate.plan;
  const bool gpu = estimate.kind == HardwareKind::gpu;
  std::vector<Line> lines = {{"weights", "weights", plan.weights},
                             {"quantized_weights", "quantized weights", plan.quantized_weights},
                             {"gradients", "gradients", plan.gradients},
                             {"optimizer", "optimizer", plan.optimizer},
                             {"activations", "activations", plan.activations},
                             {"scratch", "scratch", plan.scratch},
                             {"workspace", "engine workspace", plan.workspace},
                             {"passing", "transient", plan.transient}};
  if (!gpu) lines.push_back({"checkpoint", "checkpoint copy", plan.checkpoint});
  lines.push_back({"overhead", gpu ? "CUDA and libraries" : "program, libraries", estimate.overhead});
  return lines;
}

std::string change_text(const FittingChange& change) {
  std::string flags;
  for (const std::string& setting : change.settings) flags += " --" + setting;
  return fmt::format("  fits with{}: {}\n    cost: {}\n    weights and optimizer {}, activations {}, workspace {}\n",
                     flags, bytes_text(change.needed), change.cost, bytes_text(change.plan.fixed()),
                     bytes_text(change.plan.arena()), bytes_text(change.plan.workspace));
}

std::string verdict_text(const Estimate& estimate) {
  if (!estimate.available) return "  what is free is not known\n";
  const Size spare = *estimate.available - estimate.needed;
  std::string text =
      fmt::format("  {:<22}{:>12}   {}\n", "available", bytes_text(*estimate.available), estimate.available_how);
  if (estimate.fits()) return text + fmt::format("  it fits, and {} are left\n", bytes_text(spare));
  text += fmt::format("  it does not fit: {} too much\n", bytes_text(-spare));
  if (estimate.change) return text + change_text(*estimate.change);
  return text + fmt::format(
                    "  no setting makes it fit: with one sequence per micro-batch, FP8 moments and BF16 weights it is "
                    "still too large. Choose a smaller model\n");
}

std::string time_text(const Estimate& estimate) {
  if (!estimate.time) return fmt::format("\ntime: {}\n", estimate.time_missing);
  const TimeEstimate& time = *estimate.time;
  const double tokens = static_cast<double>(estimate.tokens_per_step) / time.seconds_per_step;
  std::string text = fmt::format("\ntime, {}\n", origin_name(time.origin));
  text += fmt::format("  {:<22}{:>12}   {} {}/s, {:.3g} TFLOP/s\n", "per step", duration_text(time.seconds_per_step),
                      count_text(tokens), unit_of(estimate.config.data.kind), tokens * estimate.flops_per_token / 1e12);
  const auto steps = static_cast<double>(estimate.config.train.steps);
  text += fmt::format("  {:<22}{:>12}   without validation and checkpoints\n", "the run",
                      duration_text(time.seconds_per_step * steps));
  return text + fmt::format("  from {}\n", time.how);
}

nlohmann::ordered_json memory_json(const Estimate& estimate) {
  nlohmann::ordered_json parts;
  for (const Line& line : memory_lines(estimate)) parts[line.key] = line.bytes;
  nlohmann::ordered_json memory{{"parts", parts},
                                {"needed", estimate.needed},
                                {"overhead_origin", origin_name(estimate.overhead_origin)},
                                {"available", nullptr},
                                {"available_how", estimate.available_how},
                                {"host_needed", estimate.host_needed},
                                {"fits", estimate.fits()},
                                {"change", nullptr}};
  if (estimate.available) memory["available"] = *estimate.available;
  if (estimate.change) {
    memory["change"] = {
        {"settings", estimate.change->settings}, {"cost", estimate.change->cost}, {"needed", estimate.change->needed}};
  }
  return memory;
}

nlohmann::ordered_json link_json(const Link& link) {
  return {{"name", link.name},
          {"bytes_per_second", link.bytes_per_second},
          {"per", link.lane == Lane::of_each_gpu ? "gpu" : "machine"},
          {"latency_seconds", link.hop_seconds}};
}

nlohmann::ordered_json stage_json(const StageEstimate& stage, const ScalingEstimate& estimate) {
  const ScalingInput& input = estimate.input;
  const StageScaling& scaling = stage.scaling;
  nlohmann::ordered_json json{
      {"shard", name_of(scaling.stage)},
      {"memory_bytes", stage.needed},
      {"fits", !estimate.available || stage.needed <= *estimate.available},
      {"sent_bytes", {{"gradients", scaling.gradients_sent}, {"weights", scaling.weights_sent}}},
      {"exchange_seconds", scaling.whole.apart}};
  if (!input.rank_seconds) return json;
  const auto add = [&](const char* key, double exposed) {
    const double seconds = *input.rank_seconds + exposed;
    json[key] = {{"seconds_per_step", seconds},
                 {"tokens_per_second", static_cast<double>(input.tokens_per_step) / seconds},
                 {"efficiency", efficiency(*input.rank_seconds, exposed)}};
  };
  add("without_overlap", scaling.whole.apart);
  add("with_overlap", scaling.whole.overlapped);
  add("split_without_overlap", scaling.split.apart);
  add("split_with_overlap", scaling.split.overlapped);
  return json;
}

nlohmann::ordered_json scaling_json(const ScalingEstimate& estimate) {
  const ScalingInput& input = estimate.input;
  const Cluster& cluster = input.cluster;
  nlohmann::ordered_json json{{"gpus", cluster.gpus},
                              {"nodes", cluster.machines},
                              {"links", nlohmann::ordered_json::array()},
                              {"micro_batches_per_gpu", input.micro_steps},
                              {"exchanges_per_step", input.rounds},
                              {"gradient_bytes", input.gradient_bytes},
                              {"overlap", input.overlap},
                              {"seconds_alone", nullptr},
                              {"stages", nlohmann::ordered_json::array()},
                              {"advised", nullptr},
                              {"why", estimate.advice.why},
                              {"assumptions", assumptions(estimate)}};
  if (cluster.per_machine() > 1) json["links"].push_back(link_json(cluster.inside));
  if (cluster.machines > 1) json["links"].push_back(link_json(cluster.between));
  if (input.rank_seconds) json["seconds_alone"] = *input.rank_seconds;
  if (estimate.advice.fits) json["advised"] = name_of(estimate.advice.stage);
  for (const StageEstimate& stage : estimate.stages) json["stages"].push_back(stage_json(stage, estimate));
  return json;
}

}  // namespace

std::string estimate_text(const Estimate& estimate) {
  const Config& config = estimate.config;
  const TrainConfig& train = config.train;
  std::string text =
      fmt::format("{} · {} parameters · {} · {}\n\n", model_name(config),
                  count_text(static_cast<double>(estimate.parameters)), config.precision.recipe, estimate.device);
  text += "memory\n";
  for (const Line& line : memory_lines(estimate)) {
    const bool overhead = std::string_view(line.key) == "overhead";
    const std::string remark = overhead ? fmt::format("   {}", origin_name(estimate.overhead_origin)) : "";
    text += fmt::format("  {:<22}{:>12}{}\n", line.name, bytes_text(line.bytes), remark);
  }
  text += fmt::format("  {:<22}{:>12}\n", "total", bytes_text(estimate.needed));
  text += verdict_text(estimate);
  if (estimate.kind == HardwareKind::gpu) {
    text += fmt::format("  on the host, with the copy a checkpoint is written from: {}\n",
                        bytes_text(estimate.host_needed));
  }
  text += "\nwork\n";
  const char* unit = unit_of(config.data.kind);
  text += fmt::format("  {:<22}{:>12}   {} micro-batch{} of {}\n", fmt::format("{} per step", unit),
                      count_text(static_cast<double>(estimate.tokens_per_step)), train.accumulation,
                      train.accumulation == 1 ? "" : "es", batch_text(train.batch, train.context));
  text +=
      fmt::format("  {:<22}{:>12}   {} {}\n", "steps", train.steps,
                  count_text(static_cast<double>(estimate.tokens_per_step) * static_cast<double>(train.steps)), unit);
  text += fmt::format("  {:<22}{:>12}   {:.1f} % of the matrix products in 8 bits or fewer\n", "FLOPs",
                      fmt::format("{:.3g}", estimate.total_flops()), 100 * estimate.low_precision_share);
  text += time_text(estimate);
  if (estimate.scaling) text += scaling_text(*estimate.scaling);
  for (const std::string& note : estimate.notes) text += fmt::format("note: {}\n", note);
  return text;
}

std::string estimate_json(const Estimate& estimate) {
  const Config& config = estimate.config;
  nlohmann::ordered_json json{{"preset", config.preset},
                              {"recipe", config.precision.recipe},
                              {"device", estimate.device},
                              {"device_kind", estimate.kind == HardwareKind::gpu ? "gpu" : "cpu"},
                              {"parameters", estimate.parameters},
                              {"batch", config.train.batch},
                              {"accumulation", config.train.accumulation},
                              {"context", config.train.context},
                              {"memory_bytes", memory_json(estimate)},
                              {"tokens_per_step", estimate.tokens_per_step},
                              {"steps", config.train.steps},
                              {"flops_per_token", estimate.flops_per_token},
                              {"total_flops", estimate.total_flops()},
                              {"narrow_share", estimate.low_precision_share},
                              {"time", nullptr},
                              {"notes", estimate.notes}};
  if (estimate.time) {
    const double seconds = estimate.time->seconds_per_step;
    json["time"] = {{"seconds_per_step", seconds},
                    {"tokens_per_second", static_cast<double>(estimate.tokens_per_step) / seconds},
                    {"seconds", seconds * static_cast<double>(config.train.steps)},
                    {"origin", origin_name(estimate.time->origin)},
                    {"how", estimate.time->how}};
  }
  if (estimate.scaling) json["scaling"] = scaling_json(*estimate.scaling);
  return json.dump(1);
}

}  // namespace quaver
