// An engine's memory: cleared, aligned, and reached from the host without a change of a byte.
#include <cstdint>
#include <numeric>

#include "engine/support.h"

namespace quaver::test {
namespace {

TEST(EngineMemory, IsClearedAndAligned) {
  const auto engine = make_cpu_engine(1);
  for (const std::size_t bytes : {0, 1, 255, 256, 100000}) {
    const std::shared_ptr<std::byte> memory = engine->device().allocate(bytes);
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.get()) % 256, 0U);
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(memory.get()[i], std::byte{0});
  }
}

TEST(EngineMemory, UploadAndDownloadAreInverse) {
  const auto engine = make_cpu_engine(1);
  std::vector<std::uint8_t> sent(1001);
  std::iota(sent.begin(), sent.end(), std::uint8_t{3});
  std::vector<std::uint8_t> received(sent.size(), 0);
  const std::shared_ptr<std::byte> memory = engine->device().allocate(sent.size());
  engine->device().upload(sent.data(), memory.get(), sent.size());
  engine->device().download(memory.get(), received.data(), received.size());
  EXPECT_EQ(received, sent);
}

TEST(EngineMemory, FillZeroClearsTheViewAndNothingBeyond) {
  const auto engine = make_cpu_engine(1);
  Matrix x(5, 3, 7);
  engine->run(FillZero{x.view().row_range(1, 3)});
  for (Size r = 0; r < 5; ++r) {
    for (Size c = 0; c < 3; ++c) EXPECT_EQ(x(r, c), r == 0 || r == 4 ? 7.0F : 0.0F);
  }
}

}  // namespace
}  // namespace quaver::test
