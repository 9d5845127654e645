#include "train/sharded_pass.h"

#include <utility>

namespace quaver {

void ShardedPass::plan(std::uint64_t key, Take take) {
  gathers_ = !parameters_.moves_by_section() && weights_.take_due();
  weights_.gather();
  key_ = 2 * key + (gathers_ ? 1 : 0);
  take_ = std::move(take);
}

void ShardedPass::begin_pass() {
  slots_ = {};
  departures_ = {};
  used_ = 0;
  current_ = none;
  arrivals_ = gathers_ ? weights_.gather_aside() : std::vector<Device::Place>{};
}

void ShardedPass::use(Size section) {
  if (parameters_.moves_by_section()) move(section);
  if (gathers_) engine_.device().wait_for(arrivals_[static_cast<std::size_t>(parameters_.bucket_of(section))]);
}

// The section that was used next when a pass got here before is the one to fetch now: a model's passes go the same way,
// and one that only evaluates goes half of it.
void ShardedPass::move(Size section) {
  if (section == current_) return;
  current_ = section;
  if (used_ < order_.size() && order_[used_] != section) order_.resize(used_);
  if (used_ == order_.size()) order_.push_back(section);
  ++used_;
  fetch(section);
  engine_.device().wait_for(slots_[Parameters::slot_of(section)].arrival);
  if (used_ == order_.size()) return;
  const Size next = order_[used_];
  if (Parameters::slot_of(next) != Parameters::slot_of(section)) fetch(next);
}

void ShardedPass::fetch(Size section) {
  Slot& slot = slots_[Parameters::slot_of(section)];
  if (slot.section == section) return;
  slot.section = section;
  slot.arrival = engine_.device().aside([this, section] { weights_.gather_section(section); });
}

void ShardedPass::begin_gradients(Size section) {
  if (!parameters_.place().has(ShardMode::gradients)) return;
  engine_.device().wait_for(departures_[Parameters::slot_of(section)]);
  parameters_.clear_gradients(engine_, section);
}

void ShardedPass::end_gradients(Size section) {
  const Size bucket = parameters_.bucket_of(section);
  if (take_ == nullptr || parameters_.buckets()[static_cast<std::size_t>(bucket)].first != section) return;
  departures_[Parameters::slot_of(section)] = take_(bucket);
}

void ShardedPass::end_pass() { engine_.device().wait_for_aside(); }

}  // namespace quaver
