#include "cli/bench_check.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "cli/bench.h"
#include "quaver/error.h"
#include "study/subject.h"
#include "train/engine_choice.h"

namespace quaver {

namespace {

constexpr Size check_steps = 8;
constexpr double rate_share = 0.1;

// The first batch of another source, again and again.
class RepeatedBatch final : public TokenSource {
 public:
  explicit RepeatedBatch(std::unique_ptr<TokenSource> source) : source_(std::move(source)) {}

  void fill(std::uint64_t, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
            std::int32_t* targets) const override {
    source_->fill(0, batch, context, inputs, targets);
  }
  int vocab_size() const override { return source_->vocab_size(); }
  std::uint64_t tokens() const override { return source_->tokens(); }
  std::uint64_t windows(std::int64_t context) const override { return source_->windows(context); }
  std::string describe() const override { return source_->describe(); }
  std::uint64_t content_hash() const override { return source_->content_hash(); }

 private:
  std::unique_ptr<TokenSource> source_;
};

Config config_to_check(Config config) {
  config.train.accumulation = 1;
  config.train.steps = check_steps;
  config.train.statistics_every = check_steps - 1;  // the first step and the last
  config.train.shadow_every = 0;
  config.optim.schedule = ScheduleShape::constant;
  config.optim.warmup = 0;
  config.optim.learning_rate *= rate_share;
  config.optim.unit_learning_rate *= rate_share;
  return config;
}

Config reference_of(const Config& config) {
  Config reference = in_high_precision(config);
  reference.train.memory = Memory::small;  // room for activations of 16 bits; the weights come out the same
  return reference;
}

void count_zeros(const ScaleEntry& entry, std::array<ZeroCodes, 3>& counts) {
  if (!is_narrow(entry.site.spec.rows.format)) return;
  const CastStatistics& seen = entry.sampled;
  const std::uint64_t nonzero = std::accumulate(seen.binades.begin(), seen.binades.end(), std::uint64_t{0});
  ZeroCodes& role = counts[static_cast<std::size_t>(entry.site.role)];
  role.elements += seen.count;
  role.underflowed += seen.underflowed;
  role.zeros += seen.underflowed + (seen.count - seen.nonfinite - nonzero);
}

struct Lesson {
  std::vector<double> losses;
  std::array<ZeroCodes, 3> zero_codes;
};

Lesson learn(const Config& config, const Notice& notice) {
  TrainingData data = benchmark_data(config);
  data.train = std::make_unique<RepeatedBatch>(std::move(data.train));
  const auto engine = make_engine(config, notice);
  Trainer trainer(config, data, *engine, notice);
  Lesson lesson;
  while (!trainer.finished()) lesson.losses.push_back(trainer.step().loss);
  for (const auto& entry : trainer.book().entries()) count_zeros(*entry, lesson.zero_codes);
  return lesson;
}

}  // namespace

Role LearningCheck::most_lost() const {
  const auto most = std::max_element(zero_codes.begin(), zero_codes.end(),
                                     [](const ZeroCodes& a, const ZeroCodes& b) { return a.share() < b.share(); });
  return static_cast<Role>(most - zero_codes.begin());
}

Verdict LearningCheck::verdict() const {
  if (!(reference_fall() >= least_fall)) return Verdict::reference_learns_too_little;
  if (!(share() >= least_share)) return Verdict::learns_too_little;
  return zero_codes[static_cast<std::size_t>(most_lost())].share() > most_zeros ? Verdict::mostly_zeros
                                                                                : Verdict::learns;
}

void LearningCheck::require() const {
  const auto path = [](const std::vector<double>& of) {
    return fmt::format("{:.4f} to {:.4f}", of.front(), of.back());
  };
  const std::string paths = fmt::format("in {} steps on one micro-batch the loss went from {}, and from {} in bf16",
                                        losses.size(), path(losses), path(reference));
  constexpr const char* remedy =
      "where gradients underflow, calibrate the scales (`quaver calibrate`, or leave precision.scales and the static "
      "scales out), or choose another recipe";
  switch (verdict()) {
    case Verdict::learns:
      return;
    case Verdict::learns_too_little:
      throw Error(fmt::format("the figures are not those of training: {}; it must fall at least {:g} times as far",
                              paths, least_share),
                  remedy);
    case Verdict::mostly_zeros:
      throw Error(
          fmt::format("the figures are not those of training: {:.1f} % of the codes of {} are zero; {}",
                      100 * zero_codes[static_cast<std::size_t>(most_lost())].share(), name_of(most_lost()), paths),
          remedy);
    case Verdict::reference_learns_too_little:
      throw Error(fmt::format("the figures cannot be judged: {}, whose loss must fall by {:g} for a comparison", paths,
                              least_fall),
                  "set optim.learning_rate to one that this model learns with");
  }
}

LearningCheck check_learning(const Config& config, const Notice& notice) {
  const Config checked = config_to_check(config);
  Lesson lesson = learn(checked, notice);
  LearningCheck check;
  check.losses = std::move(lesson.losses);
  check.zero_codes = lesson.zero_codes;
  const bool is_reference = checked.precision.recipe == "bf16" && checked.precision.layers.empty();
  check.reference = is_reference ? check.losses : learn(reference_of(checked), notice).losses;
  return check;
}

}  // namespace quaver
