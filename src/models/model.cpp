#include "models/model.h"

#include <algorithm>
#include <fmt/format.h>

#include "quaver/error.h"

namespace quaver {

namespace {

Batch uploaded(Step& step, const Batch& batch) {
  if (const auto* tokens = std::get_if<TokenBatch>(&batch)) {
    const auto inputs = step.uploaded(tokens->inputs);
    const auto targets = step.uploaded(tokens->targets);
    if (tokens->document_starts.empty()) return TokenBatch{inputs, targets};
    return TokenBatch{inputs, targets, step.uploaded(tokens->document_starts)};
  }
  const auto& rows = std::get<FeatureBatch>(batch);
  const auto features = step.uploaded(rows.features);
  return FeatureBatch{features, step.uploaded(rows.classes)};
}

// All that the operations of a pass depend on, besides the model itself.
std::uint64_t replay_key(const Step& step, const Batch& batch) {
  std::uint64_t key = step.generation;
  const auto mix = [&key](std::uint64_t value) { key = (key ^ value) * 0x100000001B3U + 0x9E3779B97F4A7C15U; };
  mix(static_cast<std::uint64_t>(step.batch));
  mix(static_cast<std::uint64_t>(step.sequence));
  mix(static_cast<std::uint64_t>(step.pass));
  mix(static_cast<std::uint64_t>(step.casting.detail));
  mix(step.casting.observe ? 1 : 0);
  mix(reinterpret_cast<std::uintptr_t>(step.row_losses));
  mix(step.sections != nullptr ? step.sections->key() : 0);
  const auto* tokens = std::get_if<TokenBatch>(&batch);
  if (tokens != nullptr && !tokens->document_starts.empty()) mix(2);
  return key;
}

}  // namespace

// The batch and what else differs between micro-steps go into engine memory first, so that the rest can be replayed.
void Model::loss(Step& step, const Batch& batch, float loss_scale, double* loss_sum) {
  const auto counted = static_cast<double>(std::max<Size>(1, check(step, batch)));
  const double rows = step.mean_rows > 0 ? step.mean_rows : counted;
  step.arena.reset();
  const StepVariables* variables = step.begin({step.micro_step, loss_scale / static_cast<float>(rows)});
  const Batch on_device = uploaded(step, batch);
  prepare(step);
  const auto pass = [&] {
    if (step.sections != nullptr) step.sections->begin_pass();
    run(step, on_device, &variables->gradient_scale, loss_sum);
    if (step.sections != nullptr) step.sections->end_pass();
  };
  const bool measures = step.sections != nullptr && step.casting.detail == Detail::full;
  if (step.pass == Pass::calibrate || measures) return pass();
  step.engine.device().replay(replay_key(step, batch), pass);
}

double Model::flops_per_token(Size) const {
  double products = 0;
  for (const LayerShape& layer : layers()) products += static_cast<double>(layer.pixels * layer.in * layer.out);
  double without_wgrad = 0;
  for (const Parameter& parameter : parameters().all()) {
    if (parameter.frozen && parameter.site != nullptr) without_wgrad += static_cast<double>(parameter.count());
  }
  return 6 * products - 2 * without_wgrad;
}

void Model::set_unit_factors(std::span<const float> factors) {
  if (factors.empty()) return;
  throw Error(fmt::format("{} unit-scaling factors were given, and this model has none", factors.size()),
              "the checkpoint belongs to a model of another shape");
}

}  // namespace quaver
