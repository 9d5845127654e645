// What can go wrong with a store: killed trainers, full disks, locks, damage, read-only folders, other versions.
#include <csignal>
#include <fstream>
#include <gmock/gmock.h>
#include <optional>
#include <random>
#include <sstream>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>

#include "store/run_edits.h"
#include "store/store_fixture.h"

namespace quaver {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Clock = std::chrono::steady_clock;

class StoreTrouble : public StoreTest {
 protected:
  void TearDown() override {
    if (mounted_) umount2(folder_.c_str(), MNT_DETACH);
    StoreTest::TearDown();
  }

  // A file system of its own for the folder, of this size. False where only root may do so.
  bool mount_folder(const std::string& options) {
    mounted_ = mount("tmpfs", folder_.c_str(), "tmpfs", 0, options.c_str()) == 0;
    return mounted_;
  }

  bool mounted_ = false;
};

// Holds the write lock of a store, as a forgotten shell does.
class Lock {
 public:
  explicit Lock(const fs::path& store) {
    EXPECT_EQ(sqlite3_open(store.c_str(), &database_), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database_, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  }
  ~Lock() { release(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void release() {
    sqlite3_close(database_);
    database_ = nullptr;
  }

 private:
  sqlite3* database_ = nullptr;
};

// Calls of a trainer must not wait for the store; generous, for a busy machine.
double slowest_call_ms(RunRecorder& recorder, const RunDescription& run, std::uint64_t from, std::uint64_t to) {
  double slowest = 0;
  for (std::uint64_t step = from; step <= to; ++step) {
    const std::vector<float> figures = values_of(run, step);
    const auto start = Clock::now();
    record_metric(recorder, step, static_cast<double>(step));
    recorder.numerics(step, figures);
    slowest = std::max(slowest, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return slowest;
}

// A trainer that records until it is killed.
[[noreturn]] void train_for_ever(const fs::path& store, std::uint64_t last_step) {
  const RunDescription run = small_run("killed");
  RunRecorder recorder(
      store, run, last_step, [](const std::string&) { _exit(3); }, quick());
  for (std::uint64_t step = last_step + 1;; ++step) {
    record_metric(recorder, step, static_cast<double>(step));
    recorder.numerics(step, values_of(run, step), std::vector<BinadeCounts>(run.sites.size(), BinadeCounts{step}));
    recorder.event(step, "tick", "tock");
    if (step % 8 == 0) recorder.flush();
  }
}

// Everything up to some step, and nothing else. Gives the step.
std::uint64_t check_prefix(const fs::path& store) {
  const StoreReader reader(store);
  if (reader.runs().empty()) return 0;
  const RunDescription run = small_run("killed");
  const std::uint64_t last = reader.run("killed").summary.step;
  std::uint64_t expected = 0;
  reader.visit_metrics("killed", [&](std::uint64_t step, std::span<const MetricValue> values) {
    EXPECT_EQ(step, ++expected);
    EXPECT_THAT(values, SizeIs(2));
    EXPECT_EQ(values[0].value, static_cast<double>(step));
  });
  EXPECT_EQ(expected, last);
  std::uint64_t samples = 0;
  const std::string names[] = {"amax", "sqnr_db", "mean"};
  reader.visit_numerics("killed", names, [&](std::uint64_t step, std::span<const float> figures) {
    EXPECT_EQ(step, ++samples);
    const std::vector<float> recorded = values_of(run, step);
    EXPECT_TRUE(std::equal(figures.begin(), figures.end(), recorded.begin(), recorded.end(), same));
  });
  EXPECT_LE(samples, last);  // a transaction may end between a step's metrics and its numerics
  EXPECT_GE(samples + 1, last);
  return samples;
}

TEST_F(StoreTrouble, ATrainerKilledAHundredTimesLeavesAGoodStore) {
  std::mt19937 random(11);
  std::uint64_t last = 0;
  std::uint64_t furthest = 0;
  for (int round = 0; round < 100; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) train_for_ever(store_, last);
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + random() % 20000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the trainer ended by itself: " << WEXITSTATUS(status);
    if (!fs::exists(store_)) continue;
    std::optional<std::uint64_t> reached;
    try {  // the reader comes first: nobody else may have repaired anything for it
      reached = check_prefix(store_);
    } catch (const Error&) {
    }
    ASSERT_FALSE(HasFailure()) << "round " << round;
    if (round % 10 == 0) {
      ASSERT_EQ(sql(store_, "PRAGMA integrity_check"), "ok");
    }
    if (!reached) {
      ASSERT_EQ(sql(store_, "PRAGMA user_version"), "0");  // killed before the tables were made
      continue;
    }
    furthest = std::max(furthest, *reached);
    last = *reached / 8 * 4;  // as from a checkpoint well before
  }
  EXPECT_EQ(sql(store_, "PRAGMA integrity_check"), "ok");
  EXPECT_GT(furthest, 8U);
}

TEST_F(StoreTrouble, SeveralProcessesWriteToOneStore) {
  constexpr int processes = 3;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int warned = 0;
      const RunDescription run = small_run(fmt::format("p{}", i));
      {
        RunRecorder recorder(
            store_, run, 0, [&](const std::string&) { ++warned; }, quick());
        for (std::uint64_t step = 1; step <= 100; ++step) {
          record_metric(recorder, step, 1);
          recorder.numerics(step, values_of(run, step));
          if (step % 10 == 0 && !recorder.flush()) ++warned;
        }
      }
      _exit(warned == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const StoreReader reader(store_);
  for (int i = 0; i < processes; ++i) {
    EXPECT_THAT(reader.metrics(fmt::format("p{}", i), {}).at("loss").step, SizeIs(100));
  }
}

TEST_F(StoreTrouble, AFullDiskIsOneWarningAndRecordingGoesOnWhenThereIsRoomAgain) {
  if (!mount_folder("size=600k")) GTEST_SKIP() << "mounting a small file system needs root";
  const RunDescription run = small_run("a", 40);
  RecorderLimits limits = quick();
  limits.longest_retry = std::chrono::milliseconds(20);
  RunRecorder recorder(store_, run, 0, collect(), limits);
  ASSERT_TRUE(recorder.recording()) << testing::PrintToString(warnings_);
  std::uint64_t step = 0;
  while (warnings_.empty() && step < 5000) {
    slowest_call_ms(recorder, run, step + 1, step + 50);
    recorder.flush(std::chrono::seconds(2));
    step += 50;
  }
  ASSERT_THAT(warnings_, ElementsAre(HasSubstr("not being recorded")));
  EXPECT_THAT(warnings_[0], HasSubstr("free space"));
  EXPECT_LT(slowest_call_ms(recorder, run, step + 1, step + 200), 200);
  step += 200;
  EXPECT_FALSE(recorder.flush(std::chrono::seconds(2)));
  EXPECT_THAT(warnings_, SizeIs(1));
  EXPECT_TRUE(recorder.recording());
  EXPECT_NO_THROW(StoreReader(store_).metrics("a", {}));

  ASSERT_EQ(mount("tmpfs", folder_.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
  bool written = false;
  for (int i = 0; i < 100 && !written; ++i) written = recorder.flush();
  EXPECT_TRUE(written);
  EXPECT_THAT(StoreReader(store_).metrics("a", {}, 0, 100000).at("loss").step, SizeIs(step));
  EXPECT_EQ(sql(store_, "PRAGMA integrity_check"), "ok");
  EXPECT_THAT(warnings_, SizeIs(1));
}

TEST_F(StoreTrouble, AFileThatMayNotGrowIsOneWarning) {
  const pid_t child = fork();  // the limit holds for a whole process
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{300000, 300000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const RunDescription run = small_run("a", 40);
    int warned = 0;
    bool slow = false;
    {
      RunRecorder recorder(
          store_, run, 0, [&](const std::string&) { ++warned; }, quick());
      for (std::uint64_t step = 0; step < 1000; step += 50) {
        slow = slow || slowest_call_ms(recorder, run, step + 1, step + 50) > 200;
        recorder.flush(std::chrono::seconds(2));
      }
    }
    _exit(warned == 1 && !slow ? 0 : 10 + warned);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(sql(store_, "PRAGMA integrity_check"), "ok");
}

TEST_F(StoreTrouble, AStoreThatAnotherHoldsLockedIsWrittenOnceItIsFree) {
  const RunDescription run = small_run("a");
  RecorderLimits limits = quick();
  limits.busy_timeout = std::chrono::milliseconds(20);
  limits.longest_retry = std::chrono::milliseconds(20);
  RunRecorder recorder(store_, run, 0, collect(), limits);
  Lock lock(store_);
  EXPECT_LT(slowest_call_ms(recorder, run, 1, 50), 200);
  EXPECT_FALSE(recorder.flush());
  EXPECT_LT(slowest_call_ms(recorder, run, 51, 100), 200);
  EXPECT_FALSE(recorder.flush());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("locked")));
  lock.release();
  bool written = false;
  for (int i = 0; i < 100 && !written; ++i) written = recorder.flush();
  EXPECT_TRUE(written);
  EXPECT_THAT(StoreReader(store_).metrics("a", {}).at("loss").step, SizeIs(100));
  EXPECT_THAT(StoreReader(store_).numerics("a", {.statistic = "amax", .role = "x"}).steps, SizeIs(100));
  EXPECT_THAT(warnings_, SizeIs(1));
}

TEST_F(StoreTrouble, AStoreThatStaysLockedAtTheStartIsOneWarning) {
  { const RunRecorder recorder(store_, small_run("a"), 0, collect(), quick()); }
  const Lock lock(store_);
  RecorderLimits limits = quick();
  limits.busy_timeout = std::chrono::milliseconds(20);
  RunRecorder recorder(store_, small_run("b"), 0, collect(), limits);
  EXPECT_FALSE(recorder.recording());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("locked")));
}

TEST_F(StoreTrouble, NumericsAreDroppedFirstWhenTheQueueIsFull) {
  const RunDescription run = small_run("a");
  RecorderLimits limits = quick();
  limits.busy_timeout = std::chrono::milliseconds(20);
  limits.numerics_bytes = 10 * run.sites.size() * run.statistics.size() * sizeof(float);
  {
    RunRecorder recorder(store_, run, 0, collect(), limits);
    Lock lock(store_);
    slowest_call_ms(recorder, run, 1, 200);
    EXPECT_EQ(recorder.dropped(), 190U);
    lock.release();
    while (!recorder.flush()) {
    }
  }
  const StoreReader reader(store_);
  EXPECT_THAT(reader.metrics("a", {}).at("loss").step, SizeIs(200));
  EXPECT_THAT(reader.numerics("a", {.statistic = "amax", .role = "x"}).steps, SizeIs(10));
  EXPECT_THAT(reader.events("a"), SizeIs(1));
  EXPECT_EQ(reader.events("a").back().text, "190 records were left out of the store");
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("left out")).Times(1));
  EXPECT_LE(warnings_.size(), 2U);  // and perhaps one that it is locked
}

TEST_F(StoreTrouble, MetricsAreBoundedTooButTheStatusIsNot) {
  const RunDescription run = small_run("a");
  RecorderLimits limits = quick();
  limits.busy_timeout = std::chrono::milliseconds(20);
  limits.other_bytes = 2000;
  RunRecorder recorder(store_, run, 0, collect(), limits);
  Lock lock(store_);
  for (std::uint64_t step = 1; step <= 1000; ++step) record_metric(recorder, step, 1);
  recorder.status(RunStatus::failed);
  EXPECT_GT(recorder.dropped(), 900U);
  lock.release();
  while (!recorder.flush()) {
  }
  EXPECT_EQ(StoreReader(store_).run("a").summary.status, RunStatus::failed);
}

TEST_F(StoreTrouble, AFileThatIsNoStoreIsLeftAlone) {
  for (const std::string& content : {std::string(5000, 'x'), std::string("hello"), std::string("SQLite format 3")}) {
    std::ofstream(store_, std::ios::binary) << content;
    warnings_.clear();
    RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
    EXPECT_FALSE(recorder.recording());
    slowest_call_ms(recorder, small_run("a"), 1, 3);
    EXPECT_FALSE(recorder.flush());
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("move it away")));
    EXPECT_EQ(contents(store_), content);
    EXPECT_THROW(StoreReader{store_}, Error);
    fs::remove(store_);
  }
}

TEST_F(StoreTrouble, AnotherProgramsDatabaseIsLeftAlone) {
  sql(store_, "CREATE TABLE runs(key); INSERT INTO runs VALUES(1)");
  const std::string before = contents(store_);
  const RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  EXPECT_FALSE(recorder.recording());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("not a store of runs")));
  EXPECT_EQ(contents(store_), before);
  EXPECT_THROW(StoreReader{store_}, Error);
}

TEST_F(StoreTrouble, AStoreOfANewerVersionIsLeftAlone) {
  { const RunRecorder recorder(store_, small_run("a"), 0, collect(), quick()); }
  sql(store_, "PRAGMA user_version=99");
  const RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  EXPECT_FALSE(recorder.recording());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("newer version")));
  try {
    const StoreReader reader(store_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("newer version"));
    EXPECT_FALSE(error.remedy().empty());
  }
}

TEST_F(StoreTrouble, AMissingStoreIsAnErrorThatNamesIt) {
  try {
    const StoreReader reader(store_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(store_.string()));
    EXPECT_FALSE(error.remedy().empty());
  }
  EXPECT_FALSE(fs::exists(store_));
}

TEST_F(StoreTrouble, AFolderThatIsNotThereIsOneWarning) {
  RunRecorder recorder(folder_ / "none" / "quaver.db", small_run("a"), 0, collect(), quick());
  EXPECT_FALSE(recorder.recording());
  slowest_call_ms(recorder, small_run("a"), 1, 3);
  EXPECT_THAT(warnings_, SizeIs(1));
}

TEST_F(StoreTrouble, AReadOnlyFolderCanBeReadAndIsOneWarningToTheRecorder) {
  if (!mount_folder("size=8m")) GTEST_SKIP() << "mounting a file system needs root";
  {
    RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
    record_metric(recorder, 1, 2.5);
  }
  ASSERT_EQ(mount("tmpfs", folder_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, ""), 0);
  const StoreReader reader(store_);
  EXPECT_EQ(reader.run("a").summary.loss, 2.5);
  EXPECT_THROW(edit_run(store_, "a", {.hidden = true}), Error);
  EXPECT_THAT(warnings_, IsEmpty());
  RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
  EXPECT_FALSE(recorder.recording());
  EXPECT_THAT(warnings_, SizeIs(1));
}

// A store with a bit of everything, so that damage anywhere meets a reader.
void fill(const fs::path& store) {
  const RunDescription run = small_run("a", 20);
  RunRecorder recorder(store, run, 0, {}, quick());
  for (std::uint64_t step = 1; step <= 40; ++step) {
    record_metric(recorder, step, 1);
    recorder.numerics(step, values_of(run, step), std::vector<BinadeCounts>(run.sites.size(), BinadeCounts{1, 2, 3}));
    recorder.event(step, "tick", "tock");
    recorder.scale_change({step, run.sites[0].name, "why", 1, 2, "a", "b"});
    AlertRecord alert;
    alert.step = alert.last_step = step;
    recorder.alert(alert);
  }
  recorder.document("localization", std::string(9000, 'x'));
}

void ask_everything(const fs::path& store) {
  const auto ask = [](auto question) {
    try {
      question();
    } catch (const Error& error) {
      EXPECT_STRNE(error.what(), "");
    }
  };
  ask([&] {
    const StoreReader reader(store);
    ask([&] { reader.runs(); });
    ask([&] { reader.run("a"); });
    ask([&] { reader.metrics("a", {}); });
    ask([&] { reader.numerics("a", {.statistic = "amax", .role = "dy"}); });
    ask([&] { reader.history("a", "blocks.7.up/x"); });
    ask([&] { reader.histogram("a", "blocks.7.up/x", 12); });
    ask([&] { reader.changes("a"); });
    ask([&] { reader.alerts(); });
    ask([&] { reader.events("a"); });
    ask([&] { reader.document("a", "localization"); });
    ask([&] { reader.revisions(); });
  });
}

TEST_F(StoreTrouble, DamageIsAnErrorOrAnAnswerAndNothingElse) {
  fill(store_);
  const std::string good = contents(store_);
  ASSERT_GT(good.size(), 100000U);
  std::mt19937 random(7);
  for (int round = 0; round < 150; ++round) {
    std::string bad = good;
    const int kind = round % 3;
    if (kind == 0) {
      bad.resize(random() % bad.size());
    } else {
      for (int i = 0; i < (kind == 1 ? 40 : 400); ++i) bad[random() % bad.size()] = static_cast<char>(random());
    }
    std::ofstream(store_, std::ios::binary | std::ios::trunc) << bad;
    ask_everything(store_);
    if (round % 10 == 0) {  // a trainer that resumes on it goes on, recording or not
      RunRecorder recorder(store_, small_run("a", 20), 20, collect(), quick());
      slowest_call_ms(recorder, small_run("a", 20), 21, 24);
      recorder.flush();
    }
    fs::remove(store_.string() + "-wal");
    fs::remove(store_.string() + "-shm");
  }
}

TEST_F(StoreTrouble, DamageWhileRecordingEndsItWithOneWarning) {
  const RunDescription run = small_run("a", 100);
  RunRecorder recorder(store_, run, 0, collect(), quick());
  slowest_call_ms(recorder, run, 1, 40);
  ASSERT_TRUE(recorder.flush());
  sql(store_, "PRAGMA wal_checkpoint(TRUNCATE)");
  const auto size = static_cast<std::streamoff>(fs::file_size(store_));
  {
    std::fstream file(store_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(4096);
    file << std::string(static_cast<std::size_t>(size) - 4096, '\xAB');
  }
  sql(store_, "PRAGMA application_id");  // any look at the file is harmless
  for (int i = 0; i < 20 && recorder.recording(); ++i) {
    EXPECT_LT(slowest_call_ms(recorder, run, 41 + 5 * i, 45 + 5 * i), 200);
    recorder.flush(std::chrono::seconds(1));
  }
  slowest_call_ms(recorder, run, 900, 910);
  EXPECT_LE(warnings_.size(), 1U);
}

}  // namespace
}  // namespace quaver
