#include "quaver/scales.h"

#include <algorithm>
#include <cmath>

#include "precision/scale_book.h"
#include "quaver/error.h"

namespace quaver {

struct Scales::State {
  explicit State(const ScaleRules& rules) : book(rules) {}
  ScaleBook book;
  std::uint64_t step = 0;
};

Scales::Scales(const ScaleSettings& settings) {
  if (settings.history < 1 || settings.history > 65536) {
    throw Error("an amax history of " + std::to_string(settings.history) + " steps", "choose from 1 to 65536");
  }
  ScaleRules rules;
  rules.history = settings.history;
  rules.rule = settings.rule;
  state_ = std::make_unique<State>(rules);
}
Scales::~Scales() = default;
Scales::Scales(Scales&&) noexcept = default;
Scales& Scales::operator=(Scales&&) noexcept = default;

void Scales::add(const std::string& name, const QuantSpec& spec) {
  check(spec, name);
  const auto& entries = state_->book.entries();
  if (std::ranges::any_of(entries, [&](const auto& entry) { return entry->site.name == name; })) {
    throw Error("the scale book has " + name + " already", "give each tensor a name of its own");
  }
  PlanRow row;
  row.site = name;
  row.spec = {spec, spec};
  state_->book.add(row);
}

float Scales::scale(const std::string& name) const { return state_->book.entry(name).site.scale; }

void Scales::set_scale(const std::string& name, float scale, const std::string& reason) {
  if (!std::isfinite(scale) || scale < 0) {
    throw Error("the scale of " + name + " is " + std::to_string(scale), "give a positive number, or 0 for none");
  }
  state_->book.set_scale(name, scale, state_->step, reason);
}

void Scales::observe(const std::string& name, const CastStatistics& seen) {
  state_->book.entry(name).site.seen.merge(seen);
}

void Scales::end_step() { state_->book.end_step(++state_->step); }

std::vector<float> Scales::history(const std::string& name) const {
  const std::deque<float>& history = state_->book.entry(name).history;
  return {history.begin(), history.end()};
}

std::string Scales::to_json() const { return state_->book.to_json(); }

std::vector<std::string> Scales::load(const std::string& json) {
  return state_->book.from_json(json, ScaleBook::Import::scales_only, state_->step);
}

}  // namespace quaver
