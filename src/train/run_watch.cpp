#include "train/run_watch.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "precision/recipe.h"
#include "train/stopwatch.h"

namespace quaver {

namespace {

// Raised where a scale does not fit its tensor.
bool is_of_scale(AlertRule rule) {
  return rule == AlertRule::saturation || rule == AlertRule::underflow || rule == AlertRule::stale_scale ||
         rule == AlertRule::sqnr_deficit;
}

// For another alert of the same site.
bool was_recalibrated_at(const ScaleEntry& entry, Size step) {
  if (entry.site.spec.rows.policy != ScalePolicy::fixed || entry.changes.empty()) return false;
  const ScaleChange& last = entry.changes.back();
  return step > 0 && last.step == static_cast<std::uint64_t>(step) && last.spec_before == last.spec_after;
}

}  // namespace

void RunWatch::look_at(const StepReport& report, StepExtras& extras) {
  if (!report.sampled) {
    usual_seconds_ = usual_seconds_ == 0 ? report.seconds : 0.9 * usual_seconds_ + 0.1 * report.seconds;
    raise_alerts(report, nullptr);
    return log_.record().changes(trainer_.book());
  }
  const double looking = seconds_of([&] {
    const NumericsSample sample = trainer_.numerics();
    log_.record().numerics(sample);
    raise_alerts(report, &sample);
  });
  log_.record().changes(trainer_.book());
  if (usual_seconds_ > 0) extras.statistics_seconds = std::max(0.0, report.seconds - usual_seconds_) + looking;
}

void RunWatch::raise_alerts(const StepReport& report, const NumericsSample* sample) {
  const StepMetrics figures{.step = static_cast<std::uint64_t>(report.step),
                            .loss = report.loss,
                            .gradient_norm = report.gradient_norm,
                            .learning_rate = report.learning_rate,
                            .loss_scale = report.loss_scale,
                            .max_logit = report.max_logit,
                            .embedding_rms = trainer_.embedding_rms(),
                            .skipped = report.skipped};
  const std::vector<Alert> raised = alarms_.watch(figures, trainer_.book(), sample);
  tell_of(raised);
  RunRecord& record = log_.record();
  for (const Alert& alert : raised) record.alert(alert, act_on(alert));
  for (const Alert& alert : alarms_.cleared()) record.alert(alert, std::nullopt);
  if (sample == nullptr) return;
  for (const Alert& alert : alarms_.active()) record.alert(alert, std::nullopt);
}

// What befalls many sites at once is told once: the dashboard lists them all.
void RunWatch::tell_of(const std::vector<Alert>& raised) {
  std::map<AlertRule, std::vector<const Alert*>> by_rule;
  for (const Alert& alert : raised) by_rule[alert.rule].push_back(&alert);
  for (const auto& [rule, alerts] : by_rule) {
    const Alert& first = *alerts.front();
    const std::string others = alerts.size() > 1 ? fmt::format(" (and {} more)", alerts.size() - 1) : "";
    log_.alert(first.severity, fmt::format("{}{}. To try: {}", first.text, others, remedy_of(first, trainer_.book())));
  }
}

// What was done about an alert, in words; nothing where nobody asked for it or nothing can be done.
std::optional<std::string> RunWatch::act_on(const Alert& alert) {
  if (alert.act == Act::none || alert.site.empty()) return std::nullopt;
  const std::string reason = fmt::format("alert {}", info(alert.rule).name);
  const ScaleEntry& entry = trainer_.book().entry(alert.site);
  std::optional<std::string> done;
  if (is_of_scale(alert.rule) && was_recalibrated_at(entry, trainer_.steps_done())) return std::nullopt;
  if (is_of_scale(alert.rule) && recalibrate(entry.site, reason)) {
    done = fmt::format("its static scale is {:.3g} from now on", entry.site.scale);
  } else if (trainer_.config().guard.act_on_alerts) {
    done = apply(alert.act, entry.site, reason);
  }
  if (done) log_.note("act", fmt::format("step {}: {}: {} ({})", trainer_.steps_done(), alert.site, *done, reason));
  return done;
}

std::optional<std::string> RunWatch::apply(Act act, const Site& site, const std::string& reason) {
  switch (act) {
    case Act::none:
      break;
    case Act::widen_to_bf16:
      return widen(site, reason);
    case Act::gradient_to_e5m2: {
      SiteSpec spec = site.spec;
      spec.rows.format = spec.columns.format = Format::e5m2;
      trainer_.change_site(site.name, spec, reason);
      return "stored in e5m2 from now on";
    }
    case Act::reset_history:
      trainer_.book().reset_history(site.name, static_cast<std::uint64_t>(trainer_.steps_done()), reason);
      return "its history of largest values is reset";
  }
  return std::nullopt;
}

std::optional<std::string> RunWatch::widen(const Site& site, const std::string& reason) {
  const SiteSpec bf16 = in_bf16(site);
  if (site.spec == bf16) return std::nullopt;  // for another alert
  trainer_.change_site(site.name, bf16, reason);
  return "stored in bf16 from now on";
}

bool RunWatch::recalibrate(const Site& site, const std::string& reason) {
  return trainer_.config().precision.recalibrate_every > 0 && trainer_.recalibrate(site.name, reason);
}

SiteSpec RunWatch::in_bf16(const Site& site) const {
  return make_recipe("bf16", trainer_.config().precision).of(site.role);
}

void RunWatch::widen_overflowing_sites() {
  for (const std::string& name : guard_.sites_to_widen(trainer_.book())) {
    const Site& site = trainer_.book().entry(name).site;
    const std::string reason = fmt::format("overflowed {} steps in a row", trainer_.config().guard.widen_after);
    const auto note = [&](const char* kind, const std::string& what) {
      log_.note(kind, fmt::format("step {}: {} {} and {} from now on", trainer_.steps_done(), name, reason, what));
    };
    if (recalibrate(site, reason)) {
      note("recalibrated", fmt::format("its static scale is {:.3g}", site.scale));
    } else if (widen(site, reason)) {
      note("widened", "is stored in bf16");
    }
  }
}

void RunWatch::restore(const WatchState& state) {
  guard_.restore(state.guard);
  alarms_.restore(state.alarms);
}

void RunWatch::rewind_to(WatchState state) {
  state.guard.rewinds = rewinds();
  restore(state);
  guard_.rewound();
}

}  // namespace quaver
