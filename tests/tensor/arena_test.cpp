// The arena hands out disjoint, aligned memory from both ends, and a measuring arena foretells exactly what it needs.
#include "tensor/arena.h"

#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <vector>

#include "quaver/error.h"

namespace quaver::test {
namespace {

constexpr std::size_t alignment = 256;

class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes), memory_(new (std::align_val_t{alignment}) std::byte[bytes + 1]) {}
  ~Memory() { ::operator delete[](memory_, std::align_val_t{alignment}); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Arena arena() const { return {memory_, bytes_}; }
  std::size_t offset(const void* p) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(p) - memory_);
  }

 private:
  std::size_t bytes_;
  std::byte* memory_;
};

// A pass like a training step's: some memory is kept, some lives in nested scopes.
void play(Arena& arena) {
  arena.reset();
  arena.saved(3, 5, Format::f32);
  {
    const Arena::Scope outer(arena);
    arena.scratch(7, 11, Format::bf16);
    for (int i = 0; i < 3; ++i) {
      const Arena::Scope inner(arena);
      arena.take_scratch(1000);
      arena.saved(1, 1, Format::e4m3);
    }
  }
  arena.saved(40, 2, Format::f32);
}

TEST(Arena, GrowsFromBothEndsWithoutOverlap) {
  const Memory memory(4096);
  Arena arena = memory.arena();
  const View a = arena.saved(1, 1, Format::f32);
  const View b = arena.saved(10, 7, Format::f32);
  const View c = arena.scratch(3, 3, Format::bf16);
  const View d = arena.scratch(65, 1, Format::f32);
  EXPECT_EQ(memory.offset(a.data), 0U);
  EXPECT_EQ(memory.offset(b.data), 256U);
  EXPECT_EQ(memory.offset(c.data), 4096U - 256U);
  EXPECT_EQ(memory.offset(d.data), 4096U - 256U - 512U);
  EXPECT_EQ(b.rows, 10);
  EXPECT_EQ(b.cols, 7);
  EXPECT_EQ(c.format, Format::bf16);
}

TEST(Arena, EveryAddressIsAligned) {
  const Memory memory(1 << 16);
  Arena arena = memory.arena();
  std::set<std::size_t> offsets;
  for (std::size_t bytes = 1; bytes < 600; bytes += 37) {
    for (const std::size_t offset :
         {memory.offset(arena.take_saved(bytes)), memory.offset(arena.take_scratch(bytes))}) {
      EXPECT_EQ(offset % alignment, 0U) << bytes;
      EXPECT_TRUE(offsets.insert(offset).second) << "handed out twice";
    }
  }
}

TEST(Arena, AnOddCapacityStillAlignsScratch) {
  const Memory memory(1000);
  Arena arena = memory.arena();
  const std::size_t first = memory.offset(arena.take_scratch(10));
  EXPECT_EQ(first % alignment, 0U);
  EXPECT_LE(first + 256, 1000U);
  arena.take_scratch(10);
  arena.take_scratch(10);
  EXPECT_THROW(arena.take_scratch(10), Error);  // 768 of 1000 bytes are whole lines
}

TEST(Arena, MeasuredPeakIsWhatARealPassUses) {
  Arena measuring;
  play(measuring);
  EXPECT_GT(measuring.peak(), measuring.peak_saved());
  const Memory memory(measuring.peak());
  Arena real = memory.arena();
  play(real);
  EXPECT_EQ(real.peak(), measuring.peak());
  EXPECT_EQ(real.peak_saved(), measuring.peak_saved());
  play(real);  // a second step needs no more
  EXPECT_EQ(real.peak(), measuring.peak());
}

TEST(Arena, OneLineLessThanThePeakIsAnError) {
  Arena measuring;
  play(measuring);
  const Memory memory(measuring.peak() - alignment);
  Arena real = memory.arena();
  try {
    play(real);
    FAIL() << "the step did not fit and nothing was said";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(measuring.peak() - alignment)), std::string::npos);
    EXPECT_FALSE(error.remedy().empty());
  }
}

TEST(Arena, ScopeGivesScratchBackAndKeepsWhatWasSaved) {
  const Memory memory(8192);
  Arena arena = memory.arena();
  const std::size_t mark = arena.mark();
  void* inside = nullptr;
  {
    const Arena::Scope scope(arena);
    inside = arena.take_scratch(300);
    arena.take_saved(300);
  }
  EXPECT_EQ(arena.mark(), mark);
  EXPECT_EQ(static_cast<void*>(arena.take_scratch(300)), inside);
  EXPECT_EQ(memory.offset(arena.take_saved(1)), 512U);
}

TEST(Arena, RewindReturnsToTheMark) {
  const Memory memory(8192);
  Arena arena = memory.arena();
  arena.take_scratch(100);
  const std::size_t mark = arena.mark();
  void* first = arena.take_scratch(100);
  arena.take_scratch(2000);
  arena.rewind(mark);
  EXPECT_EQ(static_cast<void*>(arena.take_scratch(100)), first);
}

TEST(Arena, ResetForgetsMemoryButNotThePeak) {
  Arena arena;
  arena.take_saved(5000);
  const std::size_t peak = arena.peak();
  arena.reset();
  EXPECT_EQ(arena.mark(), 0U);
  arena.take_saved(1);
  EXPECT_EQ(arena.peak(), peak);
  EXPECT_EQ(arena.peak_saved(), peak);
}

}  // namespace
}  // namespace quaver::test
