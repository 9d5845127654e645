// How a run's sites are stored, and every change of it: the plan, static scales from a file, the switch of recipes, and
// what the guard, an alert or a user changes on the way. Every change is logged in the scale book.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "precision/plan.h"
#include "train/training_context.h"

namespace quaver {

// Told of what happens on the way: a recipe switched, a scale missing.
using Notice = std::function<void(const std::string&)>;

class PrecisionControl {
 public:
  // Applies the config's plan and static scales to the model's book.
  PrecisionControl(const TrainingContext& context, Notice notice);

  const Plan& plan() const { return plan_; }  // of the config; sites may have been changed since
  std::map<std::string, double> format_shares() const;

  std::vector<SiteSpec> specs() const;                 // as the sites are stored now
  std::vector<SiteSpec> high_precision_specs() const;  // FP32, or what the engine has instead

  // Stores a site in another way from now on.
  void change_site(const std::string& site, const SiteSpec& spec, const std::string& reason);

  // Undoes the latest change of each site whose name matches. Returns what was done, one line per site; throws Error
  // where there is nothing to undo.
  std::vector<std::string> take_back(const std::string& pattern);

  // Stores every site as this plan says.
  void apply_plan(const Plan& plan, const std::string& reason);

  // Applies the config's plan where it is another than that of the config trained with, and returns its recipe: the
  // one that was switched to, unless the config now begins with another. Else the sites stay as they are.
  std::optional<std::string> change_plan_from(const Config& trained, const std::string& reason);

  // At precision.switch_at of the run's steps, once.
  void switch_recipe_when_due();

  // Every precision.recalibrate_every steps: static scales are fitted to what their sites have seen.
  void recalibrate_when_due();
  // The same for one site, at once. False: its scale is not static, or fits.
  bool recalibrate(const std::string& site, const std::string& reason);

  // For the checkpoint.
  bool switched() const { return switched_; }
  void restore(bool switched) { switched_ = switched; }

 private:
  void load_scales();
  std::vector<std::string> import_scales();
  void set_spec(const std::string& site, const SiteSpec& spec, const std::string& reason);
  void cast_weight_of(const std::string& site);

  const TrainingContext& context_;
  Notice notice_;
  Plan plan_;
  bool switched_ = false;
};

}  // namespace quaver
