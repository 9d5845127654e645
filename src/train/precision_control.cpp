#include "train/precision_control.h"

#include <algorithm>
#include <fmt/format.h>

#include "io/file_io.h"
#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/faster_layers.h"

namespace quaver {

namespace {

// As it is once the recipe has been switched.
PrecisionConfig later(PrecisionConfig precision) {
  if (!precision.switch_to.empty()) precision.recipe = precision.switch_to;
  return precision;
}

}  // namespace

PrecisionControl::PrecisionControl(const TrainingContext& context, Notice notice)
    : context_(context),
      notice_(std::move(notice)),
      plan_(make_plan(context.config.precision, context.model.layers())) {
  context_.book().apply(plan_);
  const std::string kept = kept_for_speed(context.config.precision, context.model.layers());
  if (!kept.empty()) notice_(kept);
  load_scales();
}

std::vector<std::string> PrecisionControl::import_scales() {
  const std::string& path = context_.config.precision.scales;
  try {
    return context_.book().from_json(read_file(path, largest_scale_file), ScaleBook::Import::scales_only, 0);
  } catch (const Error& error) {
    throw Error(fmt::format("precision.scales = {}: {}", path, error.what()), error.remedy());
  }
}

// fp8-static and warm starts take their scales from a file, or from the config.
void PrecisionControl::load_scales() {
  const PrecisionConfig& precision = context_.config.precision;
  if (!precision.scales.empty()) {
    const auto missing = import_scales();
    if (!missing.empty()) {
      notice_(fmt::format("{}: no scale for {} of the sites, the first {}; they start without one", precision.scales,
                          missing.size(), missing.front()));
    }
  }
  for (const auto& entry : context_.book().entries()) {
    const Site& site = entry->site;
    if (site.spec.rows.policy != ScalePolicy::fixed || site.scale != 0) continue;
    const double scale = site.role == Role::x   ? precision.static_activation_scale
                         : site.role == Role::w ? precision.static_weight_scale
                                                : precision.static_gradient_scale;
    context_.book().set_scale(site.name, static_cast<float>(scale), 0, "from the config");
  }
}

std::map<std::string, double> PrecisionControl::format_shares() const {
  Plan now = plan_;
  for (std::size_t i = 0; i < context_.sites.size(); ++i) now.rows[i].spec = context_.sites[i]->spec;
  return flops_by_format(now, context_.model.layers());
}

std::vector<SiteSpec> PrecisionControl::specs() const {
  std::vector<SiteSpec> all;
  for (const Site* site : context_.sites) all.push_back(site->spec);
  return all;
}

std::vector<SiteSpec> PrecisionControl::high_precision_specs() const {
  const Recipe recipe = all_in(context_.engine.high_precision());
  std::vector<SiteSpec> all;
  for (const Site* site : context_.sites) all.push_back(recipe.of(site->role));
  return all;
}

void PrecisionControl::set_spec(const std::string& site, const SiteSpec& spec, const std::string& reason) {
  if (context_.book().entry(site).site.spec == spec) return;
  context_.book().set_spec(site, spec, static_cast<std::uint64_t>(context_.step), reason);
  context_.engine.upload_scales(context_.sites);
  cast_weight_of(site);
}

void PrecisionControl::cast_weight_of(const std::string& site) {
  for (Parameter& parameter : context_.model.parameters().all()) {
    if (parameter.site == nullptr || parameter.site->name != site) continue;
    Parameter* const recast[] = {&parameter};
    context_.weights.cast(recast, context_.weight_casting());
  }
}

void PrecisionControl::change_site(const std::string& site, const SiteSpec& spec, const std::string& reason) {
  set_spec(site, spec, reason);
  // What meets it in a GEMM may have been rotated to match.
  const std::string layer = site.substr(0, site.rfind('/'));
  const auto name = [&](Role role) { return site_name(layer, role); };
  const auto spec_of = [&](Role role) { return context_.book().entry(name(role)).site.spec; };
  SiteSpec x = spec_of(Role::x);
  SiteSpec w = spec_of(Role::w);
  SiteSpec dy = spec_of(Role::dy);
  agree_on_rotation(x, w, dy);
  const std::string why = "no longer rotated: " + site + " is not";
  set_spec(name(Role::x), x, why);
  set_spec(name(Role::w), w, why);
  set_spec(name(Role::dy), dy, why);
  context_.plan_memory();
}

std::vector<std::string> PrecisionControl::take_back(const std::string& pattern) {
  std::vector<std::string> done;
  for (const auto& entry : context_.book().entries()) {
    const Site& site = entry->site;
    if (!matches(pattern, site.name) || !context_.book().can_roll_back(site.name)) continue;
    const std::string reason = context_.book().roll_back(site.name, static_cast<std::uint64_t>(context_.step));
    context_.engine.upload_scales(context_.sites);
    cast_weight_of(site.name);
    done.push_back(
        fmt::format("{}: took back \"{}\"; stored as {} again", site.name, reason, describe(site.spec.rows)));
  }
  if (done.empty()) {
    throw Error("no site that matches '" + pattern + "' has a change to take back",
                "`quaver inspect` lists a run's sites and their changes");
  }
  context_.plan_memory();
  return done;
}

void PrecisionControl::apply_plan(const Plan& plan, const std::string& reason) {
  for (const PlanRow& row : plan.rows) set_spec(row.site, row.spec, reason);
  context_.plan_memory();
}

std::optional<std::string> PrecisionControl::change_plan_from(const Config& trained, const std::string& reason) {
  PrecisionConfig before = trained.precision;
  PrecisionConfig now = context_.config.precision;
  if (switched_ && before.recipe == now.recipe) {
    before = later(before);
    now = later(now);
  }
  const Plan then = make_plan(before, context_.model.layers());
  const Plan plan = make_plan(now, context_.model.layers());
  const bool same = std::equal(then.rows.begin(), then.rows.end(), plan.rows.begin(), plan.rows.end(),
                               [](const PlanRow& a, const PlanRow& b) { return a.spec == b.spec; });
  if (same) return std::nullopt;
  apply_plan(plan, reason + now.recipe);
  return now.recipe;
}

bool PrecisionControl::recalibrate(const std::string& site, const std::string& reason) {
  if (!context_.book().recalibrate(site, static_cast<std::uint64_t>(context_.step), reason)) return false;
  context_.engine.upload_scales(context_.sites);
  cast_weight_of(site);
  return true;
}

void PrecisionControl::recalibrate_when_due() {
  const Size every = context_.config.precision.recalibrate_every;
  if (every == 0 || context_.step == 0 || context_.step % every != 0) return;
  Size changed = 0;
  for (const Site* site : context_.sites) changed += recalibrate(site->name, "recalibrated") ? 1 : 0;
  if (changed > 0) notice_(fmt::format("step {}: {} static scales recalibrated", context_.step, changed));
}

void PrecisionControl::switch_recipe_when_due() {
  const PrecisionConfig& precision = context_.config.precision;
  const auto due = static_cast<Size>(precision.switch_at * static_cast<double>(context_.config.train.steps));
  if (switched_ || precision.switch_to.empty() || context_.step < due) return;
  switched_ = true;
  apply_plan(make_plan(later(precision), context_.model.layers()), "switch to " + precision.switch_to);
  notice_(fmt::format("step {}: the rest of the run uses {}", context_.step, precision.switch_to));
}

}  // namespace quaver
