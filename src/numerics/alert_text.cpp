// What alerts say.
#include "numerics/alert_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>

namespace quaver {

namespace {

constexpr RuleInfo rules[] = {
    {AlertRule::nonfinite, "nonfinite",
     "Infinities or NaNs have appeared. The site named is the first in the order of computation that has them; what "
     "follows inherits them.",
     "nonfinite"},
    {AlertRule::broken_scale, "broken_scale",
     "A scale, or the amax history it is computed from, is not a positive finite number: every cast of the site is "
     "wrong.",
     "scale"},
    {AlertRule::skipped_steps, "skipped_steps",
     "Gradients or loss were not finite in several steps in a row, so the weights do not move.", "skipped"},
    {AlertRule::loss_spike, "loss_spike",
     "The loss lies far above what it was: bad data, a step that was too large, or a tensor that lost its range.",
     "loss"},
    {AlertRule::gradient_norm, "gradient_norm",
     "The norm of all gradients is far from what it has been. Upward it often precedes a spike of the loss; downward "
     "gradients may be vanishing into zeros.",
     "gradient_norm"},
    {AlertRule::attention_logits, "attention_logits",
     "The largest attention logit has grown: softmax becomes one-hot, its gradient vanishes, and training may diverge.",
     "max_logit"},
    {AlertRule::loss_scale_floor, "loss_scale_floor",
     "The adaptive loss scale has fallen to 1 and cannot fall further: gradients overflow whatever it is.",
     "loss_scale"},
    {AlertRule::sqnr_deficit, "sqnr_deficit",
     "The cast adds far more noise than its format would with a scale that fits the tensor: much of the tensor lies "
     "beyond the format's largest value, or below its normal numbers.",
     "sqnr_deficit_db"},
    {AlertRule::underflow, "underflow",
     "A large share of the site's non-zero elements underflows: the cast makes them zero. Weights do not learn from "
     "gradients that do.",
     "underflow_percent"},
    {AlertRule::saturation, "saturation",
     "A share of the site's elements lies beyond the format's largest value and is clipped: outliers, or a scale that "
     "is too large for what the tensor has become.",
     "saturated_percent"},
    {AlertRule::frozen_scale, "frozen_scale",
     "A delayed scale has not changed for many steps although the tensor has moved away from it, or its history holds "
     "nothing but zeros: the scale is no longer the tensor's.",
     "headroom_log2"},
    {AlertRule::stale_scale, "stale_scale",
     "The scale in use puts the tensor's amax far beyond the format's largest value, or so low that most of the "
     "tensor has no precision left.",
     "headroom_log2"},
    {AlertRule::weight_jump, "weight_jump",
     "A weight matrix has become many times larger within a few steps, which no ordinary update does: a step that was "
     "far too large, or a file or memory that was damaged.",
     "amax"},
    {AlertRule::unmoved_weights, "unmoved_weights",
     "Nearly all weights of the matrix kept their stored value although the optimizer wanted to move them: updates are "
     "smaller than half a unit in the last place. Stochastic rounding keeps the mean of such updates, nearest rounding "
     "loses them.",
     "unmoved_percent"},
    {AlertRule::embedding_collapse, "embedding_collapse",
     "Weights or output of the embedding or head have shrunk to a fraction of what they were at the start. Tokens "
     "become hard to tell apart. (The root mean square is what shows it; a loss of rank at equal size it cannot see.)",
     "rms"},
    {AlertRule::norm_growth, "norm_growth",
     "The activations of the site have grown to a multiple of what they were at the start of the run: outliers follow, "
     "and with them the loss of everything small.",
     "rms"},
    {AlertRule::shadow_cosine, "shadow_cosine",
     "The weight's gradient points in another direction than the same gradient computed in high precision: "
     "quantization biases the training here.",
     "shadow_cosine"},
    {AlertRule::gradient_snr, "gradient_snr",
     "Against the start of the run the mean of the weight's gradient has become small beside its spread over "
     "micro-batches: either training is near its noise floor, or quantization noise or underflow covers the signal.",
     "gradient_snr"},
};
static_assert(std::size(rules) == alert_rule_count);

// Whom a piece of advice is for: sites that are stored so.
enum class For : std::uint8_t { all, delayed, fixed, unscaled, one_scale, e4m3_gradient, gradient, activation };

bool concerns(For whom, const Site* site) {
  if (whom == For::all) return true;
  if (site == nullptr) return false;
  const QuantSpec& rows = site->spec.rows;
  const bool low_precision = is_low_precision(rows.format);
  switch (whom) {
    case For::all:
      return true;
    case For::delayed:
      return rows.policy == ScalePolicy::delayed;
    case For::fixed:
      return rows.policy == ScalePolicy::fixed;
    case For::unscaled:
      return low_precision && rows.policy == ScalePolicy::none;
    case For::one_scale:
      return low_precision && rows.policy != ScalePolicy::none && rows.block == block::tensor;
    case For::e4m3_gradient:
      return site->role == Role::dy && rows.format == Format::e4m3;
    case For::gradient:
      return site->role == Role::dy;
    case For::activation:
      return site->role == Role::x;
  }
  return false;
}

struct Advice {
  AlertRule rule;
  For whom;
  std::string_view text;
};

constexpr Advice advice[] = {
    {AlertRule::nonfinite, For::all,
     "Look at what led up to it: attention logits, a norm that grew, a stale scale. Lower the learning rate, keep the "
     "layer in high precision (precision.layers), or return to an earlier checkpoint."},
    {AlertRule::broken_scale, For::all,
     "Reset the site's history, so that its next cast uses the tensor's own amax. After a resume or an "
     "import, check the file the scales came from."},
    {AlertRule::skipped_steps, For::all,
     "A loss scale that still falls needs a few steps; else lower the learning rate or return to a checkpoint, and "
     "see which site first has non-finite values."},
    {AlertRule::loss_spike, For::all,
     "See which sites saturate or underflow at the same step. If the loss does not recover, return to a checkpoint "
     "and skip the batch; lower optim.learning_rate or optim.clip_limit, or lengthen optim.warmup."},
    {AlertRule::gradient_norm, For::all,
     "Upward: keep clipping on (optim.clip), lower the learning rate. Downward: look at the underflow of gradient "
     "sites."},
    {AlertRule::attention_logits, For::all,
     "model.qk_norm = true, a smaller model.attention_scale, a lower learning rate; keep the attention layers in high "
     "precision."},
    {AlertRule::loss_scale_floor, For::all,
     "The overflow has another cause. Look for the first site with non-finite or saturated gradients, lower the "
     "learning rate, or train in bf16."},
    {AlertRule::sqnr_deficit, For::delayed, "Reset the amax history, or use current scaling for the layer."},
    {AlertRule::sqnr_deficit, For::fixed, "Recalibrate the static scales (`quaver calibrate`)."},
    {AlertRule::sqnr_deficit, For::unscaled, "The tensor has left unit variance: keep the layer in high precision."},
    {AlertRule::sqnr_deficit, For::one_scale, "Block scales (fp8-block, mxfp8), if a few outliers set the scale."},
    {AlertRule::sqnr_deficit, For::all, "Keep the layer in high precision (precision.layers) if nothing else helps."},
    {AlertRule::underflow, For::e4m3_gradient, "precision.gradient_format = \"e5m2\"."},
    {AlertRule::underflow, For::gradient, "A loss scale."},
    {AlertRule::underflow, For::one_scale,
     "Block scales (fp8-block, mxfp8), so that outliers do not set the scale of everything."},
    {AlertRule::underflow, For::fixed, "Recalibrate the static scales (`quaver calibrate`)."},
    {AlertRule::underflow, For::unscaled, "The tensor has left unit variance: keep the layer in high precision."},
    {AlertRule::underflow, For::all, "Keep the layer in high precision (precision.layers) if nothing else helps."},
    {AlertRule::saturation, For::delayed, "Reset the amax history, raise precision.margin, or use current scaling."},
    {AlertRule::saturation, For::fixed, "Recalibrate the static scales (`quaver calibrate`)."},
    {AlertRule::saturation, For::unscaled, "The tensor has left unit variance: keep the layer in high precision."},
    {AlertRule::saturation, For::activation, "Against outliers late in training: model.activation_clip."},
    {AlertRule::saturation, For::one_scale, "Block scales (fp8-block, mxfp8), if outliers saturate."},
    {AlertRule::frozen_scale, For::all,
     "Reset the site's amax history: the next cast uses the tensor's own amax. Or use current scaling for the layer "
     "(fp8-current in precision.layers). After a resume, check that the checkpoint held the histories."},
    {AlertRule::stale_scale, For::delayed, "A shorter precision.history, or current scaling."},
    {AlertRule::stale_scale, For::fixed,
     "The static scale was set for another phase of training: recalibrate (`quaver calibrate`)."},
    {AlertRule::stale_scale, For::unscaled, "The tensor has left unit variance: keep the layer in high precision."},
    {AlertRule::weight_jump, For::all,
     "Return to an earlier checkpoint; keep clipping on (optim.clip), lower the learning rate."},
    {AlertRule::unmoved_weights, For::all,
     "optim.master = \"f32\", or at least stochastic rounding; a higher learning rate, or a higher optim.final_ratio "
     "if it happens at the end of the schedule."},
    {AlertRule::embedding_collapse, For::all,
     "Keep embedding and head in high precision (the default), exclude them from weight decay (optim.weight_decay_of), "
     "or lower "
     "their learning rate (optim.learning_rate_of)."},
    {AlertRule::norm_growth, For::all,
     "Weight decay, a lower learning rate, model.activation_clip; block scales or higher precision for the layer."},
    {AlertRule::shadow_cosine, For::all,
     "Keep the layer in high precision, or use block scales; `quaver localize` finds which of its three tensors it "
     "is."},
    {AlertRule::gradient_snr, For::all,
     "A larger batch (train.accumulation) if all layers show it; higher precision for its gradients if only this one "
     "does."},
};

// What was measured, without the site. {0}: value, {1}: threshold, {2}: detail such as the format.
std::string measured(AlertRule rule, double value, double threshold, std::string_view detail) {
  const auto say = [&](fmt::format_string<double&, double&, std::string_view&> text) {
    return fmt::format(text, value, threshold, detail);
  };
  switch (rule) {
    case AlertRule::nonfinite:
      return say("values are not finite: {0:g}{2}");
    case AlertRule::broken_scale:
      return say("the scale is unusable{2}");
    case AlertRule::skipped_steps:
      return say("{0:g} steps in a row were skipped");
    case AlertRule::loss_spike:
      return say("the loss is {0:.1f} deviations above what it was (limit {1:g}){2}");
    case AlertRule::gradient_norm:
      return say("the gradient norm is {0:+.1f} deviations from what it was (limit {1:g}){2}");
    case AlertRule::attention_logits:
      return say("the largest attention logit is {0:.4g} (limit {1:g})");
    case AlertRule::loss_scale_floor:
      return say("the loss scale has fallen to {0:g}");
    case AlertRule::sqnr_deficit:
      return say("the cast is {0:.0f} dB noisier than the format need be{2} (limit {1:g} dB)");
    case AlertRule::underflow:
      return say("{0:.1f}% of the elements become zero{2} (limit {1:g}%)");
    case AlertRule::saturation:
      return say("{0:.2f}% of the elements saturate{2} (limit {1:g}%)");
    case AlertRule::frozen_scale:
      return say("the delayed scale has not changed for {0:g} steps{2}");
    case AlertRule::stale_scale:
      return say("the scale does not fit the tensor: headroom is {0:+.1f} binades (limit {1:+.1f}){2}");
    case AlertRule::weight_jump:
      return say("the largest weight is {0:.3g} times what it was at the sample before (limit {1:g})");
    case AlertRule::unmoved_weights:
      return say("{0:.1f}% of the weights did not move in the update (limit {1:g}%)");
    case AlertRule::embedding_collapse:
      return say("has shrunk to {0:.3g} of its size at the start (limit {1:g}){2}");
    case AlertRule::norm_growth:
      return say("activations have grown to {0:.3g} times their size at the start (limit {1:g})");
    case AlertRule::shadow_cosine:
      return say("the gradient's cosine with high precision is {0:.3f} (limit {1:g})");
    case AlertRule::gradient_snr:
      return say("the gradient's signal to noise has fallen to {0:.3g} of the start (limit {1:g})");
  }
  return {};
}

}  // namespace

const RuleInfo& info(AlertRule rule) { return rules[static_cast<std::size_t>(rule)]; }

std::span<const RuleInfo> all_alert_rules() { return rules; }

std::string_view name_of(Severity severity) {
  constexpr std::string_view names[] = {"info", "warning", "critical"};
  return names[static_cast<std::size_t>(severity)];
}

std::string_view name_of(Act act) {
  constexpr std::string_view names[] = {"none", "widen_to_bf16", "gradient_to_e5m2", "reset_history"};
  return names[static_cast<std::size_t>(act)];
}

std::string remedy_of(AlertRule rule, const Site* site) {
  std::string text;
  for (const Advice& one : advice) {
    if (one.rule != rule || !concerns(one.whom, site)) continue;
    if (!text.empty()) text += ' ';
    text += one.text;
  }
  return text;
}

std::string remedy_of(const Alert& alert, const ScaleBook& book) {
  const auto& entries = book.entries();
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry->site.name == alert.site; });
  return remedy_of(alert.rule, found == entries.end() ? nullptr : &(*found)->site);
}

std::string alert_text(AlertRule rule, const std::string& site, double value, double threshold,
                       std::string_view detail) {
  const std::string text = measured(rule, value, threshold, detail);
  return site.empty() ? text : site + ": " + text;
}

}  // namespace quaver
