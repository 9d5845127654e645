#include "study/localize.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include "comm/agreement.h"
#include "config/dump.h"
#include "study/increments.h"

namespace quaver {

namespace {

// Sites that are tried together, and what that showed.
struct Unit {
  std::string name;
  std::vector<std::size_t> rows = {};  // of the plan
  double harm = 0;
};

bool is_low_precision_anywhere(const SiteSpec& spec) {
  return is_low_precision(spec.rows.format) || is_low_precision(spec.columns.format);
}

std::string block_of(const LayerShape& layer) {
  return layer.block < 0 ? layer.name : "blocks." + std::to_string(layer.block);
}

class Search {
 public:
  Search(Subject& subject, const LocalizeOptions& options)
      : subject_(subject),
        options_(options),
        layers_(subject.trainer().model().layers()),
        high_precision_(high_precision_plan(subject.plan, subject.config.precision)) {
    make_units();
  }

  Localization run() {
    warm_up();
    Localization result = measure();
    rank(result);
    Baseline fresh(subject_, options_.batches, options_.batches, options_.progress);
    told(options_.batches);
    choose(fresh, result);
    return result;
  }

 private:
  void make_units() {
    std::map<std::string, std::size_t> unit_of;
    std::map<std::string, std::size_t> bundle_of;
    for (std::size_t i = 0; i < subject_.plan.rows.size(); ++i) {
      const PlanRow& row = subject_.plan.rows[i];
      if (!is_low_precision_anywhere(row.spec)) continue;
      const std::string block = block_of(layers_[layer_index(i)]);
      const std::string unit = options_.grouping == Grouping::site    ? row.site
                               : options_.grouping == Grouping::layer ? row.layer
                                                                      : block;
      const auto [found, is_new] = unit_of.try_emplace(unit, units_.size());
      if (is_new) {
        units_.push_back({unit});
        const std::string bundle = options_.grouping == Grouping::block ? block : row.layer;
        const auto place = bundle_of.try_emplace(bundle, bundles_.size());
        if (place.second) bundles_.emplace_back();
        bundles_[place.first->second].push_back(found->second);
      }
      units_[found->second].rows.push_back(i);
    }
    if (!units_.empty()) return;
    throw AgreedError(fmt::format("the recipe {} stores nothing in 8 bits or fewer: there is nothing to localize",
                                  subject_.config.precision.recipe),
                      "name the recipe to try, for example --recipe fp8-current");
  }

  // The plan with these units in low precision and everything else in high precision.
  Plan plan_with(const std::set<std::size_t>& units) const {
    Plan plan = high_precision_;
    for (const std::size_t unit : units) {
      for (const std::size_t row : units_[unit].rows) plan.rows[row] = subject_.plan.rows[row];
    }
    agree_on_rotation(plan);
    return plan;
  }

  double low_precision_flops(const std::set<std::size_t>& units) const {
    return low_precision_share(flops_by_format(plan_with(units), layers_));
  }

  void told(Size more) {
    done_ += more;
    options_.progress.at(std::min(done_, total()), total());
  }

  // Trials are as many as bisection may take.
  Size total() const {
    const auto trials = static_cast<Size>(std::ceil(std::log2(static_cast<double>(units_.size()) + 1))) + 1;
    return options_.warmup_steps + options_.batches * (2 + static_cast<Size>(units_.size()) + trials);
  }

  void warm_up() {
    Trainer& trainer = subject_.trainer();
    const Size end = std::min(trainer.steps_done() + options_.warmup_steps, trainer.config().train.steps);
    for (; trainer.steps_done() < end; told(1)) trainer.step();
    done_ = options_.warmup_steps;
  }

  Localization measure() {
    Baseline baseline(subject_, 0, options_.batches, options_.progress);
    Localization result = describe(baseline);
    measure_units(baseline, result);
    return result;
  }

  Localization describe(const Baseline& baseline) {
    Localization result;
    result.recipe = subject_.config.precision.recipe;
    result.source = subject_.source;
    result.hash = fingerprint(subject_.config);
    result.step = subject_.trainer().steps_done();
    result.batches = options_.batches;
    result.tokens = options_.batches * subject_.tokens_per_batch();
    result.unit = unit_of(subject_.config.data.kind);
    result.grouping = options_.grouping;
    result.budget = options_.budget;
    result.baseline_loss = baseline.loss();
    result.baseline_error = baseline.loss_error();
    result.baseline_accuracy = baseline.accuracy();
    double all = 0;
    const auto flops_of = [](const LayerShape& layer) {
      return static_cast<double>(layer.pixels * layer.in) * static_cast<double>(layer.out);
    };
    for (const LayerShape& layer : layers_) all += flops_of(layer);
    for (std::size_t i = 0; i < high_precision_.rows.size(); ++i) {
      const PlanRow& row = high_precision_.rows[i];
      const LayerShape& layer = layers_[layer_index(i)];
      SiteSensitivity site{.site = row.site, .layer = row.layer, .role = row.role, .recipe = row.recipe};
      site.effect.batches = options_.batches;
      site.sqnr_db = std::nan("");
      // Two of a layer's three products read each operand.
      site.flops_share = 2.0 / 3 * flops_of(layer) / all;
      result.sites.push_back(std::move(site));
    }
    told(options_.batches);
    return result;
  }

  void measure_units(Baseline& baseline, Localization& result) {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const PlanEffect effect = baseline.effect_of(plan_with({u}));
      units_[u].harm = effect.whole.harm(result.baseline_loss);
      for (const std::size_t row : units_[u].rows) {
        SiteSensitivity& site = result.sites[row];
        site.tried = true;
        site.group = units_[u].name;
        site.recipe = subject_.plan.rows[row].recipe;
        site.effect = effect.whole;
        const auto own = effect.layers.find(site.layer);
        if (own != effect.layers.end()) site.own = own->second;
        const QuantSpec& rows_spec = subject_.plan.rows[row].spec.rows;
        site.sqnr_db = site.role == Role::w ? weight_statistics(subject_.trainer(), site.site, rows_spec).sqnr_db()
                                            : effect.sites.at(site.site).sqnr_db();
        site.harm = units_[u].harm;
      }
      told(options_.batches);
    }
  }

  static void rank(Localization& result) {
    for (std::size_t i = 0; i < result.sites.size(); ++i) {
      if (result.sites[i].tried) result.ranking.push_back(i);
    }
    std::stable_sort(result.ranking.begin(), result.ranking.end(),
                     [&](std::size_t a, std::size_t b) { return result.sites[a].harm > result.sites[b].harm; });
  }

  std::vector<Increment> chain() const {
    std::vector<double> harms;
    for (const Unit& unit : units_) harms.push_back(unit.harm);
    return chain_of(bundles_, harms, [this](const std::set<std::size_t>& units) { return low_precision_flops(units); });
  }

  PlanTrial try_plan(const std::set<std::size_t>& units, Baseline& baseline) {
    PlanTrial trial;
    for (const std::size_t unit : units) trial.low_precision_sites += static_cast<Size>(units_[unit].rows.size());
    trial.low_precision_share = low_precision_flops(units);
    trial.effect = baseline.effect_of(plan_with(units)).whole;
    trial.harm = trial.effect.harm_at_most(baseline.loss());
    trial.holds = trial.harm <= options_.budget;
    told(options_.batches);
    return trial;
  }

  static std::set<std::size_t> first_of(const std::vector<Increment>& increments, std::size_t count) {
    std::set<std::size_t> units;
    for (std::size_t i = 0; i < count; ++i) units.insert(increments[i].units.begin(), increments[i].units.end());
    return units;
  }

  void choose(Baseline& baseline, Localization& result) {
    const std::vector<Increment> increments = chain();
    std::size_t good = 0;
    std::size_t bad = increments.size() + 1;
    result.chosen.effect.batches = options_.batches;
    for (std::size_t count = increments.size(); bad - good > 1; count = (good + bad) / 2) {
      result.trials.push_back(try_plan(first_of(increments, count), baseline));
      (result.trials.back().holds ? good : bad) = count;
      if (result.trials.back().holds) result.chosen = result.trials.back();
    }
    const std::set<std::size_t> chosen = first_of(increments, good);
    for (const std::size_t unit : chosen) {
      for (const std::size_t row : units_[unit].rows) result.sites[row].kept_high_precision = false;
    }
    write_layers(plan_with(chosen), result);
    options_.progress.at(total(), total());
  }

  // What differs from the recipe's own choice: a line for the layer where all its operands do alike, else for each.
  void write_layers(const Plan& plan, Localization& result) const {
    PrecisionConfig bare = subject_.config.precision;
    bare.layers.clear();
    bare.only_where_faster.clear();  // what it keeps in bf16 is written too: the plan stands by itself
    const Plan own = make_plan(bare, layers_);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      const auto row = [&](Role role) -> const PlanRow& { return plan.rows[site_index(layer, role)]; };
      const std::string& recipe = row(Role::x).recipe;
      const auto differs = [&](Role role) { return row(role).recipe != own.rows[site_index(layer, role)].recipe; };
      const auto differs_alike = [&](Role role) { return differs(role) && row(role).recipe == recipe; };
      if (std::ranges::all_of(roles, differs_alike)) {
        result.layers[layers_[layer].name] = recipe;
        continue;
      }
      for (const Role role : roles) {
        if (differs(role)) result.layers[row(role).site] = row(role).recipe;
      }
    }
  }

  Subject& subject_;
  const LocalizeOptions& options_;
  std::vector<LayerShape> layers_;
  Plan high_precision_;
  std::vector<Unit> units_;
  std::vector<Bundle> bundles_;
  Size done_ = 0;
};

}  // namespace

std::string_view name_of(Grouping grouping) {
  switch (grouping) {
    case Grouping::site:
      return "site";
    case Grouping::layer:
      return "layer";
    case Grouping::block:
      break;
  }
  return "block";
}

Localization localize(Subject& subject, const LocalizeOptions& options) { return Search(subject, options).run(); }

}  // namespace quaver
