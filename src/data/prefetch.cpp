#include <fmt/format.h>

#include "data/loader.h"
#include "quaver/error.h"

namespace quaver {

PrefetchLoader::PrefetchLoader(const TokenSource& source, const BatchOrder& order, std::int64_t batch,
                               std::int64_t context, int depth)
    : source_(source), order_(order), batch_(batch), context_(context) {
  if (batch <= 0 || context <= 0 || depth <= 0) {
    throw Error(fmt::format("a loader of {} sequences of {} tokens, {} batches ahead", batch, context, depth),
                "all three must be at least 1");
  }
  slots_.resize(static_cast<std::size_t>(depth) + 1);  // one more for the batch in the caller's hands
  for (Slot& slot : slots_) {
    slot.inputs.resize(static_cast<std::size_t>(batch * context));
    slot.targets.resize(slot.inputs.size());
    if (source.packs_documents()) slot.document_starts.resize(slot.inputs.size());
  }
  thread_ = std::thread([this] { run(); });
}

PrefetchLoader::~PrefetchLoader() {
  {
    const std::scoped_lock guard(lock_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PrefetchLoader::run() {
  std::unique_lock guard(lock_);
  while (true) {
    changed_.wait(guard, [&] { return stopping_ || next_to_fill_ - oldest_held_ < slots_.size(); });
    if (stopping_) return;
    const std::uint64_t number = next_to_fill_;
    guard.unlock();
    std::exception_ptr failure;
    try {
      Slot& slot = slot_of(number);
      source_.fill(order_.index(number), batch_, context_, slot.inputs.data(), slot.targets.data());
      source_.fill_document_starts(order_.index(number), batch_, context_, slot.document_starts.data());
    } catch (...) {
      failure = std::current_exception();
    }
    guard.lock();
    failure_ = failure;
    if (!failure) next_to_fill_ = number + 1;
    changed_.notify_all();
    if (failure) return;
  }
}

PrefetchLoader::Batch PrefetchLoader::next() {
  std::unique_lock guard(lock_);
  oldest_held_ = next_to_take_;  // the batch before is given up here
  changed_.notify_all();
  changed_.wait(guard, [&] { return next_to_fill_ > next_to_take_ || failure_; });
  if (next_to_fill_ == next_to_take_) std::rethrow_exception(failure_);
  const std::uint64_t number = next_to_take_++;
  const Slot& slot = slot_of(number);
  return {order_.index(number), slot.inputs, slot.targets, slot.document_starts};
}

}  // namespace quaver
