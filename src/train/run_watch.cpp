#include "train/run_watch.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "precision/recipe.h"
#include "train/stopwatch.h"

namespace quaver {

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
  if (!trainer_.config().guard.act_on_alerts || alert.act == Act::none || alert.site.empty()) return std::nullopt;
  const std::string reason = fmt::format("alert {}", info(alert.rule).name);
  const Site& site = trainer_.book().entry(alert.site).site;
  std::string done;
  switch (alert.act) {
    case Act::none:
      return std::nullopt;
    case Act::widen_to_bf16: {
      const SiteSpec bf16 = in_bf16(site);
      if (site.spec == bf16) return std::nullopt;  // for another alert
      trainer_.change_site(site.name, bf16, reason);
      done = "stored in bf16 from now on";
      break;
    }
    case Act::gradient_to_e5m2: {
      SiteSpec spec = site.spec;
      spec.rows.format = spec.columns.format = Format::e5m2;
      trainer_.change_site(site.name, spec, reason);
      done = "stored in e5m2 from now on";
      break;
    }
    case Act::reset_history:
      trainer_.book().reset_history(site.name, static_cast<std::uint64_t>(trainer_.steps_done()), reason);
      done = "its history of largest values is reset";
      break;
  }
  log_.note("act", fmt::format("step {}: {}: {} ({})", trainer_.steps_done(), alert.site, done, reason));
  return done;
}

SiteSpec RunWatch::in_bf16(const Site& site) const {
  return make_recipe("bf16", trainer_.config().precision).of(site.role);
}

void RunWatch::widen_overflowing_sites() {
  for (const std::string& site : guard_.sites_to_widen(trainer_.book())) {
    const std::string reason = fmt::format("overflowed {} steps in a row", trainer_.config().guard.widen_after);
    trainer_.change_site(site, in_bf16(trainer_.book().entry(site).site), reason);
    log_.note("widened",
              fmt::format("step {}: {} {} and is stored in bf16 from now on", trainer_.steps_done(), site, reason));
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
