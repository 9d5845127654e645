#include "tensor/arena.h"

#include <algorithm>
#include <string>

#include "quaver/error.h"

namespace quaver {

namespace {

constexpr std::size_t alignment = 256;

// Where a measuring arena pretends to lie: a byte that nobody may touch, so that views are not empty.
std::byte nowhere{};

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

void Arena::note_use() {
  peak_ = std::max(peak_, saved_ + scratch_);
  peak_saved_ = std::max(peak_saved_, saved_);
  if (memory_ != nullptr && saved_ + scratch_ > capacity_) {
    throw Error("the planned memory of " + std::to_string(capacity_) + " bytes does not hold this step, which needs " +
                    std::to_string(saved_ + scratch_),
                "the batch or sequence is larger than the one that was planned for");
  }
}

std::byte* Arena::take_saved(std::size_t bytes) {
  const std::size_t offset = saved_;
  saved_ += aligned(bytes);
  note_use();
  return memory_ == nullptr ? &nowhere : memory_ + offset;
}

std::byte* Arena::take_scratch(std::size_t bytes) {
  scratch_ += aligned(bytes);
  note_use();
  if (memory_ == nullptr) return &nowhere;
  return memory_ + (capacity_ / alignment * alignment - scratch_);
}

View Arena::take_view(Size rows, Size cols, Format format, Take take) {
  View view{nullptr, format, rows, cols};
  view.data = (this->*take)(static_cast<std::size_t>(view.bytes()));
  return view;
}

}  // namespace quaver
