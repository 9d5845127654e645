#include "study/subject.h"

#include <algorithm>
#include <fmt/format.h>

#include "quaver/error.h"
#include "train/engine_choice.h"
#include "train/faster_layers.h"
#include "train/resolved_config.h"

namespace quaver {

namespace {

Config in_high_precision(Config config) {
  config = resolve_parametrization(std::move(config));  // while the recipe is still its own
  config.precision.recipe = "bf16";
  config.precision.layers.clear();
  config.precision.scales.clear();
  config.precision.switch_to.clear();
  return config;
}

}  // namespace

std::unique_ptr<Subject> open_subject(const Config& config, const Notice& notice, const Launch& launch) {
  const Size context = config.train.context > 0 ? config.train.context : config.model.context;
  return open_subject(config, open_training_data(config.data, config.train.seed, context), notice, launch);
}

std::unique_ptr<Subject> open_subject(const Config& config, TrainingData data, const Notice& notice,
                                      const Launch& launch) {
  auto subject = std::make_unique<Subject>();
  subject->config = config;
  subject->run = std::make_unique<OpenedRun>();
  OpenedRun& run = *subject->run;
  run.config = in_high_precision(config);
  // Probes gather full statistics, which need memory that is planned only for runs that gather them.
  if (run.config.train.statistics_every == 0) run.config.train.statistics_every = run.config.train.steps;
  run.data = std::move(data);
  run.engine = make_engine(run.config, notice, launch);
  run.trainer = std::make_unique<Trainer>(run.config, run.data, *run.engine, notice);
  if (!config.model.from.empty()) run.trainer->load_pretrained();
  Config resolved = run.trainer->config();
  resolved.precision = config.precision;
  resolved = resolve_layer_speeds(std::move(resolved), run.trainer->model().layers(), run.engine.get());
  subject->config.precision = resolved.precision;
  subject->plan = make_plan(resolved.precision, run.trainer->model().layers());
  subject->source = fmt::format("{}, seed {}", model_name(config), config.train.seed);
  return subject;
}

std::unique_ptr<Subject> open_subject(const std::filesystem::path& directory, const std::vector<std::string>& flags,
                                      std::optional<Size> step, const Notice& notice, const Launch& launch) {
  auto subject = std::make_unique<Subject>();
  subject->run = open_run(directory, flags, step, notice, launch);
  subject->config = subject->run->config;
  subject->config.precision = subject->trainer().config().precision;
  subject->plan = make_plan(subject->config.precision, subject->trainer().model().layers());
  subject->source = fmt::format("{} at step {}", directory.string(), subject->trainer().steps_done());
  return subject;
}

void StudyProgress::at(Size done, Size total) const {
  if (ranks->is_alone() && is_asked_to_stop()) throw StudyInterrupted{};
  if (told) told(done, total);
}

std::vector<SiteSpec> specs_of(const Plan& plan) {
  std::vector<SiteSpec> specs;
  for (const PlanRow& row : plan.rows) specs.push_back(row.spec);
  return specs;
}

Plan high_precision_plan(const Plan& plan, const PrecisionConfig& options) {
  Plan result = plan;
  for (PlanRow& row : result.rows) {
    row.recipe = high_precision_recipe_for(options);
    row.reason = "high precision";
    row.spec = make_recipe(row.recipe, options).of(row.role);
  }
  return result;
}

CastStatistics weight_statistics(Trainer& trainer, const std::string& site, const QuantSpec& spec) {
  const auto& all = trainer.model().parameters().all();
  const auto parameter = std::find_if(all.begin(), all.end(), [&](const Parameter& candidate) {
    return candidate.site != nullptr && candidate.site->name == site;
  });
  if (parameter == all.end()) throw Error("the model has no weight at " + site, "the plan belongs to another model");
  std::vector<std::byte> stored(static_cast<std::size_t>(parameter->weight.bytes()));
  trainer.engine().device().download(parameter->weight.data, stored.data(), stored.size());
  std::vector<float> values(static_cast<std::size_t>(parameter->count()));
  decode_array(parameter->weight.format, stored.data(), 1, parameter->count(), values.data());

  float tensor_scale = 1;
  CodeMatrix out{spec, parameter->rows, parameter->cols, nullptr, nullptr, &tensor_scale};
  std::vector<std::byte> codes(static_cast<std::size_t>(out.code_bytes()));
  std::vector<float> block_scales(static_cast<std::size_t>(out.scale_rows() * out.scale_cols()));
  out.codes = codes.data();
  out.block_scales = out.has_block_scales() ? block_scales.data() : nullptr;
  const float scale = tensor_scale_for(spec, amax(values.data(), parameter->count()).value);
  const RandomKey random{.seed = trainer.config().train.seed, .step = 0, .stream = parameter->site->stream};
  return quantize({values.data(), parameter->rows, parameter->cols},
                  {.side = Side::rows, .given_scale = scale, .random = random, .detail = Detail::full}, out);
}

Size next_batch(const Trainer& trainer, Size n) {
  return trainer.steps_done() * trainer.config().train.accumulation + n;
}

}  // namespace quaver
