// A rank that stands still is told from one that works, waits for others, or was asleep as a whole.
#include "cli/watchdog.h"

#include <gtest/gtest.h>
#include <optional>

#include "support/temporary_folder.h"

#include "io/file_io.h"

namespace quaver::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr Watchdog::Limits soon{.longest_standstill = 400ms, .between_looks = 5ms};
constexpr auto long_enough = 1200ms;

class WatchdogTest : public ::testing::Test {
 protected:
  // What the watchdog found while the work ran in this thread.
  template <class Work>
  std::optional<Standstill> found_during(const Work& work) {
    std::optional<Standstill> found;
    {
      const Watchdog watchdog(
          rank_, [&](const Standstill& standstill) { found = standstill; }, soon);
      work();
    }
    return found;
  }
  static void sleep() { std::this_thread::sleep_for(long_enough); }
  static void compute() {
    for (const auto end = Clock::now() + long_enough; Clock::now() < end;) continue;
  }

  std::shared_ptr<Whereabouts> rank_ = std::make_shared<Whereabouts>();
};

TEST_F(WatchdogTest, FindsARankThatSleeps) {
  const auto found = found_during(sleep);
  ASSERT_TRUE(found);
  EXPECT_GE(found->seconds, 0.4);
  EXPECT_EQ((Standstill{.seconds = 45.2}.text()), "has done nothing for 45 seconds");
}

TEST_F(WatchdogTest, LeavesARankThatComputes) { EXPECT_FALSE(found_during(compute)); }

TEST_F(WatchdogTest, LeavesARankThatWaitsForOthers) {
  EXPECT_FALSE(found_during([&] {
    const Wait wait(*rank_, &Whereabouts::waits_for_ranks);
    sleep();
  }));
}

TEST_F(WatchdogTest, FindsARankWhoseDeviceStandsStill) {
  const auto found = found_during([&] {
    const Wait wait(*rank_, &Whereabouts::waits_for_device);
    compute();  // as a host does that asks its GPU again and again
  });
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->in_device);
}

TEST_F(WatchdogTest, LeavesARankWhoseDeviceIsInACollective) {
  EXPECT_FALSE(found_during([&] {
    const Wait wait(*rank_, &Whereabouts::waits_for_device);
    rank_->collectives_entered = 8;
    rank_->collectives_left = 7;
    sleep();
  }));
}

TEST_F(WatchdogTest, LeavesARankWhoseDeviceGetsOn) {
  EXPECT_FALSE(found_during([&] {
    const Wait wait(*rank_, &Whereabouts::waits_for_device);
    for (std::uint64_t i = 1; i <= 24; ++i) {
      rank_->collectives_entered = i;
      rank_->collectives_left = i;
      std::this_thread::sleep_for(long_enough / 24);
    }
  }));
}

TEST_F(WatchdogTest, LeavesARankThatOftenWaitsForItsDevice) {
  EXPECT_FALSE(found_during([&] {
    for (int i = 0; i < 24; ++i) {
      const Wait wait(*rank_, &Whereabouts::waits_for_device);
      std::this_thread::sleep_for(long_enough / 24);
    }
  }));
}

// The thread that writes is another one, as that of checkpoints is.
TEST_F(WatchdogTest, LeavesARankWhoseFilesAreWritten) {
  const TemporaryFolder folder;
  EXPECT_FALSE(found_during([&] {
    std::thread writer([&] {
      const std::string text(200'000, 'x');
      for (int i = 0; i < 24; ++i) {
        write_file_atomically(folder.path() / "file", text);
        std::this_thread::sleep_for(long_enough / 24);
      }
    });
    writer.join();
  }));
}

TEST_F(WatchdogTest, CountsWhatIsBroughtToDisk) {
  const TemporaryFolder folder;
  constexpr std::uint64_t size = 40'000'000;
  SharedFile::create(folder.path() / "file", size);
  SharedFile file(folder.path() / "file");
  const std::uint64_t before = synced_bytes();
  file.sync();
  EXPECT_EQ(synced_bytes() - before, size);
}

}  // namespace
}  // namespace quaver::test
