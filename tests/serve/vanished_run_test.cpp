// A run that is removed from the store is reported, as one that is added.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/client.h"
#include "serve/sample_store.h"
#include "serve/watcher.h"
#include "store/database.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

void remove_run(const std::filesystem::path& store, const std::string& id) {
  Database database(store, Database::Access::existing, std::chrono::seconds(5));
  database.execute("DELETE FROM runs WHERE id='" + id + "'");
}

TEST(ChangeFinder, TellsOfARunThatVanished) {
  const StoreFolder folder;
  StoreHandle handle(folder.store());
  ChangeFinder finder(handle);
  record_run(folder.store(), describe_run("one"));
  record_run(folder.store(), describe_run("two"));
  EXPECT_EQ(finder.poll(), runs_event);
  remove_run(folder.store(), "one");
  EXPECT_EQ(finder.poll(), runs_event);
  EXPECT_EQ(finder.poll(), "");
}

TEST(ChangeFinder, TellsOfRunsFirstAndThenOfTheirChanges) {
  const StoreFolder folder;
  StoreHandle handle(folder.store());
  ChangeFinder finder(handle);
  RunRecorder recorder(folder.store(), describe_run("one"), 0, [](const std::string& text) { ADD_FAILURE() << text; });
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(finder.poll(), runs_event);
  const MetricValue loss{"loss", 3};
  recorder.metrics(4, {&loss, 1});
  ASSERT_TRUE(recorder.flush());
  record_run(folder.store(), describe_run("two"));
  const std::string events = finder.poll();
  EXPECT_THAT(events, StartsWith(std::string(runs_event)));
  EXPECT_THAT(events, HasSubstr("event: change\ndata: {\"kinds\":[\"metrics\"],\"run\":\"one\",\"step\":4}\n\n"));
}

}  // namespace
}  // namespace quaver::test
