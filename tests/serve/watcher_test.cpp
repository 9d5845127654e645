// Changes are reported once, by run and kind.
#include "serve/watcher.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/client.h"
#include "serve/sample_store.h"
#include "store/database.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void fail(const std::string& text) { ADD_FAILURE() << text; }

TEST(ChangeFinder, TellsEachChangeOnce) {
  const StoreFolder folder;
  StoreHandle handle(folder.store());
  ChangeFinder finder(handle);
  EXPECT_EQ(finder.poll(), "");
  RunRecorder recorder(folder.store(), describe_run("one"), 0, fail);
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(finder.poll(), runs_event);
  EXPECT_EQ(finder.poll(), "");

  recorder.event(3, "note", "text");
  const MetricValue loss{"loss", 3};
  recorder.metrics(3, {&loss, 1});
  ASSERT_TRUE(recorder.flush());
  const std::string events = finder.poll();
  EXPECT_THAT(events, HasSubstr("event: change\ndata: {"));
  EXPECT_THAT(events, HasSubstr("\"events\""));
  EXPECT_THAT(events, HasSubstr("\"metrics\""));
  EXPECT_THAT(events, HasSubstr("\"step\":3"));
  EXPECT_THAT(events, Not(HasSubstr("numerics")));
  EXPECT_EQ(finder.poll(), "");

  recorder.status(RunStatus::finished);
  ASSERT_TRUE(recorder.flush());
  EXPECT_THAT(finder.poll(), HasSubstr("\"status\""));
}

TEST(ChangeFinder, NoticesAStoreThatIsReplacedOrBroken) {
  const StoreFolder folder;
  StoreHandle handle(folder.store());
  ChangeFinder finder(handle);
  record_run(folder.store(), describe_run("one"));
  EXPECT_EQ(finder.poll(), runs_event);
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(folder.store().string() + end);
  EXPECT_EQ(finder.poll(), runs_event) << "all runs have gone";
  record_run(folder.store(), describe_run("two"));
  EXPECT_EQ(finder.poll(), runs_event);
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(folder.store().string() + end);
  std::ofstream(folder.store()) << "not a store";
  EXPECT_EQ(finder.poll(), "") << "who asks is told; the stream waits";
}

TEST(ChangeFinder, NamesEachKindOnceAndTheStep) {
  const StoreFolder folder;
  StoreHandle handle(folder.store());
  ChangeFinder finder(handle);
  RunRecorder recorder(folder.store(), describe_run("one"), 0, [](const std::string& text) { ADD_FAILURE() << text; });
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(finder.poll(), runs_event);
  const auto execute = [&](const std::string& sql) {
    Database(folder.store(), Database::Access::existing, std::chrono::seconds(5)).execute(sql);
  };
  const MetricValue loss{"loss", 3};
  recorder.metrics(12, {&loss, 1});
  recorder.event(12, "a", "b");
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(finder.poll(), "event: change\ndata: {\"kinds\":[\"events\",\"metrics\"],\"run\":\"one\",\"step\":12}\n\n");
  recorder.status(RunStatus::finished);
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(finder.poll(), "event: change\ndata: {\"kinds\":[\"status\"],\"run\":\"one\",\"step\":12}\n\n")
      << "the status changed and says so itself: once";
  execute("UPDATE runs SET status='running', heartbeat=heartbeat-61");
  EXPECT_EQ(finder.poll(), "event: change\ndata: {\"kinds\":[\"status\"],\"run\":\"one\",\"step\":12}\n\n")
      << "lost: nothing was counted, but the status is another";
  execute("UPDATE revisions SET revision=0 WHERE kind='events'");
  EXPECT_EQ(finder.poll(), "event: change\ndata: {\"kinds\":[\"events\"],\"run\":\"one\",\"step\":12}\n\n")
      << "another count than before, in whichever direction";
  EXPECT_EQ(finder.poll(), "");
}

}  // namespace
}  // namespace quaver::test
