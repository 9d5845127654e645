// What the recorder's queue keeps when it is full, and the signs of life of a run that has nothing to record.
#include <gmock/gmock.h>
#include <thread>

#include "store/store_fixture.h"

namespace quaver {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;

class Queue : public StoreTest {
 protected:
  RecorderLimits full() {
    RecorderLimits limits = quick();
    limits.other_bytes = 0;
    return limits;
  }
  double updated() const { return StoreReader(store_).run("a").summary.updated; }
};

TEST_F(Queue, AFullQueueStillTakesTheStatus) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), full());
  record_metric(recorder, 1, 2.5);
  recorder.status(RunStatus::finished);
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(recorder.dropped(), 1U);
  const RunDetails details = StoreReader(store_).run("a");
  EXPECT_EQ(details.summary.status, RunStatus::finished);
  EXPECT_TRUE(details.metrics.empty());
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_THAT(warnings_[0], HasSubstr("left out"));
}

TEST_F(Queue, AFullQueueStillTakesARewind) {
  {
    RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
    for (std::uint64_t step = 1; step <= 5; ++step) record_metric(recorder, step, 2);
    ASSERT_TRUE(recorder.flush());
  }
  RunRecorder recorder(store_, small_run("a"), 5, collect(), full());
  recorder.rewind(2);
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(recorder.dropped(), 0U);
  EXPECT_THAT(StoreReader(store_).metrics("a", {}).at("loss").step, ElementsAre(1, 2));
}

// A sample of numerics always fits an empty queue, however small the limit is.
TEST_F(Queue, OneSampleOfNumericsAlwaysFits) {
  RecorderLimits limits = quick();
  limits.numerics_bytes = 1;
  const RunDescription run = small_run("a");
  RunRecorder recorder(store_, run, 0, collect(), limits);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    recorder.numerics(step, values_of(run, step));
    ASSERT_TRUE(recorder.flush());
  }
  EXPECT_EQ(recorder.dropped(), 0U);
}

TEST_F(Queue, ARunningRunGivesSignsOfLifeAndAFinishedOneNone) {
  RecorderLimits limits = quick();
  limits.heartbeat_every = std::chrono::milliseconds(20);
  RunRecorder recorder(store_, small_run("a"), 0, collect(), limits);
  ASSERT_TRUE(recorder.flush());
  const double first = updated();
  for (int i = 0; i < 1000 && updated() == first; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GT(updated(), first);
  recorder.status(RunStatus::finished);
  ASSERT_TRUE(recorder.flush());
  const double last = updated();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(updated(), last);
}

TEST_F(Queue, WithoutNeedThereIsNoSignOfLifeBeforeItIsDue) {
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  ASSERT_TRUE(recorder.flush());
  const double first = updated();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(updated(), first);
}

}  // namespace
}  // namespace quaver
