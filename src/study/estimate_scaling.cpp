#include "study/estimate_scaling.h"

#include <algorithm>
#include <map>
#include <utility>

#include "models/factory.h"
#include "optim/optimizer.h"
#include "train/engine_choice.h"
#include "train/micro_batches.h"
#include "train/resolved_config.h"

namespace quaver {

namespace {

// What NCCL's buffers take on each GPU: measured on an H200, two ranks.
constexpr Size nccl_bytes = Size{256} << 20;

}  // namespace

// From the memory that a trainer lays out for ranks that share the optimizer's state: whoever shares out more sends the
// same pieces.
SentSizes sent_sizes(const Config& config, const Hardware& hardware, int ranks) {
  const auto engine = make_sizing_engine(hardware, gpu_high_precision(config.precision));
  const std::unique_ptr<Model> model = model_of(config);
  model->book().apply(make_plan(config.precision, model->layers()));
  Parameters& parameters = model->parameters();
  freeze(parameters, config.optim);
  parameters.deal_out({ShardMode::optimizer, 0, ranks});
  parameters.allocate(*engine, master_format(config));
  parameters.quantize_all(*engine, {});
  SentSizes sizes;
  std::map<const Parameter*, ParameterSize> by_parameter;
  const auto add = [&](const Bucket& bucket, Size index, bool late) {
    for (const Parameter* parameter : bucket.parameters) {
      by_parameter[parameter] = {.count = (parameter->count() + 63) / 64 * 64,
                                 .section = parameter->section,
                                 .code_section = parameter->code_section,
                                 .bucket = index,
                                 .late = late};
    }
    sizes.equal_shares += bucket.gradients.count();
  };
  for (std::size_t i = 0; i < parameters.buckets().size(); ++i) {
    add(parameters.buckets()[i], static_cast<Size>(i), false);
  }
  add(parameters.rest(), 0, true);
  for (const SharedPiece& piece : parameters.shared_pieces()) {
    ParameterSize& size = by_parameter[piece.parameter];
    if (piece.section == SharedPiece::before_sections) size.section = ParameterSize::before_sections;
    (piece.is_codes ? size.codes_bytes : size.whole_bytes) += piece.bytes;
  }
  for (const Parameter& parameter : parameters.all()) sizes.parameters.push_back(by_parameter[&parameter]);
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
  SentSizes sizes = sent_sizes(config, hardware, static_cast<int>(ranks));
  ScalingEstimate scaling;
  scaling.input = {.cluster = *options.cluster,
                   .parameters = std::move(sizes.parameters),
                   .equal_shares = sizes.equal_shares,
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
  const Size nccl = ranks > 1 && hardware.kind == HardwareKind::gpu ? nccl_bytes : 0;
  const Size beside = estimate.needed - estimate.plan.engine_total() + nccl;  // with CUDA and libraries
  for (const ShardMode stage : shard_modes) {
    const MemoryPlan plan = plan_heaviest_rank(config, hardware, stage, static_cast<int>(ranks));
    scaling.stages.push_back({scale(scaling.input, stage), plan, plan.engine_total() + beside});
  }
  scaling.available = estimate.available;
  scaling.advice = advise(scaling.stages, scaling.input, estimate.available);
  return scaling;
}

}  // namespace quaver
