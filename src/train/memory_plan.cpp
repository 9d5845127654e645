#include "train/memory_plan.h"

#include <fmt/format.h>
#include <utility>

#include "models/factory.h"
#include "optim/optimizer.h"
#include "quaver/error.h"
#include "train/engine_choice.h"
#include "train/gradient_exchange.h"
#include "train/micro_batches.h"
#include "train/resolved_config.h"

namespace quaver {

namespace {

// High-precision operands are copied for full statistics.
bool gathers_full_statistics(const Config& config, const Model& model) {
  return config.train.statistics_every > 0 || config.train.shadow_every > 0 || model.is_unit_scaled();
}

void dry_passes(Model& model, const Config& config, SizingEngine& engine, Arena& arena) {
  BatchStorage storage;
  double ignored = 0;
  const auto pass = [&](Pass kind, Detail detail) {
    Step step{engine, arena, config.train.batch, config.train.context, kind};
    step.memory = config.train.memory;
    step.documents = documents_of(config.data);
    step.casting.detail = detail;
    step.accumulators = accumulators_for(config.precision.accumulator, engine);
    model.loss(step, model.blank_batch(step, storage), 1, &ignored);
  };
  pass(Pass::train, Detail::counts);
  pass(Pass::evaluate, Detail::counts);
  if (gathers_full_statistics(config, model)) pass(Pass::train, Detail::full);
}

MemoryPlan plan_recipe(const Config& config, const Hardware& hardware, Format wide, const ModelFactory& make_model,
                       const ShardPlace& place) {
  const auto engine = make_sizing_engine(hardware, wide);
  std::size_t counted = 0;
  const auto count = [&] {  // bytes allocated since it was last asked
    const std::size_t now = engine->device().allocated_bytes();
    return static_cast<Size>(now - std::exchange(counted, now));
  };
  const std::unique_ptr<Model> built = make_model(config);
  Model& model = *built;
  model.book().apply(make_plan(config.precision, model.layers()));
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(config.optim, model.parameters());
  for (const auto& entry : model.book().entries()) {  // known from the start, unlike delayed ones
    if (entry->site.spec.rows.policy == ScalePolicy::fixed) entry->site.scale = 1;
  }
  MemoryPlan memory;
  model.parameters().deal_out(place);
  model.parameters().allocate(*engine, master_format(config));
  memory.weights = model.parameters().weight_bytes();
  memory.gradients = count() - memory.weights;
  const Size rounds = resolve_groups(config.train, place.ranks).reduction_groups / place.ranks;
  memory.gradients += GradientExchange::planned_bytes(model.parameters(), rounds);
  optimizer->allocate(*engine);
  memory.optimizer = count();
  const Casting casting{.seed = config.train.seed};
  model.parameters().quantize_all(*engine, casting);
  memory.quantized_weights = count();
  const ArenaPlan arena = plan_arena(model, config, *engine);
  memory.activations = static_cast<Size>(arena.saved);
  memory.scratch = static_cast<Size>(arena.bytes - arena.saved);
  optimizer->measure(*engine, 1);
  optimizer->update(*engine, {.casting = &casting});
  memory.workspace = static_cast<Size>(engine->device().workspace_bytes());
  memory.transient = static_cast<Size>(engine->device().transient_bytes());
  memory.checkpoint = model.parameters().master_bytes() + optimizer->stored_bytes();
  return memory;
}

}  // namespace

std::unique_ptr<Model> model_of(const Config& config) { return make_model(config.model, scale_rules(config)); }

ArenaPlan plan_arena(Model& model, const Config& config, SizingEngine& engine) {
  Arena measure;
  dry_passes(model, config, engine, measure);
  const ArenaPlan plan{measure.peak(), measure.peak_saved()};
  // Once more with an address for each matrix: what an operation does depends on which of them are the same.
  const auto addresses = engine.device().allocate(plan.bytes);
  Arena arena(addresses.get(), plan.bytes);
  dry_passes(model, config, engine, arena);
  return plan;
}

MemoryPlan plan_memory(const Config& config, const Hardware& hardware, const ModelFactory& make_model,
                       const ShardPlace& place) {
  const Format wide = gpu_high_precision(config.precision);
  const MemoryPlan first = plan_recipe(config, hardware, wide, make_model, place);
  if (config.precision.switch_to.empty()) return first;
  Config later = config;
  later.precision.recipe = config.precision.switch_to;
  const MemoryPlan second = plan_recipe(later, hardware, wide, make_model, place);
  return second.engine_total() > first.engine_total() ? second : first;
}

void require_memory(const Config& config, Engine& engine, const ModelFactory& make_model, const ShardPlace& place) {
  const Size limit = config.train.memory_limit_mb > 0 ? config.train.memory_limit_mb * 1024 * 1024
                                                      : static_cast<Size>(engine.device().free_memory());
  const Hardware hardware = engine.device().hardware();
  const MemoryPlan plan = plan_memory(config, hardware, make_model, place);
  const auto needed_by = [&](const MemoryPlan& some) {  // what the engine has taken already is not free any more
    return some.engine_total() - static_cast<Size>(engine.device().workspace_bytes());
  };
  const Size needed = needed_by(plan);
  if (limit == 0 || needed <= limit) return;
  Config smaller = config;
  do {
    smaller.train.batch /= 2;
  } while (smaller.train.batch > 0 && needed_by(plan_memory(smaller, hardware, make_model, place)) > limit);
  const auto gib = [](Size bytes) { return static_cast<double>(bytes) / (1024 * 1024 * 1024); };
  throw Error(
      fmt::format("the run needs {:.2f} GiB ({:.2f} GiB of weights, gradients and optimizer state, {:.2f} GiB of "
                  "activations, {:.2f} GiB of workspace) and {:.2f} GiB are free: {:.2f} GiB too much",
                  gib(needed), gib(plan.fixed()), gib(plan.arena()), gib(plan.workspace + plan.transient), gib(limit),
                  gib(needed - limit)),
      smaller.train.batch > 0
          ? fmt::format("train.batch = {} fits; raise train.accumulation to keep the tokens per step. `quaver "
                        "estimate` tries other changes",
                        smaller.train.batch)
          : "choose a smaller model, or optim.moments = \"fp8\" and optim.master = \"bf16-stochastic\": `quaver "
            "estimate` tries what fits");
}

}  // namespace quaver
