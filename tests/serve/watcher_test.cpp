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
using ::testing::StartsWith;

void remove_run(const std::filesystem::path& store, const std::string& id) {
  Database database(store, Database::Access::existing, std::chrono::seconds(5));
  database.execute("DELETE FROM runs WHERE id='" + id + "'");
}

// A store, and who finds what changed in it.
class ChangeFinderTest : public testing::Test {
 protected:
  RunRecorder recorder(const std::string& id) const {
    return RunRecorder(folder_.store(), describe_run(id), 0, [](const std::string& text) { ADD_FAILURE() << text; });
  }

  const StoreFolder folder_;
  StoreHandle handle_{folder_.store()};
  ChangeFinder finder_{handle_};
};

TEST_F(ChangeFinderTest, TellsEachChangeOnce) {
  EXPECT_EQ(finder_.poll(), "");
  RunRecorder one = recorder("one");
  ASSERT_TRUE(one.flush());
  EXPECT_EQ(finder_.poll(), runs_event);
  EXPECT_EQ(finder_.poll(), "");

  one.event(3, "note", "text");
  const MetricValue loss{"loss", 3};
  one.metrics(3, {&loss, 1});
  ASSERT_TRUE(one.flush());
  const std::string events = finder_.poll();
  EXPECT_THAT(events, HasSubstr("event: change\ndata: {"));
  EXPECT_THAT(events, HasSubstr("\"events\""));
  EXPECT_THAT(events, HasSubstr("\"metrics\""));
  EXPECT_THAT(events, HasSubstr("\"step\":3"));
  EXPECT_THAT(events, Not(HasSubstr("numerics")));
  EXPECT_EQ(finder_.poll(), "");

  one.status(RunStatus::finished);
  ASSERT_TRUE(one.flush());
  EXPECT_THAT(finder_.poll(), HasSubstr("\"status\""));
}

TEST_F(ChangeFinderTest, NoticesAStoreThatIsReplacedOrBroken) {
  record_run(folder_.store(), describe_run("one"));
  EXPECT_EQ(finder_.poll(), runs_event);
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(folder_.store().string() + end);
  EXPECT_EQ(finder_.poll(), runs_event) << "all runs have gone";
  record_run(folder_.store(), describe_run("two"));
  EXPECT_EQ(finder_.poll(), runs_event);
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(folder_.store().string() + end);
  std::ofstream(folder_.store()) << "not a store";
  EXPECT_EQ(finder_.poll(), "") << "who asks is told; the stream waits";
}

TEST_F(ChangeFinderTest, NamesEachKindOnceAndTheStep) {
  RunRecorder one = recorder("one");
  ASSERT_TRUE(one.flush());
  EXPECT_EQ(finder_.poll(), runs_event);
  const auto execute = [&](const std::string& sql) {
    Database(folder_.store(), Database::Access::existing, std::chrono::seconds(5)).execute(sql);
  };
  const MetricValue loss{"loss", 3};
  one.metrics(12, {&loss, 1});
  one.event(12, "a", "b");
  ASSERT_TRUE(one.flush());
  EXPECT_EQ(finder_.poll(),
            "event: change\ndata: {\"kinds\":[\"events\",\"metrics\"],\"run\":\"one\",\"step\":12}\n\n");
  one.status(RunStatus::finished);
  ASSERT_TRUE(one.flush());
  EXPECT_EQ(finder_.poll(), "event: change\ndata: {\"kinds\":[\"status\"],\"run\":\"one\",\"step\":12}\n\n")
      << "the status changed and says so itself: once";
  execute("UPDATE runs SET status='running', heartbeat=heartbeat-61");
  EXPECT_EQ(finder_.poll(), "event: change\ndata: {\"kinds\":[\"status\"],\"run\":\"one\",\"step\":12}\n\n")
      << "lost: nothing was counted, but the status is another";
  execute("UPDATE revisions SET revision=0 WHERE kind='events'");
  EXPECT_EQ(finder_.poll(), "event: change\ndata: {\"kinds\":[\"events\"],\"run\":\"one\",\"step\":12}\n\n")
      << "another count than before, in whichever direction";
  EXPECT_EQ(finder_.poll(), "");
}

TEST_F(ChangeFinderTest, TellsOfARunThatVanished) {
  record_run(folder_.store(), describe_run("one"));
  record_run(folder_.store(), describe_run("two"));
  EXPECT_EQ(finder_.poll(), runs_event);
  remove_run(folder_.store(), "one");
  EXPECT_EQ(finder_.poll(), runs_event);
  EXPECT_EQ(finder_.poll(), "");
}

TEST_F(ChangeFinderTest, TellsOfRunsFirstAndThenOfTheirChanges) {
  RunRecorder one = recorder("one");
  ASSERT_TRUE(one.flush());
  EXPECT_EQ(finder_.poll(), runs_event);
  const MetricValue loss{"loss", 3};
  one.metrics(4, {&loss, 1});
  ASSERT_TRUE(one.flush());
  record_run(folder_.store(), describe_run("two"));
  const std::string events = finder_.poll();
  EXPECT_THAT(events, StartsWith(std::string(runs_event)));
  EXPECT_THAT(events, HasSubstr("event: change\ndata: {\"kinds\":[\"metrics\"],\"run\":\"one\",\"step\":4}\n\n"));
}

}  // namespace
}  // namespace quaver::test
