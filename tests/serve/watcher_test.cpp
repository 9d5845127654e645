// Changes are told once, by run and kind.
#include "serve/watcher.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/client.h"
#include "serve/sample_store.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void fail(const std::string& text) { ADD_FAILURE() << text; }

TEST(ChangeFinder, TellsEachChangeOnce) {
  const StoreFolder folder;
  StoreDoor door(folder.store());
  ChangeFinder finder(door);
  EXPECT_EQ(finder.look(), "");
  RunRecorder recorder(folder.store(), describe_run("one"), 0, fail);
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(finder.look(), runs_event);
  EXPECT_EQ(finder.look(), "");

  recorder.event(3, "note", "text");
  const MetricValue loss{"loss", 3};
  recorder.metrics(3, {&loss, 1});
  ASSERT_TRUE(recorder.flush());
  const std::string events = finder.look();
  EXPECT_THAT(events, HasSubstr("event: change\ndata: {"));
  EXPECT_THAT(events, HasSubstr("\"events\""));
  EXPECT_THAT(events, HasSubstr("\"metrics\""));
  EXPECT_THAT(events, HasSubstr("\"step\":3"));
  EXPECT_THAT(events, Not(HasSubstr("numerics")));
  EXPECT_EQ(finder.look(), "");

  recorder.status(RunStatus::finished);
  ASSERT_TRUE(recorder.flush());
  EXPECT_THAT(finder.look(), HasSubstr("\"status\""));
}

TEST(ChangeFinder, NoticesAStoreThatIsReplacedOrBroken) {
  const StoreFolder folder;
  StoreDoor door(folder.store());
  ChangeFinder finder(door);
  record_run(folder.store(), describe_run("one"));
  EXPECT_EQ(finder.look(), runs_event);
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(folder.store().string() + end);
  EXPECT_EQ(finder.look(), runs_event) << "all runs have gone";
  record_run(folder.store(), describe_run("two"));
  EXPECT_EQ(finder.look(), runs_event);
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(folder.store().string() + end);
  std::ofstream(folder.store()) << "not a store";
  EXPECT_EQ(finder.look(), "") << "who asks is told; the stream waits";
}

}  // namespace
}  // namespace quaver::test
