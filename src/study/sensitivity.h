// What a plan does to a model, measured: the same batches in high precision and under the plan, compared.
//
// Loss. Batches differ in loss far more than plans do, so the two are compared batch by batch: the mean of the paired
// differences and its standard error over batches. The noise of the batches themselves cancels.
//
// Gradients. One operand in 8 bits moves the loss of a few batches by less than can be told from zero, and an output
// gradient (dy) moves it not at all; what they harm is the direction of the next steps. So the gradients of each batch
// are compared too. AdamW gives every tensor a step of about the same size per element, whatever its gradient's norm;
// tensors therefore count by their number of elements, each with the cosine and the relative error of its own gradient.
//
// Both as one number. To first order a step of fixed size along a direction with cosine c to the gradient descends c
// times as far, so that a run behaves as if it had c times the steps: it ends higher by (1 − c)·|dL/d ln t|. Late in
// training language models lose about a tenth of their loss, or less, for e times the steps, so
//   harm = loss change / loss + 0.1 · (1 − cosine),
// a share of the loss, to be held against a budget that is one too. It counts all of the rounding error as if it were
// there in every step alike: where it averages out over steps the true harm is smaller.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "study/batch_rounds.h"

namespace quaver {

// Share of the loss by which a run's loss falls when it takes e times the steps.
inline constexpr double descent_per_efold = 0.1;

struct Effect {
  double loss_change = 0;                      // nats, mean over batches
  double loss_error = 0;                       // its standard error
  std::optional<double> accuracy_change = {};  // of a classifier, mean over batches
  double gradient_cosine = 1;                  // mean over batches
  double gradient_error = 0;                   // ‖difference‖ / ‖gradient‖
  Size batches = 0;

  // The likeliest harm: a loss change that is not clear of its standard error counts in part, one below zero not at
  // all. For ranking.
  double harm(double loss) const;

  // The most it may be: the loss change's upper 95 % confidence bound (Student's t). For a verdict.
  double harm_at_most(double loss) const;
};

// How one gradient stands to another, tensor by tensor.
struct GradientMatch {
  double cosine = 1;
  double error = 0;
};

// Tensors whose gradient in high precision is zero say nothing and do not count. A value that is not finite gives a
// cosine of 0 and an infinite error.
GradientMatch match_of(const std::vector<float>& exact, const std::vector<float>& other);

// What a plan did: over the model, to the gradient of each layer's own weight, and to each site's tensor.
struct PlanEffect {
  Effect whole;
  std::map<std::string, GradientMatch> layers;  // mean over batches
  std::map<std::string, CastStatistics> sites;  // over batches
};

// Holds batches in high precision against plans. The ranks of the subject divide the batches.
class Baseline {
 public:
  // `first` counts from the batch that the trainer comes to next.
  Baseline(Subject& subject, Size first, Size batches, const StudyProgress& progress = {});

  double loss() const;                     // mean over batches
  double loss_error() const;               // standard error of that mean
  std::optional<double> accuracy() const;  // of a classifier, mean over batches
  PlanEffect effect_of(const Plan& plan);

 private:
  using Gradients = std::vector<std::vector<float>>;  // one per parameter

  ProbeResult probe(const Plan& plan, Size batch) const;
  const Gradients& gradients(Size batch);
  BatchFindings compare(const Plan& plan, Size batch);
  GradientMatch take_matches(std::span<const double> figures, PlanEffect& effect) const;

  Subject& subject_;
  StudyProgress progress_;
  Plan high_precision_;
  Size first_batch_;
  std::vector<double> losses_;
  std::vector<double> accuracies_;  // not numbers where the model is no classifier
  std::map<Size, Gradients> kept_;  // of this rank's first batches, as many as there is room for
  Gradients recomputed_;            // of the batch that was last recomputed
  Size recomputed_batch_ = -1;
};

}  // namespace quaver
