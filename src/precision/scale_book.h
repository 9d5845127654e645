// The scale book: every site's scale, amax history, counts, and a log of changes with step and reason, so that a change
// can be traced and taken back. It is saved in every checkpoint and can be exported, imported and compared.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "precision/plan.h"
#include "tensor/site.h"

namespace quaver {

// made: by somebody, or a rule of the guard, and can be taken back. history: a delayed scale's own update. reversal: a
// change taken back.
enum class ChangeCause : std::uint8_t { made, history, reversal };

// What a site was and became. A delayed scale's own updates are logged only when it has moved by a factor of two since
// the last entry: the history holds the rest.
struct ScaleChange {
  std::uint64_t step = 0;
  float scale_before = 0;
  float scale_after = 0;
  SiteSpec spec_before;
  SiteSpec spec_after;
  std::string reason;
  ChangeCause cause = ChangeCause::made;
  std::vector<float> history_before = {};  // where the change was that it was reset
};

struct ScaleEntry {
  Site site;
  std::deque<float> history;  // amax of past steps, newest last; finite values only
  std::vector<ScaleChange> changes;
  std::uint64_t saturated = 0;  // totals over the run
  std::uint64_t underflowed = 0;
  std::uint64_t nonfinite = 0;
  std::uint64_t elements = 0;
  int overflow_streak = 0;   // steps in a row in which the site overflowed
  CastStatistics last_step;  // what the latest finished step saw
  CastStatistics sampled;    // the latest look in full: one micro-step's casts …
  float sampled_scale = 0;   // … and the scale they used
};

struct ScaleRules {
  int history = 16;
  HistoryRule rule = HistoryRule::max;
  double overflow_percent = 1;  // saturated share from which a step counts as an overflow of the site
};

class ScaleBook {
 public:
  explicit ScaleBook(ScaleRules rules = {}) : rules_(rules) {}

  Site& add(const PlanRow& row);

  // Stores every site as the plan says, before anything was cast: no change is logged. Throws Error where the plan has
  // other sites, or in another order.
  void apply(const Plan& plan);

  ScaleEntry& entry(std::string_view site);
  const std::vector<std::unique_ptr<ScaleEntry>>& entries() const { return entries_; }

  // Keeps what casts with full statistics have just seen, before others add to it.
  void take_samples();

  // Takes what the step's casts saw into histories and totals, and sets the scales of the next step.
  void end_step(std::uint64_t step);

  // What end_step will set the next scales from, beside the step's statistics: for engines that compute them first.
  std::vector<DelayedScale> delayed_scales() const;

  // A step whose gradients were not finite: its amaxes are forgotten, its non-finite values counted.
  void discard_step();

  void set_scale(std::string_view site, float scale, std::uint64_t step, const std::string& reason);
  void set_spec(std::string_view site, const SiteSpec& spec, std::uint64_t step, const std::string& reason);
  void reset_history(std::string_view site, std::uint64_t step, const std::string& reason);

  // Fits a static scale to the amax history, with the binade of headroom that calibration leaves. Nothing happens where
  // the scale is not static, where there is no history, and where it would move by less than a factor of two, which no
  // format of the recipes notices. True: it was changed, and logged with the reason.
  bool recalibrate(std::string_view site, std::uint64_t step, const std::string& reason);

  // Takes back the site's latest change that was made and has not been taken back yet; the reversal is logged too.
  // Returns the change's reason; throws Error when there is none.
  std::string roll_back(std::string_view site, std::uint64_t step);
  bool can_roll_back(std::string_view site);

  std::string to_json() const;

  enum class Import : std::uint8_t { everything, scales_only };
  // everything: state of a checkpoint of the same plan. scales_only: scales and histories by name, for a warm start or
  // static scales; logged as changes. Returns the names of sites that the text did not have.
  std::vector<std::string> from_json(std::string_view text, Import what, std::uint64_t step);

 private:
  void update_scale(ScaleEntry& entry, std::uint64_t step);

  ScaleRules rules_;
  std::vector<std::unique_ptr<ScaleEntry>> entries_;
};

// A file that is longer is not read: a book takes several times its text in memory.
inline constexpr std::uint64_t largest_scale_file = std::uint64_t{256} << 20U;

struct StoredSite {
  float scale = 0;
  SiteSpec spec;
  bool operator==(const StoredSite&) const = default;
};

// A site whose scale or format differs between two exported books; of one of them only, where the other has none.
struct SiteDifference {
  std::string site;
  std::optional<StoredSite> first;
  std::optional<StoredSite> second;
};
std::vector<SiteDifference> compare_books(std::string_view json_a, std::string_view json_b);

}  // namespace quaver
