#include "study/localize.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include "comm/agreement.h"
#include "config/dump.h"
#include "study/increments.h"
#include "study/ladder.h"

namespace quaver {

namespace {

// Sites that are stored together, as a plan says, and what that showed.
struct Unit {
  std::string name;
  const Plan* plan = nullptr;
  std::vector<std::size_t> rows = {};  // of the plan
  double harm = 0;
};

// What is measured unit by unit, and then added as a chain to what holds already.
struct Round {
  std::vector<Unit> units = {};
  std::vector<Bundle> bundles = {};
};

bool is_low_precision_anywhere(const SiteSpec& spec) {
  return is_low_precision(spec.rows.format) || is_low_precision(spec.columns.format);
}

std::string block_of(const LayerShape& layer) {
  return layer.block < 0 ? layer.name : "blocks." + std::to_string(layer.block);
}

// To which of two operands a rung makes more difference: by underflow, or else by SQNR.
bool tells_more(const LadderTrial& a, const LadderTrial& b) {
  constexpr double clear_percent = 1;
  const auto relief = [](const LadderTrial& trial) {
    return trial.before.underflow_percent - trial.after.underflow_percent;
  };
  const double most = std::max(relief(a), relief(b));
  if (most >= clear_percent) return relief(a) > relief(b);
  return a.after.sqnr_db - a.before.sqnr_db > b.after.sqnr_db - b.before.sqnr_db;
}

class Search {
 public:
  Search(Subject& subject, const LocalizeOptions& options)
      : subject_(subject),
        options_(options),
        layers_(subject.trainer().model().layers()),
        high_precision_(high_precision_plan(subject.plan, subject.config.precision)),
        held_(high_precision_) {}

  Localization run() {
    Round round = as_recipe_says();
    total_ = options_.warmup_steps + most_batches(round);
    warm_up();
    Localization result = measure_recipe(round);
    rank(result);
    choose(round, result);
    const Ladder ladder = make_ladder(subject_.plan, layers_, subject_.config.precision, wide_);
    for (const Rung& rung : ladder.rungs) step_down(rung, result);
    place(result);
    write_layers(ladder, result);
    options_.progress.at(total_, total_);
    return result;
  }

 private:
  Round as_recipe_says() {
    Round round;
    std::map<std::string, std::size_t> unit_of;
    std::map<std::string, std::size_t> bundle_of;
    for (std::size_t i = 0; i < subject_.plan.rows.size(); ++i) {
      const PlanRow& row = subject_.plan.rows[i];
      if (!is_low_precision_anywhere(row.spec)) continue;
      const std::string block = block_of(layers_[layer_index(i)]);
      const std::string unit = options_.grouping == Grouping::site    ? row.site
                               : options_.grouping == Grouping::layer ? row.layer
                                                                      : block;
      const auto [found, is_new] = unit_of.try_emplace(unit, round.units.size());
      if (is_new) {
        round.units.push_back({unit, &subject_.plan});
        const std::string bundle = options_.grouping == Grouping::block ? block : row.layer;
        const auto place = bundle_of.try_emplace(bundle, round.bundles.size());
        if (place.second) {
          round.bundles.emplace_back();
          groups_.push_back({bundle});
        }
        round.bundles[place.first->second].push_back(found->second);
      }
      round.units[found->second].rows.push_back(i);
      groups_[bundle_of.at(options_.grouping == Grouping::block ? block : row.layer)].rows.push_back(i);
    }
    if (!round.units.empty()) return round;
    throw AgreedError(fmt::format("the recipe {} stores nothing in 8 bits or fewer: there is nothing to localize",
                                  subject_.config.precision.recipe),
                      "name the recipe to try, for example --recipe fp8-current");
  }

  // The groups that are not all in low precision yet, and of which a layer is on the rung.
  Round on_rung(const Rung& rung) const {
    Round round;
    for (const Unit& group : groups_) {
      const auto is_high = [&](std::size_t row) { return !is_low_precision_anywhere(held_.rows[row].spec); };
      const auto is_on_rung = [&](std::size_t row) { return rung.layers.contains(layer_index(row)); };
      if (std::ranges::none_of(group.rows, is_high) || std::ranges::none_of(group.rows, is_on_rung)) continue;
      round.bundles.push_back({round.units.size()});
      round.units.push_back({group.name, &rung.plan, group.rows});
    }
    return round;
  }

  static Plan with(Plan plan, const Round& round, const std::set<std::size_t>& units) {
    for (const std::size_t unit : units) {
      for (const std::size_t row : round.units[unit].rows) plan.rows[row] = round.units[unit].plan->rows[row];
    }
    agree_on_rotation(plan);
    return plan;
  }

  double low_precision_flops(const Plan& plan) const { return low_precision_share(flops_by_format(plan, layers_)); }

  void told(Size more) {
    done_ += more;
    options_.progress.at(std::min(done_, total_), total_);
  }

  // High precision twice, each unit, and as many plans as bisection may take.
  Size most_batches(const Round& round) const {
    const auto units = static_cast<Size>(round.units.size());
    const auto trials = static_cast<Size>(std::ceil(std::log2(static_cast<double>(units) + 1))) + 1;
    return options_.batches * (2 + units + trials);
  }

  void warm_up() {
    Trainer& trainer = subject_.trainer();
    const Size end = std::min(trainer.steps_done() + options_.warmup_steps, trainer.config().train.steps);
    for (; trainer.steps_done() < end; told(1)) trainer.step();
    done_ = options_.warmup_steps;
  }

  // Calls visit(unit, effect) for each unit with everything else in high precision.
  template <class Visit>
  void measure(Round& round, Baseline& baseline, const Visit& visit) {
    told(options_.batches);
    for (std::size_t u = 0; u < round.units.size(); ++u) {
      const PlanEffect effect = baseline.effect_of(with(high_precision_, round, {u}));
      round.units[u].harm = effect.whole.harm(baseline.loss());
      visit(round.units[u], effect);
      told(options_.batches);
    }
  }

  Localization measure_recipe(Round& round) {
    Baseline baseline(subject_, 0, options_.batches, options_.progress);
    Localization result = describe(baseline);
    measure(round, baseline, [&](const Unit& unit, const PlanEffect& effect) { note(unit, effect, result); });
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
    result.chosen.effect.batches = options_.batches;
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
      site.sqnr_db = site.underflow_percent = std::nan("");
      // Two of a layer's three products read each operand.
      site.flops_share = 2.0 / 3 * flops_of(layer) / all;
      result.sites.push_back(std::move(site));
    }
    return result;
  }

  CastStatistics seen_of(const PlanRow& row, const PlanEffect& effect) const {
    if (row.role == Role::w) return weight_statistics(subject_.trainer(), row.site, row.spec.rows);
    return effect.sites.at(row.site);
  }

  void note(const Unit& unit, const PlanEffect& effect, Localization& result) {
    for (const std::size_t row : unit.rows) {
      SiteSensitivity& site = result.sites[row];
      site.tried = true;
      site.group = unit.name;
      site.recipe = unit.plan->rows[row].recipe;
      site.effect = effect.whole;
      const auto own = effect.layers.find(site.layer);
      if (own != effect.layers.end()) site.own = own->second;
      const CastStatistics seen = seen_of(unit.plan->rows[row], effect);
      site.sqnr_db = seen.sqnr_db();
      site.underflow_percent = seen.underflow_percent();
      site.harm = unit.harm;
      if (site.role == Role::x && has_wide_range(seen)) wide_.insert(layer_index(row));
    }
  }

  static void rank(Localization& result) {
    for (std::size_t i = 0; i < result.sites.size(); ++i) {
      if (result.sites[i].tried) result.ranking.push_back(i);
    }
    std::stable_sort(result.ranking.begin(), result.ranking.end(),
                     [&](std::size_t a, std::size_t b) { return result.sites[a].harm > result.sites[b].harm; });
  }

  std::vector<Increment> chain(const Round& round) const {
    std::vector<double> harms;
    for (const Unit& unit : round.units) harms.push_back(unit.harm);
    return chain_of(round.bundles, harms,
                    [&](const std::set<std::size_t>& units) { return low_precision_flops(with(held_, round, units)); });
  }

  PlanTrial try_plan(const Plan& plan, Baseline& baseline) {
    PlanTrial trial;
    for (std::size_t i = 0; i < plan.rows.size(); ++i) {
      const bool low = is_low_precision_anywhere(plan.rows[i].spec);
      trial.low_precision_sites += low ? 1 : 0;
      trial.ladder_sites += low && plan.rows[i].recipe != subject_.plan.rows[i].recipe ? 1 : 0;
    }
    trial.low_precision_share = low_precision_flops(plan);
    trial.effect = baseline.effect_of(plan).whole;
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

  // Adds as much of the chain to what holds as holds with it. Returns the units that this takes.
  std::set<std::size_t> choose(const Round& round, Localization& result) {
    Baseline fresh(subject_, options_.batches, options_.batches, options_.progress);
    told(options_.batches);
    const std::vector<Increment> increments = chain(round);
    std::size_t good = 0;
    std::size_t bad = increments.size() + 1;
    for (std::size_t count = increments.size(); bad - good > 1; count = (good + bad) / 2) {
      result.trials.push_back(try_plan(with(held_, round, first_of(increments, count)), fresh));
      (result.trials.back().holds ? good : bad) = count;
      if (result.trials.back().holds) result.chosen = result.trials.back();
    }
    std::set<std::size_t> chosen = first_of(increments, good);
    held_ = with(held_, round, chosen);
    done_ = total_;
    return chosen;
  }

  // A group that alone goes beyond the budget is in no plan that holds.
  Round within_budget(const Round& round) const {
    Round bearable;
    for (const Unit& unit : round.units) {
      if (unit.harm > options_.budget) continue;
      bearable.bundles.push_back({bearable.units.size()});
      bearable.units.push_back(unit);
    }
    return bearable;
  }

  void step_down(const Rung& rung, Localization& result) {
    Round round = on_rung(rung);
    if (round.units.empty()) return;
    total_ += most_batches(round);
    std::map<std::string, std::size_t> trial_of;
    {
      Baseline baseline(subject_, 0, options_.batches, options_.progress);
      measure(round, baseline, [&](const Unit& unit, const PlanEffect& effect) {
        trial_of[unit.name] = result.ladder.size();
        result.ladder.push_back(trial_on(rung, unit, effect, result));
      });
    }
    const Round bearable = within_budget(round);
    if (!bearable.units.empty()) {
      for (const std::size_t unit : choose(bearable, result)) {
        result.ladder[trial_of.at(bearable.units[unit].name)].taken = true;
      }
    }
    done_ = total_;
  }

  // Of the operand that harmed most; where they were tried together, of that to which the rung makes most difference.
  LadderTrial trial_on(const Rung& rung, const Unit& unit, const PlanEffect& effect, const Localization& result) const {
    LadderTrial telling;
    for (const std::size_t row : unit.rows) {
      if (!rung.layers.contains(layer_index(row))) continue;
      const SiteSensitivity& site = result.sites[row];
      const CastStatistics seen = seen_of(unit.plan->rows[row], effect);
      const LadderTrial trial{.group = unit.name,
                              .recipe = unit.plan->rows[row].recipe,
                              .site = site.site,
                              .before = {site.underflow_percent, site.sqnr_db},
                              .after = {seen.underflow_percent(), seen.sqnr_db()},
                              .harm_before = site.harm,
                              .harm_after = unit.harm};
      const bool more = trial.harm_before > telling.harm_before ||
                        (trial.harm_before == telling.harm_before && tells_more(trial, telling));
      if (telling.site.empty() || more) telling = trial;
    }
    return telling;
  }

  void place(Localization& result) const {
    for (std::size_t i = 0; i < result.sites.size(); ++i) {
      SiteSensitivity& site = result.sites[i];
      const PlanRow& row = held_.rows[i];
      if (!site.tried || !is_low_precision_anywhere(row.spec)) continue;
      const bool as_tried = row.recipe == subject_.plan.rows[i].recipe;
      site.placement = as_tried ? Placement::as_tried : Placement::on_ladder;
      if (!as_tried) site.ladder_recipe = row.recipe;
    }
  }

  // What differs from the recipe's own choice: a line for the layer where all its operands do alike, else for each.
  void write_layers(const Ladder& ladder, Localization& result) const {
    PrecisionConfig bare = subject_.config.precision;
    bare.layers.clear();
    bare.only_where_faster.clear();  // what it keeps in bf16 is written too: the plan stands by itself
    const Plan own = make_plan(bare, layers_);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      const auto row = [&](Role role) -> const PlanRow& { return held_.rows[site_index(layer, role)]; };
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
    for (const auto& [name, recipe] : result.layers) {
      if (const auto made = ladder.recipes.find(recipe); made != ladder.recipes.end()) result.recipes.insert(*made);
    }
  }

  Subject& subject_;
  const LocalizeOptions& options_;
  std::vector<LayerShape> layers_;
  Plan high_precision_;
  Plan held_;                   // the best plan so far that holds
  std::vector<Unit> groups_;    // what goes down the ladder together: the operands that meet in GEMMs
  std::set<std::size_t> wide_;  // layers whose x lies too far apart for E4M3
  Size done_ = 0;
  Size total_ = 0;  // grows with every round
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
