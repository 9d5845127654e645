// What a resumed run takes over, records and refuses to use.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "data/shard.h"
#include "io/file_io.h"
#include "store/reader.h"
#include "train/provenance.h"
#include "train/run_record.h"
#include "train/support.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ResumedRun : public testing::Test {
 protected:
  ResumedRun() {
    config_ = small_config("bf16", run_);
    config_.model.context = 8;
    config_.train.batch = 2;
    config_.train.accumulation = 1;
    config_.train.eval_every = 0;
    config_.train.steps = 4;
  }

  RunResult train(RunStart start, Size until, OtherData other_data = OtherData::refuse) {
    std::atomic<bool> stop{false};
    RunOptions options;
    options.start = start;
    options.stop = &stop;
    options.other_data = other_data;
    options.observer.warning = [this](const std::string& text) { warnings_.push_back(text); };
    options.observer.message = [this](const std::string& text) { messages_.push_back(text); };
    options.observer.stepped = [&](const StepReport& report, std::optional<double>) { stop = report.step >= until; };
    return run_training(config_, options);
  }

  TemporaryFolder folder_;
  fs::path run_ = folder_.path() / "run";
  Config config_;
  std::vector<std::string> warnings_;
  std::vector<std::string> messages_;
};

TEST_F(ResumedRun, KeepsWhatTheStoreHasUpToItsCheckpoint) {
  const RunResult first = train(RunStart::fresh, 2);
  EXPECT_EQ(first.end, RunEnd::interrupted);
  const RunResult second = train(RunStart::resume, 1000);
  EXPECT_EQ(second.end, RunEnd::finished);
  EXPECT_THAT(messages_, ElementsAre("resumed at step 2"));
  const StoreReader store(folder_.path() / store_file_name);
  const auto series = store.metrics(run_id(run_), {}).at("loss");
  EXPECT_THAT(series.step, ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(series.value.size(), 4U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_DOUBLE_EQ(series.value[i], first.losses[i].loss);
    EXPECT_DOUBLE_EQ(series.value[i + 2], second.losses[i + 2].loss);
  }
}

// A manifest that agrees with the bytes, and run.json that no run wrote: the checkpoint before is used.
TEST_F(ResumedRun, DoesNotUseACheckpointWithoutProvenance) {
  train(RunStart::fresh, 3);
  const fs::path folder = run_ / "checkpoints" / "step-000003";
  CheckpointManifest manifest = parse_manifest(contents(folder / "manifest.json"), "test");
  manifest.files["run.json"] = write_file_atomically(folder / "run.json", "{\"config\": 3}");
  write_file_atomically(folder / "manifest.json", render_manifest(manifest));
  warnings_.clear();
  const auto usable =
      newest_usable(CheckpointStore::read_only(run_), [this](const std::string& text) { warnings_.push_back(text); });
  ASSERT_TRUE(usable.has_value());
  EXPECT_EQ(usable->step(), 2U);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("step-000003 is not usable")));
}

TEST_F(ResumedRun, SaysWhatIsOtherAboutItsData) {
  const auto write = [&](const char* name, std::int32_t tokens) {
    ShardWriter writer(folder_.path() / name, ShardFormat::quaver, 32, 7);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * i % 31);
    writer.append(ids);
    writer.finish();
    return (folder_.path() / name).string();
  };
  config_.data.kind = DataKind::dataset;
  config_.data.path = config_.data.valid_path = write("a.qv", 400);
  train(RunStart::fresh, 2);
  config_.data.path = write("b.qv", 500);
  train(RunStart::resume, 3, OtherData::accept);
  const Provenance known = parse_provenance(CheckpointStore::read_only(run_).load(3).run(), "test");
  ASSERT_EQ(known.changes.size(), 2U);
  EXPECT_EQ(known.changes[0].key, "data.path");
  const SettingChange& change = known.changes[1];
  EXPECT_EQ(change.key, "data");
  EXPECT_EQ(change.step, 2);
  EXPECT_EQ(change.after, known.data.train_hash + " (training tokens: 400 → 500)");
  EXPECT_EQ(known.data.train_tokens, 500U);
  EXPECT_THAT(warnings_, Contains(fmt::format("step 2: data: {} → {}", change.before, change.after)));
}

}  // namespace
}  // namespace quaver::test
