// Nothing is destroyed on doubt, and what was trained is not lost because a folder is gone or full.
#include <csignal>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <random>
#include <sys/wait.h>

#include "data/shard.h"
#include "quaver/error.h"
#include "store/reader.h"
#include "train/metrics.h"
#include "train/support.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

fs::path checkpoint(const Config& config, int step) {
  return fs::path(config.run.dir) / "checkpoints" / fmt::format("step-{:06}", step);
}

void damage(const fs::path& checkpoint) { std::ofstream(checkpoint / "model.safetensors") << "damaged"; }

class RecoveryTest : public testing::Test {
 protected:
  RunOptions options(RunStart start) {
    RunOptions options;
    options.start = start;
    options.observer.warning = [this](const std::string& text) { warnings_.push_back(text); };
    return options;
  }

  // As Ctrl-C would stop it.
  void train_until(const Config& config, Size steps, RunStart start = RunStart::fresh) {
    std::atomic<bool> stop{false};
    RunOptions halted = options(start);
    halted.stop = &stop;
    halted.observer.stepped = [&](const StepReport& report, std::optional<double>) { stop = report.step >= steps; };
    run_training(config, halted);
  }

  // Does something to the run's folder after its last step, before the last checkpoint.
  RunResult train_and_at_the_end(const Config& config, const std::function<void()>& mischief) {
    RunOptions whole = options(RunStart::fresh);
    whole.observer.stepped = [&](const StepReport& report, std::optional<double>) {
      if (report.step == config.train.steps) mischief();
    };
    return run_training(config, whole);
  }

  TemporaryFolder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(RecoveryTest, CheckpointsThatCannotBeUsedAreNotOverwritten) {
  const Config config = small_config("bf16", folder_.path() / "run");
  train_until(config, 3);
  for (int step = 0; step <= 3; ++step) damage(checkpoint(config, step));
  const std::string metrics = contents(folder_.path() / "run" / "metrics.jsonl");
  try {
    run_training(config, options(RunStart::resume));
    FAIL() << "it started over";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("holds 4 checkpoints, the newest of step 3, and none can be used"));
    EXPECT_THAT(error.remedy(), HasSubstr("to start over on purpose"));
  }
  for (int step = 0; step <= 3; ++step) EXPECT_EQ(contents(checkpoint(config, step) / "model.safetensors"), "damaged");
  EXPECT_EQ(contents(folder_.path() / "run" / "metrics.jsonl"), metrics);
}

TEST_F(RecoveryTest, StartingOverOnPurposeKeepsTheEarlierHistory) {
  const Config config = small_config("bf16", folder_.path() / "run");
  train_until(config, 3);
  const fs::path run = folder_.path() / "run";
  const std::string metrics = contents(run / "metrics.jsonl");
  const std::string id = contents(run / "run_id");
  fs::rename(run / "checkpoints", run / "earlier");
  EXPECT_EQ(run_training(config, options(RunStart::resume)).end, RunEnd::finished);
  EXPECT_EQ(contents(run / "metrics.jsonl.before-1"), metrics);
  EXPECT_NE(contents(run / "run_id"), id);
  EXPECT_THAT(warnings_, Contains(HasSubstr("starts over")));
  EXPECT_EQ(StoreReader(folder_.path() / "quaver.db").runs().size(), 2U);
}

TEST_F(RecoveryTest, DamagedCheckpointsAfterTheOneUsedAreSetAside) {
  const Config config = small_config("bf16", folder_.path() / "run");
  train_until(config, 4);
  damage(checkpoint(config, 3));
  damage(checkpoint(config, 4));
  train_until(config, 3, RunStart::resume);
  EXPECT_FALSE(fs::exists(checkpoint(config, 4)));
  for (const char* name : {"unusable-step-000003", "unusable-step-000004"}) {
    EXPECT_EQ(contents(folder_.path() / "run" / "checkpoints" / name / "model.safetensors"), "damaged");
  }
  EXPECT_THAT(warnings_, Contains(HasSubstr("unusable-step-000004")));
}

TEST_F(RecoveryTest, ARunWhoseFolderIsRemovedEndsInANewOneWithNothingMissing) {
  const Config config = small_config("bf16", folder_.path() / "run");
  const fs::path run = folder_.path() / "run";
  const RunResult result = train_and_at_the_end(config, [&] { fs::remove_all(run); });
  EXPECT_EQ(result.end, RunEnd::finished);
  for (const char* file : {"config.toml", "plan.toml", "env.json", "run_id", "scales.json"}) {
    EXPECT_TRUE(fs::exists(run / file)) << file;
  }
  EXPECT_EQ(read_metrics(contents(run / "metrics.jsonl"), 6).lines, 6);
  EXPECT_EQ(open_run(run, {}, std::nullopt, [](const std::string&) {})->trainer->steps_done(), 6);
  EXPECT_EQ(run_training(config, options(RunStart::resume)).end, RunEnd::finished);  // the folder is locked no more
}

TEST_F(RecoveryTest, ACheckpointInTheMiddleBringsARemovedFolderBack) {
  Config config = small_config("bf16", folder_.path() / "run");
  RunOptions whole = options(RunStart::fresh);
  bool was_back = false;
  whole.observer.stepped = [&](const StepReport& report, std::optional<double>) {
    if (report.step == 2) fs::remove_all(config.run.dir);
    if (report.step == 4) was_back = fs::exists(checkpoint(config, 3) / "manifest.json");
  };
  run_training(config, whole);
  EXPECT_TRUE(was_back);
}

TEST_F(RecoveryTest, TheLastCheckpointGoesToTheFallbackWhereTheRunCannotTakeIt) {
  Config config = small_config("bf16", folder_.path() / "run");
  config.run.fallback = (folder_.path() / "elsewhere").string();
  const fs::path blocked = folder_.path() / "run" / "checkpoints";
  const auto block = [&] {
    fs::remove_all(blocked);
    std::ofstream(blocked) << "no folder";
  };
  fs::path saved;
  try {
    train_and_at_the_end(config, block);
    FAIL() << "nobody was told";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 6 is saved in " + config.run.fallback));
    EXPECT_THAT(error.remedy(), HasSubstr("--resume " + config.run.fallback));
    saved = fs::directory_iterator(config.run.fallback)->path();
  }
  const auto run = open_run(saved, {}, std::nullopt, [](const std::string&) {});
  EXPECT_EQ(run->trainer->steps_done(), 6);
  Config onward = load_run_config(saved, {"train.steps=8"});
  EXPECT_EQ(run_training(onward, options(RunStart::resume)).steps, 8);
}

TEST_F(RecoveryTest, WhereNoFolderTakesItTheErrorNamesTheRunsOwn) {
  Config config = small_config("bf16", folder_.path() / "run");
  std::ofstream(folder_.path() / "file") << "no folder";
  config.run.fallback = (folder_.path() / "file" / "below").string();
  config.run.patience = 0;
  const fs::path blocked = folder_.path() / "run" / "checkpoints";
  try {
    train_and_at_the_end(config, [&] {
      fs::remove_all(blocked);
      std::ofstream(blocked) << "no folder";
    });
    FAIL() << "it was saved";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the checkpoint of step 6 was not saved"));
    EXPECT_THAT(error.what(), HasSubstr(blocked.string()));
  }
}

TEST_F(RecoveryTest, ItIsTriedAgainWhileThereIsPatience) {
  Config config = small_config("bf16", folder_.path() / "run");
  std::ofstream(folder_.path() / "file") << "no folder";
  config.run.fallback = (folder_.path() / "file" / "below").string();
  const fs::path blocked = folder_.path() / "run" / "checkpoints";
  RunOptions whole = options(RunStart::fresh);
  whole.observer.stepped = [&](const StepReport& report, std::optional<double>) {
    if (report.step < config.train.steps) return;
    fs::remove_all(blocked);
    std::ofstream(blocked) << "no folder";
  };
  whole.observer.warning = [&](const std::string& text) {
    if (text.find("tried again") != std::string::npos) fs::remove(blocked);  // somebody has read it and acts
  };
  EXPECT_EQ(run_training(config, whole).end, RunEnd::finished);
  EXPECT_TRUE(fs::exists(checkpoint(config, 6) / "manifest.json"));
}

TEST_F(RecoveryTest, RoomIsMadeFromCheckpointsThatTheNextOneReplaces) {
  CheckpointStore store(folder_.path() / "run", 3);
  const auto save = [&](std::uint64_t step) {
    CheckpointContent content;
    content.state = "{}";
    store.save(step, content);
  };
  for (const std::uint64_t step : {1U, 2U, 3U}) save(step);
  store.repair();
  EXPECT_THAT(store.steps(), ElementsAre(2, 3));  // and one to come: three
  std::ofstream(store.directory() / "step-000003" / "state.json") << "damaged";
  store.repair();
  EXPECT_THAT(store.steps(), ElementsAre(2, 3));  // 2 is the newest good one
}

// A shard of which something happens while it is trained on.
class DataTroubleTest : public RecoveryTest {
 protected:
  void SetUp() override {
    ShardWriter writer(shard_, ShardFormat::quaver, 32, 7);
    std::mt19937 random(1);
    std::vector<std::int32_t> ids(40000);
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % 32);
    writer.append(ids);
    writer.finish();
    fs::copy_file(shard_, folder_.path() / "copy");
    config_ = on_shard("run");
  }

  Config on_shard(const char* name) const {
    Config config = small_config("fp8-delayed", folder_.path() / name);
    config.data.kind = DataKind::dataset;
    config.data.path = shard_.string();
    config.train.checkpoint_every = 100;
    return config;
  }

  void expect_failure(std::string_view what, const std::function<void(const StepReport&)>& mischief) {
    RunOptions whole = options(RunStart::fresh);
    whole.observer.stepped = [&](const StepReport& report, std::optional<double>) { mischief(report); };
    try {
      run_training(config_, whole);
      FAIL() << "nobody was told";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(shard_.string()));
      EXPECT_THAT(error.what(), HasSubstr(std::string(what)));
    }
  }

  fs::path shard_ = folder_.path() / "data.qv";
  Config config_;
};

TEST_F(DataTroubleTest, AShardCutWhileItIsReadEndsTheRunWithACheckpoint) {
  Size cut_after = 0;
  expect_failure("changed", [&](const StepReport& report) {
    if (report.step == 2) fs::resize_file(shard_, 300);
    cut_after = report.step;
  });
  ASSERT_TRUE(fs::exists(checkpoint(config_, static_cast<int>(cut_after)) / "manifest.json"));
  fs::copy_file(folder_.path() / "copy", shard_, fs::copy_options::overwrite_existing);
  run_training(config_, options(RunStart::resume));
  const Config straight = on_shard("straight");
  run_training(straight, options(RunStart::fresh));
  for (const char* part : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    EXPECT_EQ(contents(checkpoint(config_, 6) / part), contents(checkpoint(straight, 6) / part)) << part;
  }
}

TEST_F(DataTroubleTest, AFlippedBitIsFoundWhileTrainingAndNamed) {
  std::string bytes = contents(shard_);
  bytes[70000] = static_cast<char>(bytes[70000] ^ 1);  // in the second block of 65536 bytes behind the header
  std::ofstream(shard_, std::ios::binary) << bytes;
  expect_failure("between bytes 65792 and 80256", [](const StepReport&) {});
  EXPECT_TRUE(fs::exists(folder_.path() / "run" / "checkpoints"));
}

TEST_F(DataTroubleTest, AValidationShardThatTurnsToZerosIsNoticed) {
  const fs::path valid = folder_.path() / "valid.qv";
  fs::copy_file(shard_, valid);
  config_.data.valid_path = valid.string();
  config_.train.eval_every = 1;
  shard_ = valid;
  expect_failure("changed", [&](const StepReport& report) {
    if (report.step != 2) return;
    const auto size = fs::file_size(valid);
    fs::resize_file(valid, 256);
    fs::resize_file(valid, size);
  });
  EXPECT_TRUE(fs::exists(checkpoint(config_, 3) / "manifest.json"));
  EXPECT_EQ(read_metrics(contents(folder_.path() / "run" / "metrics.jsonl"), 2).kept.find("\"loss\":null"),
            std::string::npos);
}

// What a checkpoint covers is in the store when the checkpoint appears, however soon the process dies after that.
TEST_F(RecoveryTest, TheStoreHasEveryStepThatACheckpointCovers) {
  Config config = small_config("fp8-delayed", folder_.path() / "run");
  config.train.statistics_every = 1;
  const pid_t child = fork();
  if (child == 0) {
    RunOptions killed;
    killed.observer.stepped = [](const StepReport& report, std::optional<double>) {
      if (report.step == 5) std::raise(SIGKILL);
    };
    run_training(config, killed);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_TRUE(fs::exists(checkpoint(config, 4)));
  const StoreReader reader(folder_.path() / "quaver.db");
  const std::string id = reader.runs().at(0).id;
  const auto steps_with = [&](const char* metric) { return reader.metrics(id, std::vector<std::string>{metric}); };
  const auto samples = [&] { return reader.history(id, "blocks.0.mlp.up/x").step; };
  EXPECT_THAT(steps_with("loss")["loss"].step, IsSupersetOf({1U, 2U, 3U, 4U}));
  EXPECT_THAT(samples(), IsSupersetOf({1U, 2U, 3U, 4U}));
  EXPECT_EQ(run_training(config, options(RunStart::resume)).steps, 6);
  EXPECT_THAT(steps_with("loss")["loss"].step, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(samples(), ElementsAre(1, 2, 3, 4, 5, 6));
}

}  // namespace
}  // namespace quaver::test
