#include "precision/scale_book.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quaver/error.h"

namespace quaver {

Site& ScaleBook::add(const PlanRow& row) {
  auto entry = std::make_unique<ScaleEntry>();
  entry->site.name = row.site;
  entry->site.role = row.role;
  entry->site.spec = row.spec;
  entry->site.stream = stream_of(row.site.c_str());
  entries_.push_back(std::move(entry));
  return entries_.back()->site;
}

ScaleEntry& ScaleBook::entry(std::string_view site) {
  for (const auto& entry : entries_) {
    if (entry->site.name == site) return *entry;
  }
  throw Error("the scale book has no site '" + std::string(site) + "'", "the plan lists the sites of this model");
}

void ScaleBook::apply(const Plan& plan) {
  const auto same = [](const std::unique_ptr<ScaleEntry>& entry, const PlanRow& row) {
    return entry->site.name == row.site;
  };
  if (!std::equal(entries_.begin(), entries_.end(), plan.rows.begin(), plan.rows.end(), same)) {
    throw Error("the plan's sites are not the model's", "make the plan from the layers of this model");
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i]->site.spec = plan.rows[i].spec;
}

namespace {

void log_change(ScaleEntry& entry, std::uint64_t step, float scale_before, const SiteSpec& spec_before,
                const std::string& reason, ChangeCause cause = ChangeCause::made) {
  entry.changes.push_back({step, scale_before, entry.site.scale, spec_before, entry.site.spec, reason, cause});
}

// The latest change that was made and has not been taken back; null where there is none.
const ScaleChange* latest_made(const ScaleEntry& entry) {
  std::size_t reversals = 0;
  for (auto change = entry.changes.rbegin(); change != entry.changes.rend(); ++change) {
    if (change->cause == ChangeCause::history) continue;
    if (change->cause == ChangeCause::reversal) {
      ++reversals;
    } else if (reversals > 0) {
      --reversals;
    } else {
      return &*change;
    }
  }
  return nullptr;
}

bool moved_by_two(float from, float to) { return from == 0 || to >= 2 * from || to <= from / 2; }

void take_counts(ScaleEntry& entry) {
  const CastStatistics& seen = entry.site.seen;
  entry.elements += seen.count;
  entry.saturated += seen.saturated;
  entry.underflowed += seen.underflowed;
  entry.nonfinite += seen.nonfinite;
}

}  // namespace

void ScaleBook::update_scale(ScaleEntry& entry, std::uint64_t step) {
  Site& site = entry.site;
  if (site.spec.rows.policy != ScalePolicy::delayed || entry.history.empty()) return;
  const float amax = rules_.rule == HistoryRule::max ? *std::max_element(entry.history.begin(), entry.history.end())
                                                     : entry.history.back();
  const float before = site.scale;
  const float logged = entry.changes.empty() ? 0 : entry.changes.back().scale_after;
  site.scale = tensor_scale_for(site.spec.rows, amax);
  if (moved_by_two(logged, site.scale))
    log_change(entry, step, before, site.spec, "amax history", ChangeCause::history);
}

std::vector<DelayedScale> ScaleBook::delayed_scales() const {
  std::vector<DelayedScale> delayed;
  for (const auto& entry : entries_) {
    if (entry->site.spec.rows.policy != ScalePolicy::delayed) continue;
    const std::deque<float>& history = entry->history;
    const auto largest = [](auto first, auto last) { return first == last ? 0.0F : *std::max_element(first, last); };
    DelayedScale& site = delayed.emplace_back(DelayedScale{&entry->site, 0, 0, !history.empty()});
    if (history.empty()) continue;
    if (rules_.rule != HistoryRule::max) {
      site.present_amax = history.back();
      continue;
    }
    const bool drops_oldest = history.size() >= static_cast<std::size_t>(rules_.history);
    site.kept_amax = largest(history.begin() + (drops_oldest ? 1 : 0), history.end());
    site.present_amax = largest(history.begin(), history.end());
  }
  return delayed;
}

void ScaleBook::take_samples() {
  for (const auto& entry : entries_) {
    entry->sampled = entry->site.seen.full ? entry->site.seen : CastStatistics{};
    entry->sampled_scale = entry->site.scale;
  }
}

void ScaleBook::end_step(std::uint64_t step) {
  for (const auto& entry : entries_) {
    CastStatistics& seen = entry->site.seen;
    if (seen.count == 0) continue;
    take_counts(*entry);
    // A current block scale never overflows: what NVFP4's coarse scales clip is rounding, not a wrong scale.
    const bool can_overflow = entry->site.spec.rows.policy != ScalePolicy::current;
    const bool saturates = can_overflow && seen.saturated_percent() > rules_.overflow_percent;
    const bool overflowed = seen.nonfinite > 0 || saturates;
    entry->overflow_streak = overflowed ? entry->overflow_streak + 1 : 0;
    if (seen.nonfinite < seen.count) entry->history.push_back(seen.amax);
    while (entry->history.size() > static_cast<std::size_t>(rules_.history)) entry->history.pop_front();
    update_scale(*entry, step);
    entry->last_step = seen;
    seen = {};
  }
}

void ScaleBook::discard_step() {
  for (const auto& entry : entries_) {
    take_counts(*entry);
    if (entry->site.seen.nonfinite > 0) ++entry->overflow_streak;
    entry->last_step = entry->site.seen;
    entry->site.seen = {};
  }
}

void ScaleBook::set_scale(std::string_view site, float scale, std::uint64_t step, const std::string& reason) {
  ScaleEntry& found = entry(site);
  const float before = found.site.scale;
  found.site.scale = scale;
  log_change(found, step, before, found.site.spec, reason);
}

void ScaleBook::set_spec(std::string_view site, const SiteSpec& spec, std::uint64_t step, const std::string& reason) {
  ScaleEntry& found = entry(site);
  const SiteSpec before = found.site.spec;
  const float scale = found.site.scale;
  found.site.spec = spec;
  found.site.scale = 0;
  found.overflow_streak = 0;
  log_change(found, step, scale, before, reason);
}

void ScaleBook::reset_history(std::string_view site, std::uint64_t step, const std::string& reason) {
  ScaleEntry& found = entry(site);
  std::vector<float> history(found.history.begin(), found.history.end());
  found.history.clear();
  set_scale(site, 0, step, reason);
  found.changes.back().history_before = std::move(history);
}

bool ScaleBook::recalibrate(std::string_view site, std::uint64_t step, const std::string& reason) {
  ScaleEntry& found = entry(site);
  if (found.site.spec.rows.policy != ScalePolicy::fixed || found.history.empty()) return false;
  const float amax = *std::max_element(found.history.begin(), found.history.end());
  if (amax == 0) return false;  // a layer that rests says nothing about its range
  constexpr float headroom = 2;
  const float largest = std::min(amax, std::numeric_limits<float>::max() / headroom);
  const float scale = tensor_scale_for(found.site.spec.rows, headroom * largest);
  if (!moved_by_two(found.site.scale, scale)) return false;
  set_scale(site, scale, step, reason);
  found.overflow_streak = 0;
  return true;
}

bool ScaleBook::can_roll_back(std::string_view site) { return latest_made(entry(site)) != nullptr; }

std::string ScaleBook::roll_back(std::string_view site, std::uint64_t step) {
  ScaleEntry& found = entry(site);
  const ScaleChange* made = latest_made(found);
  if (made == nullptr) {
    throw Error(std::string(site) + ": there is no change to take back", "`quaver inspect` lists the changes of a run");
  }
  const ScaleChange last = *made;
  const float scale = found.site.scale;
  const SiteSpec spec = found.site.spec;
  found.site.scale = last.scale_before;
  found.site.spec = last.spec_before;
  found.overflow_streak = 0;
  if (!last.history_before.empty()) found.history.assign(last.history_before.begin(), last.history_before.end());
  log_change(found, step, scale, spec, "took back: " + last.reason, ChangeCause::reversal);
  return last.reason;
}

}  // namespace quaver
