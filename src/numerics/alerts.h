// Alerts: rules on the metrics and statistics of a run that say what goes wrong, where, what it means and what to try.
// An alert is raised once, counted while it lasts and cleared when its value has been healthy for a while.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/statistics.h"

namespace quaver {

enum class AlertRule : std::uint8_t {
  nonfinite,           // infinities or NaNs: in a site, or the loss
  broken_scale,        // a scale or its history is not a positive number
  skipped_steps,       // several steps in a row
  loss_spike,          // loss far above its running mean
  gradient_norm,       // far from its running mean, on a logarithmic scale
  attention_logits,    // too large
  loss_scale_floor,    // the adaptive loss scale has fallen to 1
  sqnr_deficit,        // the cast is far noisier than its format need be
  underflow,           // too much of a site becomes zero
  saturation,          // too much of a site lies beyond the format's largest value
  frozen_scale,        // a delayed scale does not follow its tensor
  stale_scale,         // the scale in use is far too large or too small for the tensor
  weight_jump,         // a weight matrix has become many times larger between two samples
  unmoved_weights,     // updates are lost in the rounding of the weights
  embedding_collapse,  // weights or output of embedding and head shrink to a fraction of their start
  norm_growth,         // activations of a site grow to a multiple of their start
  shadow_cosine,       // gradient points elsewhere than in high precision
  gradient_snr,        // a weight's gradient drowns in noise
};
inline constexpr std::size_t alert_rule_count = 18;

enum class Severity : std::uint8_t { info, warning, critical };

// What would help, where the program can do it by itself.
enum class Act : std::uint8_t { none, widen_to_bf16, gradient_to_e5m2, reset_history };

struct RuleInfo {
  AlertRule rule;
  std::string_view name;     // "embedding_collapse"
  std::string_view meaning;  // one or two sentences
  std::string_view seen_in;  // the statistic of a site, or the run's metric, that shows it
};

const RuleInfo& info(AlertRule rule);
std::span<const RuleInfo> all_alert_rules();  // in the order of the enumeration
std::string_view name_of(Severity severity);
std::string_view name_of(Act act);

// What to try where the site is stored as it is; without a site what holds for the run as a whole.
std::string remedy_of(AlertRule rule, const Site* site);

struct Alert {
  AlertRule rule = AlertRule::nonfinite;
  Severity severity = Severity::warning;
  std::uint64_t step = 0;       // at which it was raised
  std::uint64_t last_step = 0;  // at which it last held
  std::uint64_t count = 1;      // times it held since then: steps, or samples for rules on samples
  std::string site;             // "blocks.3.mlp.up/dy"; empty: the run as a whole
  double value = 0;             // when it last held
  double threshold = 0;
  std::string text;  // one line for the terminal, begins with the site
  Act act = Act::none;

  std::string_view meaning() const { return info(rule).meaning; }
};

// With the site as it is stored now.
std::string remedy_of(const Alert& alert, const ScaleBook& book);

// What every step knows. NaN: not known.
struct StepMetrics {
  std::uint64_t step = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();
  double gradient_norm = std::numeric_limits<double>::quiet_NaN();
  double learning_rate = std::numeric_limits<double>::quiet_NaN();
  double loss_scale = 1;
  double max_logit = std::numeric_limits<double>::quiet_NaN();      // of attention
  double embedding_rms = std::numeric_limits<double>::quiet_NaN();  // of the token table's weights, which have no site
  bool skipped = false;                                             // the weights did not move
};

// Thresholds. Percentages are of a site's elements. Rules on samples need `samples` bad samples in a row, rules on
// steps (saturation among them) `steps` bad steps, unless they say otherwise. Sites in formats of 16 bits and more
// never underflow or saturate here.
struct AlertConfig {
  bool enabled = true;
  int samples = 3;        // bad samples in a row before a rule on samples is raised
  int clear_samples = 5;  // healthy samples in a row that clear it
  int steps = 3;          // bad steps in a row before a rule on steps is raised
  int clear_steps = 20;   // healthy steps in a row that clear it

  double underflow_x = 10;     // percent of an activation that becomes zero
  double underflow_w = 10;     // of a weight
  double underflow_dy = 10;    // of a gradient
  double underflow_4bit = 60;  // 4-bit formats take the smallest part of any tensor to zero
  double harmless_sqnr = 20;   // dB, 8 bits: from here what became zero carried nothing, unless it is nearly all
  double sqnr_deficit = 12;    // dB below what the format gives the tensor at its best scale
  double saturated = 1;        // percent; current scales are exempt: what they clip is the rounding of the scale

  int frozen_steps = 64;     // steps without a change of a delayed scale (at least the length of its history) …
  double frozen_factor = 4;  // … while the largest value moved away from it by this factor
  double stale_above = 4;    // largest value · scale beyond the format's maximum by this factor
  double stale_binades = 4;  // largest value · scale fewer binades than this above the smallest normal number

  int settling_steps = 50;         // before loss and gradient norm are compared with their running means
  double loss_deviations = 6;      // a spike; twice as much is raised at once
  double gradient_deviations = 6;  // of the logarithm; twice as much is raised at once
  double max_logit = 100;
  int skipped_steps = 3;  // in a row

  double weight_jump = 16;   // times its largest value at the sample before
  double unmoved = 99.5;     // percent of a weight matrix that an update did not change
  int baseline_samples = 5;  // a site's first samples (the embedding's first steps), whose geometric mean is its start
  double collapse = 0.2;     // of the start
  double growth = 32;        // times the start
  double shadow_cosine = 0.9;  // of layers with operands of 8 bits
  double shadow_cosine_4bit = 0.7;
  double snr_fall = 20;  // gradient SNR below the start by this factor
};

struct AlarmState;  // numerics/alert_state.h

class Alarms {
 public:
  // Throws Error where a threshold has no meaning.
  explicit Alarms(const AlertConfig& config);
  ~Alarms();
  Alarms(Alarms&&) noexcept;
  Alarms& operator=(Alarms&&) noexcept;

  // To be called after every step: rules on scales and non-finite values look at the book each time. `sample`, where
  // the step was sampled, has a row for each of the book's entries (else Error). Returns the alerts raised by this
  // step.
  std::vector<Alert> watch(const StepMetrics& metrics, const ScaleBook& book, const NumericsSample* sample = nullptr);

  std::vector<Alert> active() const;          // in the order in which they were raised
  const std::vector<Alert>& cleared() const;  // by the latest step

  // What a checkpoint keeps. restore() forgets what was before.
  AlarmState state() const;
  void restore(const AlarmState& state);

 private:
  class Watcher;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace quaver
