#include "cli/bench_check.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/bench_step.h"
#include "config/dump.h"
#include "io/file_io.h"
#include "quaver/error.h"
#include "train/engine_choice.h"
#include "train/resolved_config.h"

namespace quaver {

namespace {

Config reference_of(const Config& config) {
  Config reference = resolve_parametrization(config);  // while the recipe is still its own
  reference.precision = {};
  reference.precision.recipe = "bf16";
  reference.train.memory = Memory::small;  // room for activations of 16 bits; the weights come out the same
  return reference;
}

bool is_reference(const Config& config) { return config.precision.recipe == "bf16" && config.precision.layers.empty(); }

// As many steps as are timed, of one micro-batch each: gradients are smaller once the first steps are done.
Config config_for_zeros(Config config) {
  config.train.make_single();
  config.train.statistics_every = std::max<Size>(1, config.train.steps - 1);  // the first step and the last
  return config;
}

Config config_for_one_batch(Config config) {
  constexpr Size steps = 8;
  config.train.steps = steps;
  config.train.statistics_every = steps - 1;  // the first step and the last
  return for_memorizing(std::move(config));
}

double tolerated_zeros(const Site& site) {
  const AlertConfig alerts;
  if (info(site.spec.rows.format).storage_bits <= 4) return alerts.underflow_4bit / 100;
  const double percent = site.role == Role::x   ? alerts.underflow_x
                         : site.role == Role::w ? alerts.underflow_w
                                                : alerts.underflow_dy;
  return percent / 100;
}

struct Lesson {
  std::vector<double> losses;
  std::array<ZeroCodes, 3> zero_codes;  // in the last step with full statistics
};

Lesson learn(const Config& config, LearningData what, const Notice& notice) {
  TrainingData data = benchmark_data(config);
  if (what == LearningData::one_batch) data.train = std::make_unique<RepeatedBatch>(std::move(data.train));
  const auto engine = make_engine(config, notice);
  Trainer trainer(config, data, *engine, notice);
  Lesson lesson;
  while (!trainer.finished()) lesson.losses.push_back(trainer.step().loss);
  for (const auto& entry : trainer.book().entries()) count_zeros(*entry, lesson.zero_codes);
  return lesson;
}

std::string path_of(const std::vector<double>& losses) {
  return fmt::format("{:.4f} to {:.4f}", losses.front(), losses.back());
}

}  // namespace

void count_zeros(const ScaleEntry& entry, std::array<ZeroCodes, 3>& counts) {
  if (!is_low_precision(entry.site.spec.rows.format)) return;
  const CastStatistics& seen = entry.sampled;
  const std::uint64_t nonzero = std::accumulate(seen.binades.begin(), seen.binades.end(), std::uint64_t{0});
  ZeroCodes& role = counts[static_cast<std::size_t>(entry.site.role)];
  role.elements += seen.count;
  role.underflowed += seen.underflowed;
  role.zeros += seen.underflowed + (seen.count - seen.nonfinite - nonzero);
  role.most_zeros += tolerated_zeros(entry.site) * static_cast<double>(seen.count);
}

double LearningCheck::least_fall() const {
  return std::max(least_memorized_fall, 4 / std::sqrt(static_cast<double>(tokens)));
}

LearningVerdict LearningCheck::verdict() const {
  // Memorizing a batch is clear of any noise: both recipes see the same tokens again.
  const double enough = data == LearningData::one_batch ? least_memorized_fall : least_fall();
  if (!(reference_fall() >= enough)) return LearningVerdict::reference_learns_too_little;
  if (!(share() >= least_share)) return LearningVerdict::learns_too_little;
  const bool lost =
      std::any_of(zero_codes.begin(), zero_codes.end(), [](const ZeroCodes& c) { return c.is_too_many(); });
  return lost ? LearningVerdict::too_many_zeros : LearningVerdict::learns;
}

void LearningCheck::require() const {
  const std::string paths =
      fmt::format("in {} steps{} the loss went from {}, and from {} in bf16", losses.size(),
                  data == LearningData::one_batch ? " on one micro-batch" : "", path_of(losses), path_of(reference));
  constexpr const char* remedy =
      "where gradients underflow, calibrate the scales (`quaver calibrate`, or leave precision.scales and the static "
      "scales out), or choose another recipe";
  switch (verdict()) {
    case LearningVerdict::learns:
      return;
    case LearningVerdict::learns_too_little:
      throw Error(fmt::format("the measurements are not those of training: {}; it must fall at least {:g} times as far",
                              paths, least_share),
                  remedy);
    case LearningVerdict::too_many_zeros: {
      std::string lost;
      for (const Role role : {Role::x, Role::w, Role::dy}) {
        const ZeroCodes& codes = zero_codes[static_cast<std::size_t>(role)];
        if (!codes.is_too_many()) continue;
        lost +=
            fmt::format("{}{:.1f} % of the codes of {}", lost.empty() ? "" : ", ", 100 * codes.share(), name_of(role));
      }
      throw Error(fmt::format("the measurements are not those of training: {} are zero; {}", lost, paths), remedy);
    }
    case LearningVerdict::reference_learns_too_little:
      throw Error(fmt::format("the measurements cannot be judged: {}, whose loss must fall", paths),
                  "set optim.learning_rate to one that this model learns with");
  }
}

Reference read_reference(const std::filesystem::path& path, const Config& config) {
  constexpr std::uint64_t most_bytes = 16U << 20U;
  const std::string remedy = "give the --json file of `bench step` with the same model, --tokens, --steps and --warmup";
  Reference reference;
  try {
    const auto file = nlohmann::json::parse(read_file(path, most_bytes));
    reference = {file.at("reference").at("config"), file.at("reference").at("losses")};
  } catch (const nlohmann::json::exception&) {
    throw Error(path.string() + " holds no reference losses", remedy);
  }
  if (reference.config != fingerprint(reference_of(config)) ||
      static_cast<Size>(reference.losses.size()) != config.train.steps) {
    throw Error(path.string() + " holds the losses of another model, data or number of steps", remedy);
  }
  return reference;
}

LearningCheck check_learning(const Config& config, const std::vector<double>& timed,
                             const std::optional<Reference>& known, const Notice& notice) {
  const Config reference = reference_of(config);
  LearningCheck check;
  check.tokens = config.train.accumulation * config.train.batch * config.train.context;
  check.losses = timed;
  check.timed_reference =
      known ? *known
            : Reference{fingerprint(reference),
                        is_reference(config) ? timed : learn(reference, LearningData::timed_steps, notice).losses};
  check.reference = check.timed_reference.losses;
  if (check.reference_fall() >= check.least_fall()) {
    check.zero_codes = learn(config_for_zeros(config), LearningData::timed_steps, notice).zero_codes;
    return check;
  }
  check.data = LearningData::one_batch;
  Lesson lesson = learn(config_for_one_batch(config), check.data, notice);
  check.losses = std::move(lesson.losses);
  check.zero_codes = lesson.zero_codes;
  check.reference =
      is_reference(config) ? check.losses : learn(config_for_one_batch(reference), check.data, notice).losses;
  return check;
}

}  // namespace quaver
