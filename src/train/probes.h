// Looks at a model without training it: one micro-batch with its sites stored otherwise, and the shadow check, which
// compares a step's gradients with those of high precision.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "precision/loss_scale.h"
#include "train/tally.h"
#include "train/training_context.h"

namespace quaver {

// How near a gradient is to the same in high precision; NaN where either is zero.
struct GradientAgreement {
  double cosine = std::numeric_limits<double>::quiet_NaN();
  double error = std::numeric_limits<double>::quiet_NaN();  // ‖difference‖ / ‖the one in high precision‖
};

enum class ProbeWhat : std::uint8_t { loss, gradients };

struct ProbeResult {
  double loss = 0;
  std::optional<double> accuracy;             // of a classifier: the share of rows whose class was the likeliest
  std::vector<std::vector<float>> gradients;  // true ones, one per parameter in the model's order; on the host
  std::vector<CastStatistics> seen;           // full statistics, one per site
};

class Probes {
 public:
  Probes(const TrainingContext& context, const BatchSource& batches, const LossScale& loss_scale, Tally& tally)
      : context_(context), batches_(batches), loss_scale_(loss_scale), tally_(tally) {}

  // One training micro-batch with one spec for each site, in their order; operands of a GEMM must agree on rotation.
  // Sites whose spec is not their own take current scales. Nothing about the run changes.
  ProbeResult probe(std::span<const SiteSpec> specs, Size batch, ProbeWhat what);

  // The micro-batch under both lists of specs; the gradients of the first against those of the second.
  struct ShadowSpecs {
    std::vector<SiteSpec> own;
    std::vector<SiteSpec> high_precision;
  };
  GradientAgreement shadow_check(const ShadowSpecs& specs, Size batch);

  // Of the parameter at the step now finished, where the shadow check was of that step; else null.
  const GradientAgreement* shadow_of(std::size_t parameter) const;

 private:
  void enter_specs(std::span<const SiteSpec> specs);
  ProbeResult run_probe(Size batch, ProbeWhat what);

  const TrainingContext& context_;
  const BatchSource& batches_;
  const LossScale& loss_scale_;
  Tally& tally_;
  Size shadow_step_ = 0;                   // that the last shadow check was of
  std::vector<GradientAgreement> shadow_;  // one per parameter
};

}  // namespace quaver
