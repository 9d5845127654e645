// Memory planned ahead: one block handed out from both ends. What backward needs again grows from the bottom, what
// lives for a few calls grows from the top, and a dry run over an arena without memory tells how large it must be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/view.h"

namespace quaver {

class Arena {
 public:
  Arena() = default;  // measures: hands out addresses that must not be touched
  Arena(void* memory, std::size_t bytes) : memory_(static_cast<std::byte*>(memory)), capacity_(bytes) {}

  View saved(Size rows, Size cols, Format format) { return take_view(rows, cols, format, &Arena::take_saved); }
  View scratch(Size rows, Size cols, Format format) { return take_view(rows, cols, format, &Arena::take_scratch); }
  std::byte* take_saved(std::size_t bytes);
  std::byte* take_scratch(std::size_t bytes);

  // Forgets everything: the start of a micro-step.
  void reset() { saved_ = scratch_ = 0; }

  std::size_t peak() const { return peak_; }
  std::size_t peak_saved() const { return peak_saved_; }
  std::size_t capacity() const { return capacity_; }

  // Gives back the scratch memory taken since the mark.
  std::size_t mark() const { return scratch_; }
  void rewind(std::size_t mark) { scratch_ = mark; }

  // Rewinds to where it began when it ends.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
    ~Scope() { arena_.rewind(mark_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    std::size_t mark_;
  };

 private:
  using Take = std::byte* (Arena::*)(std::size_t);
  View take_view(Size rows, Size cols, Format format, Take take);
  void note_use();

  std::byte* memory_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t saved_ = 0;
  std::size_t scratch_ = 0;
  std::size_t peak_ = 0;
  std::size_t peak_saved_ = 0;
};

}  // namespace quaver
