#include "study/estimate_scaling.h"

#include <algorithm>
#include <charconv>

#include "models/factory.h"
#include "train/micro_batches.h"
#include "train/resolved_config.h"

namespace quaver {

namespace {

// "blocks.3.mlp.up.weight" is of block 3.
Size block_of(std::string_view name) {
  constexpr std::string_view stack = "blocks.";
  Size block = -1;
  if (name.starts_with(stack)) std::from_chars(name.data() + stack.size(), name.data() + name.size(), block);
  return block;
}

// Embeddings and norms are read as they are, and so is a weight whose GEMMs take the master format. What a tied head
// reads can be cast anew on each rank.
Size codes_bytes_of(const Parameter& parameter, Format master) {
  if (parameter.kind != ParameterKind::matrix || parameter.site == nullptr) return 0;
  const QuantSpec& spec = parameter.site->spec.rows;
  if (spec.format == master) return 0;
  const CodeMatrix codes{.spec = spec, .rows = parameter.rows, .cols = parameter.cols};
  const Size scales = 1 + (codes.has_block_scales() ? codes.scale_rows() * codes.scale_cols() : 0);
  return codes.code_bytes() + scales * static_cast<Size>(sizeof(float));
}

}  // namespace

std::vector<ParameterSize> parameter_sizes(const Config& config) {
  const std::unique_ptr<Model> model = model_of(config);
  model->book().apply(make_plan(config.precision, model->layers()));
  const Format master = master_format(config);
  std::vector<ParameterSize> sizes;
  for (const Parameter& parameter : model->parameters().all()) {
    const Format format = parameter.kind == ParameterKind::vector ? Format::f32 : master;
    sizes.push_back({.count = parameter.count(),
                     .master_bytes = parameter.count() * info(format).storage_bits / 8,
                     .codes_bytes = codes_bytes_of(parameter, format),
                     .block = block_of(parameter.name)});
  }
  return sizes;
}

// Of the rank that owns the most.
MemoryPlan plan_heaviest_rank(Config config, const Hardware& hardware, ShardMode mode, int ranks) {
  config.train.shard = mode;
  const std::unique_ptr<Model> model = model_of(config);
  model->parameters().deal_out({mode, 0, ranks});
  std::vector<Size> owned(static_cast<std::size_t>(ranks));
  for (const Parameter& parameter : model->parameters().all()) {
    owned[static_cast<std::size_t>(parameter.owner)] += parameter.count();
  }
  const auto heaviest = std::max_element(owned.begin(), owned.end()) - owned.begin();
  return plan_memory(config, hardware, model_of, {mode, static_cast<int>(heaviest), ranks});
}

double rank_seconds(const TimeEstimate& time, Size ranks) {
  return (time.seconds_per_step - time.optimizer_seconds) / static_cast<double>(ranks) + time.optimizer_seconds;
}

ScalingEstimate estimate_scaling(const Estimate& estimate, const Hardware& hardware, const EstimateOptions& options) {
  const Config& config = estimate.config;
  const Size ranks = options.cluster->gpus;
  const MicroBatches micro_batches(resolve_groups(config.train, static_cast<int>(ranks)), 0, static_cast<int>(ranks));
  ScalingEstimate scaling;
  scaling.input = {.cluster = *options.cluster,
                   .parameters = parameter_sizes(config),
                   .micro_steps = micro_batches.rounds() * micro_batches.per_group(),
                   .rounds = micro_batches.rounds(),
                   .gradient_bytes = options.gradient_bytes,
                   .overlap = options.overlap,
                   .rank_seconds = std::nullopt,
                   .tokens_per_step = estimate.tokens_per_step};
  if (estimate.time) {
    scaling.input.rank_seconds = rank_seconds(*estimate.time, ranks);
    scaling.time_how = estimate.time->how;
  }
  const Size beside = estimate.needed - estimate.plan.engine_total();  // CUDA and libraries
  for (const ShardMode stage : shard_modes) {
    const MemoryPlan plan = plan_heaviest_rank(config, hardware, stage, static_cast<int>(ranks));
    scaling.stages.push_back({scale(scaling.input, stage), plan, plan.engine_total() + beside});
  }
  scaling.available = estimate.available;
  scaling.advice = advise(scaling.stages, scaling.input, estimate.available);
  return scaling;
}

}  // namespace quaver
