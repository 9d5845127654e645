// What a comparison found: per recipe the mean and deviation over its seeds, and its gap to the base at the same seed.
// The table, the page and the JSON all show these numbers and compute none of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/time_to_loss.h"
#include "config/config.h"
#include "train/run.h"

namespace quaver {

enum class SeedStatus : std::uint8_t { completed, diverged, failed };
std::string_view name_of(SeedStatus status);

// One recipe trained with one seed.
struct SeedRun {
  std::uint64_t seed = 0;
  SeedStatus status = SeedStatus::completed;
  std::string failure;  // why it did not complete
  RunResult result;
};

// One recipe's runs, one per seed.
struct Contender {
  std::string label;  // as asked for: "fp8-delayed", "fp32@umup"
  Config config;
  std::vector<SeedRun> runs;
};

// Mean and sample standard deviation (n − 1), which one value does not have.
struct MeanOverSeeds {
  double mean = 0;
  std::optional<double> deviation;
};
std::optional<MeanOverSeeds> mean_over(std::span<const double> values);

// A curve's mean over seeds, at the steps that all of them have.
struct MeanCurve {
  std::vector<double> step;
  std::vector<double> seconds;  // LossPoint::seconds there, the mean over the seeds
  std::vector<double> mean;
  std::vector<double> deviation;  // empty: there is one seed
};

struct SeedMetrics {
  std::uint64_t seed = 0;
  SeedStatus status = SeedStatus::completed;
  std::string failure;
  std::optional<double> train_loss;        // RunResult::final_train_loss
  std::optional<double> validation_loss;   // the last one
  std::optional<double> loss;              // the one of the two that is compared
  std::optional<double> accuracy;          // in validation, of a classifier
  std::optional<double> gap_percent;       // to the base at this seed, where both completed
  bool has_base = false;                   // both completed and logged losses
  std::optional<TimeToLoss> to_base_loss;  // nothing, where it has a base: not reached
  double seconds_per_step = 0;
  double tokens_per_second = 0;
  std::uint64_t overflows = 0;
  Size skipped = 0;
};

// Over the seeds that reached the final training loss of the base at the same seed.
struct MeanTimeToLoss {
  std::size_t seeds = 0;  // that it can be said of
  std::size_t reached = 0;
  std::optional<MeanOverSeeds> tokens;
  std::optional<MeanOverSeeds> seconds;
  std::optional<MeanOverSeeds> tokens_ratio;
  std::optional<MeanOverSeeds> seconds_ratio;
};

// Means are over the seeds that completed; the others are listed.
struct RecipeMetrics {
  std::string label;
  std::size_t base = 0;      // index of the recipe that the gap is to; its own where it is a base
  bool is_like_base = true;  // the same parametrization
  std::vector<SeedMetrics> seeds;
  std::size_t completed = 0;
  std::optional<MeanOverSeeds> loss;
  std::optional<MeanOverSeeds> accuracy;     // of classifiers
  std::optional<MeanOverSeeds> gap_percent;  // of the gaps seed by seed; zero for a base
  MeanTimeToLoss to_base_loss;
  std::optional<MeanOverSeeds> seconds_per_step;
  std::optional<MeanOverSeeds> tokens_per_second;
  std::uint64_t overflows = 0;  // sums
  Size skipped = 0;
  MeanCurve train_loss;      // of several seeds each smoothed first, so that σ is theirs and not their batches'
  MeanCurve validation_gap;  // validation loss minus the base's at the same seed
  MeanCurve accuracy_curve;  // in validation, of classifiers
  const RunResult* example = nullptr;  // the first run that completed: memory, shares of formats, a sample
};

enum class LossKind : std::uint8_t { training, validation };

struct Comparison {
  LossKind loss_kind = LossKind::training;  // validation where it was evaluated
  bool is_base_chosen = false;              // by the user; else the highest precision
  std::size_t seeds = 0;                    // per recipe
  DataKind data = DataKind::dataset;
  std::optional<double> best_loss;
  std::optional<double> best_accuracy;
  std::vector<RecipeMetrics> recipes;

  const char* unit() const { return unit_of(data); }
  const char* loss_unit() const { return has_images(data) ? "nats per image" : "nats per token"; }
  std::string speed_unit() const { return std::string(unit()) + "/s"; }
};

// Weight of the past in the smoothing of training losses.
inline constexpr double loss_smoothing = 0.8;

// `base`: the label of the recipe that all are measured against; empty: for each the highest precision of its
// parametrization, else the highest of all. Throws Error where no contender has that label. The contenders must outlive
// the result.
Comparison compare(const std::vector<Contender>& contenders, const std::string& base);

}  // namespace quaver
