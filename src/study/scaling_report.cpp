// The model of many GPUs in words: a table of the stages, the advice and every assumption.
#include <algorithm>
#include <fmt/format.h>

#include "study/scaling.h"

namespace quaver {

namespace {

using Row = std::vector<std::string>;

// Columns padded to the widest cell, the first to the left and the others to the right.
std::string padded(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("  {:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
    text += '\n';
  }
  return text;
}

std::string decimal_bytes(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.2f} TB", bytes / 1e12);
  return bytes >= 1e9 ? fmt::format("{:.2f} GB", bytes / 1e9) : fmt::format("{:.1f} MB", bytes / 1e6);
}

std::string milliseconds(double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); }
std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string rate(double per_second) {
  return per_second >= 1e6 ? fmt::format("{:.2f}M", per_second / 1e6) : fmt::format("{:.1f}k", per_second / 1e3);
}

Row row_of(const StageEstimate& stage, const ScalingInput& input) {
  const StageScaling& scaling = stage.scaling;
  Row row{std::string(name_of(scaling.stage)), fmt::format("{:.1f} GiB", static_cast<double>(stage.needed) / 0x1p30),
          decimal_bytes(scaling.gradients_sent), decimal_bytes(scaling.weights_sent),
          milliseconds(scaling.whole.apart)};
  if (!input.rank_seconds) return row;
  const double alone = *input.rank_seconds;
  const double step = alone + scaling.whole.overlapped;
  row.insert(row.end(),
             {milliseconds(step), rate(static_cast<double>(input.tokens_per_step) / step),
              percent(efficiency(alone, scaling.whole.overlapped)), percent(efficiency(alone, scaling.whole.apart)),
              percent(efficiency(alone, scaling.split.overlapped))});
  return row;
}

std::string link_text(const Link& link) {
  return fmt::format("{}: {:g} GB/s in each direction {}, {:g} µs per message ({})", link.name,
                     link.bytes_per_second / 1e9, link.lane == Lane::of_each_gpu ? "per GPU" : "per machine",
                     1e6 * link.hop_seconds, link.source);
}

}  // namespace

std::vector<std::string> assumptions(const ScalingEstimate& estimate) {
  const ScalingInput& input = estimate.input;
  const Cluster& cluster = input.cluster;
  std::vector<std::string> all;
  if (input.rank_seconds) {
    all.push_back(fmt::format("a rank by itself takes {}: {}", milliseconds(*input.rank_seconds), estimate.time_how));
  }
  if (cluster.per_machine() > 1) all.push_back(link_text(cluster.inside));
  if (cluster.machines > 1) all.push_back(link_text(cluster.between));
  all.push_back(
      "latency: that of NCCL's tuning table (src/graph/tuning.cc; Ethernet's is assumed), 8.4 µs more per call; a rank "
      "sends to 8 others at once");
  all.push_back(
      fmt::format("gradients: {:g} bytes each, sent to the rank that adds them up in order: {} time{} per step, with "
                  "shard gradients "
                  "or weights after every micro-batch; with shard none the sums are gathered",
                  input.gradient_bytes, input.rounds, input.rounds == 1 ? "" : "s"));
  double codes = 0;
  double masters = 0;
  double count = 0;
  for (const ParameterSize& parameter : input.parameters) {
    codes += static_cast<double>(parameter.codes_bytes);
    masters += static_cast<double>(parameter.whole_bytes);
    count += static_cast<double>(parameter.count);
  }
  all.push_back(fmt::format(
      "weights: {} of codes with their scales and {} in master format, sent by their owners once per step; with shard "
      "weights for every forward pass, and but for the last two sections for every backward pass",
      decimal_bytes(codes), decimal_bytes(masters)));
  const LargestShare share = largest_share(input.parameters, cluster.gpus, Ownership::whole_parameters);
  all.push_back(fmt::format(
      "owners: a parameter has one, and the largest owner has {:.2f} times the mean, for which all wait; \"split\": "
      "large parameters are divided among owners",
      share.count * static_cast<double>(cluster.gpus) / count));
  all.push_back(
      fmt::format("overlap: links are busy during {:.0f} % of a pass (forward 1/3, backward 2/3 of a micro-batch's "
                  "time); what is complete last, or needed first, is waited for; \"no overlap\": if the exchange "
                  "followed the backward pass",
                  100 * input.overlap));
  all.emplace_back(
      "not counted: adding gradients up, the shorter update of a rank that owns a share, congestion of switches, ranks "
      "that are slower than others, loading of data");
  return all;
}

std::string scaling_text(const ScalingEstimate& estimate) {
  const ScalingInput& input = estimate.input;
  const Cluster& cluster = input.cluster;
  std::string text =
      fmt::format("\n{} GPU{}, predicted: {} machine{} of {}", cluster.gpus, cluster.gpus == 1 ? "" : "s",
                  cluster.machines, cluster.machines == 1 ? "" : "s", cluster.per_machine());
  if (cluster.per_machine() > 1) text += fmt::format(", {}", cluster.inside.name);
  if (cluster.machines > 1) text += fmt::format(", {}", cluster.between.name);
  text += fmt::format("; {} micro-batch{} per GPU and step\n", input.micro_steps, input.micro_steps == 1 ? "" : "es");
  std::vector<Row> rows{{"shard", "memory", "gradients sent", "weights sent", "exchange"}};
  if (input.rank_seconds) {
    rows[0].insert(rows[0].end(), {"step", "tokens/s", "efficiency", "no overlap", "split"});
  }
  for (const StageEstimate& stage : estimate.stages) rows.push_back(row_of(stage, input));
  text += padded(rows);
  text +=
      "  memory, bytes sent and exchange are those of one GPU, the last three per step; exchange: with passes or not\n";
  const Advice& advice = estimate.advice;
  text += advice.fits ? fmt::format("  advised: shard {}: {}\n", name_of(advice.stage), advice.why)
                      : fmt::format("  {}\n", advice.why);
  text += "assumptions\n";
  for (const std::string& assumption : assumptions(estimate)) text += fmt::format("  {}\n", assumption);
  return text;
}

}  // namespace quaver
