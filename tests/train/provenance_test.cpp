// A run knows what it is: settings, data, and each change of them.
#include "train/provenance.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "config/dump.h"
#include "data/shard.h"
#include "io/file_io.h"
#include "quaver/error.h"
#include "store/reader.h"
#include "train/support.h"
#include "train/trainer_state.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Every file below a folder with its bytes.
std::map<std::string, std::string> everything_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().string()] = contents(entry.path());
  }
  return files;
}

void write_shard(const fs::path& path, std::uint32_t seed) {
  ShardWriter writer(path, ShardFormat::quaver, 32, 7);
  std::mt19937 random(seed);
  std::vector<std::int32_t> ids(4000);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % 32);
  writer.append(ids);
  writer.finish();
}

class ProvenanceTest : public testing::Test {
 protected:
  void SetUp() override { config_ = small_config("bf16", folder_.path() / "run"); }

  RunOptions options(RunStart start) {
    RunOptions options;
    options.start = start;
    options.observer.warning = [this](const std::string& text) { warnings_.push_back(text); };
    return options;
  }

  void train_until(Size steps, RunStart start = RunStart::fresh) {
    std::atomic<bool> stop{false};
    RunOptions halted = options(start);
    halted.stop = &stop;
    halted.observer.stepped = [&](const StepReport& report, std::optional<double>) { stop = report.step >= steps; };
    run_training(config_, halted);
  }

  void expect_refused(std::string_view what, RunOptions how) {
    try {
      run_training(config_, how);
      FAIL() << "it was accepted, expected: " << what;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(what)));
    }
  }

  Provenance recorded() const {
    const CheckpointStore store = CheckpointStore::read_only(run_);
    return parse_provenance(store.load(store.steps().back()).run(), "test");
  }

  void edit_config(const std::string& from, const std::string& to) const {
    std::string text = contents(run_ / "config.toml");
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    std::ofstream(run_ / "config.toml") << text.replace(at, from.size(), to);
  }

  TemporaryFolder folder_;
  fs::path run_ = folder_.path() / "run";
  Config config_;
  std::vector<std::string> warnings_;
};

TEST_F(ProvenanceTest, ReadsBackWhatItWrites) {
  const Provenance written{.id = "00112233aabbccdd",
                           .config = config_,
                           .data = {.train_hash = "0123456789abcdef",
                                    .valid_hash = "",
                                    .train_tokens = 1234567890123,
                                    .valid_tokens = 0,
                                    .tokenizer_hash = "fedcba9876543210",
                                    .vocab_size = 50257},
                           .changes = {{3, "train.seed", "1", "2"}, {9, "data", "a", "b → c"}}};
  const Provenance read = parse_provenance(to_json(written), "test");
  EXPECT_EQ(read.id, written.id);
  EXPECT_EQ(to_toml(read.config), to_toml(written.config));
  EXPECT_EQ(read.data, written.data);
  EXPECT_EQ(read.changes, written.changes);
}

TEST_F(ProvenanceTest, RefusesWhatNoRunWrites) {
  const std::string good =
      to_json(Provenance{.id = "", .config = config_, .data = {}, .changes = {{3, "a", "b", "c"}}});
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"step\": 3", "\"step\": -3"},
                                                        {"\"step\": 3", "\"step\": \"3\""},
                                                        {"\"step\": 3", "\"step\": 3.5"},
                                                        {"\"step\": 3", "\"step\": 9223372036854775808"},
                                                        {"\"train_tokens\": 0", "\"train_tokens\": 0.5"},
                                                        {"\"valid_tokens\": 0", "\"valid_tokens\": -1"},
                                                        {"\"vocab_size\": 0", "\"vocab_size\": 2147483648"},
                                                        {"\"id\": \"\"", "\"id\": \"../../elsewhere\""},
                                                        {"\"vocab_size\": 0", "\"vocab\": 0"}}) {
    std::string bad = good;
    const std::size_t at = bad.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bad.replace(at, from.size(), to);
    EXPECT_THROW(parse_provenance(bad, "test"), Error) << to;
  }
  EXPECT_THROW(parse_provenance("{", "test"), Error);
}

TEST_F(ProvenanceTest, ADamagedIdFileDoesNotMakeItAnotherRun) {
  train_until(3);
  const std::string id = contents(run_ / "run_id");
  std::ofstream(run_ / "run_id") << "0000";
  train_until(4, RunStart::resume);
  EXPECT_EQ(contents(run_ / "run_id"), id);
  EXPECT_THAT(warnings_, Contains(HasSubstr("run_id does not hold the run's id")));
  fs::remove(run_ / "run_id");
  train_until(5, RunStart::resume);
  EXPECT_EQ(contents(run_ / "run_id"), id);
  EXPECT_EQ(StoreReader(folder_.path() / "quaver.db").runs().size(), 1U);
}

TEST_F(ProvenanceTest, AResumeRecordsEachSettingItChanges) {
  train_until(3);
  EXPECT_THAT(recorded().changes, IsEmpty());
  config_.precision.recipe = "fp8-current";
  config_.train.seed = 9;
  train_until(5, RunStart::resume);
  const std::vector<SettingChange> expected{{3, "train.seed", "1", "9"},
                                            {3, "precision.recipe", "\"bf16\"", "\"fp8-current\""}};
  EXPECT_EQ(recorded().changes, expected);
  EXPECT_THAT(contents(run_ / "metrics.jsonl"), HasSubstr("train.seed: 1 → 9"));
  const StoreReader store(folder_.path() / "quaver.db");
  const std::string id = store.runs().at(0).id;
  const json settings = json::parse(store.document(id, "settings").value());
  ASSERT_EQ(settings.size(), 2U);
  EXPECT_EQ(settings[1],
            (json{{"step", 3}, {"key", "precision.recipe"}, {"before", "\"bf16\""}, {"after", "\"fp8-current\""}}));
  std::vector<std::string> events;
  for (const EventRecord& event : store.events(id)) {
    if (event.kind == "setting") events.push_back(event.text);
  }
  EXPECT_THAT(events, ElementsAre(HasSubstr("train.seed: 1 → 9"), HasSubstr("\"bf16\" → \"fp8-current\"")));
  train_until(6, RunStart::resume);  // the same settings again: nothing more is recorded
  EXPECT_EQ(recorded().changes, expected);
}

TEST_F(ProvenanceTest, AnEditedConfigIsRefusedAndAFlagForItIsNot) {
  train_until(3);
  edit_config("recipe = \"bf16\"", "recipe = \"fp8-current\"");
  config_ = load_run_config(run_, {});
  EXPECT_EQ(config_.precision.recipe, "bf16");  // what the checkpoint was trained with
  expect_refused(
      "config.toml says precision.recipe = \"fp8-current\", but the checkpoint of step 3 was trained with "
      "\"bf16\"",
      options(RunStart::resume));
  EXPECT_THROW(open_run(run_, {}, std::nullopt, [](const std::string&) {}), Error);
  config_ = load_run_config(run_, {"precision.recipe=fp8-current"});
  train_until(4, RunStart::resume);
  EXPECT_EQ(recorded().changes.size(), 1U);
}

// The checkpoint with the new settings is written before config.toml.
TEST_F(ProvenanceTest, AConfigFromBeforeARecordedChangeIsAnOlderCopy) {
  train_until(3);
  const std::string before = contents(run_ / "config.toml");
  config_.optim.learning_rate = 1e-3;
  const std::atomic<bool> at_once{true};
  RunOptions stopped = options(RunStart::resume);
  stopped.stop = &at_once;
  run_training(config_, stopped);
  std::ofstream(run_ / "config.toml") << before;
  config_ = load_run_config(run_, {});
  EXPECT_EQ(config_.optim.learning_rate, 1e-3);
  train_until(4, RunStart::resume);
  EXPECT_THAT(contents(run_ / "config.toml"), HasSubstr("learning_rate = 0.001"));
}

TEST_F(ProvenanceTest, AFinishedRunStaysAsItIs) {
  run_training(config_, options(RunStart::fresh));
  const auto before = everything_in(run_);
  const auto summary = [&] { return StoreReader(folder_.path() / "quaver.db").runs().at(0); };
  const double updated = summary().updated;
  config_.precision.recipe = "fp8-current";
  const RunResult result = run_training(config_, options(RunStart::resume));
  EXPECT_EQ(result.end, RunEnd::finished);
  EXPECT_EQ(everything_in(run_), before);
  EXPECT_EQ(summary().recipe, "bf16");
  EXPECT_EQ(summary().updated, updated);
  EXPECT_THAT(warnings_, Contains(HasSubstr("stays as it is, without precision.recipe")));
}

TEST_F(ProvenanceTest, AnEndBehindTheStepReachedIsRefused) {
  train_until(4);
  config_.train.steps = 3;
  expect_refused("the run has reached step 4: train.steps = 3 lies behind it", options(RunStart::resume));
  config_.train.steps = 4;
  EXPECT_EQ(run_training(config_, options(RunStart::resume)).steps, 4);
}

TEST_F(ProvenanceTest, OtherDataIsRefusedUnlessAskedFor) {
  write_shard(folder_.path() / "a.qv", 1);
  write_shard(folder_.path() / "b.qv", 2);
  config_.data.kind = DataKind::dataset;
  config_.data.path = (folder_.path() / "a.qv").string();
  config_.data.valid_path = config_.data.path;
  train_until(3);
  EXPECT_EQ(recorded().data.train_tokens, 4000U);
  EXPECT_EQ(recorded().data.vocab_size, 32);

  fs::copy_file(folder_.path() / "a.qv", folder_.path() / "moved.qv");
  config_.data.path = (folder_.path() / "moved.qv").string();  // the same content
  train_until(4, RunStart::resume);
  ASSERT_EQ(recorded().changes.size(), 1U);
  EXPECT_EQ(recorded().changes[0].key, "data.path");

  config_.data.path = (folder_.path() / "b.qv").string();
  expect_refused("was trained on other data: training data has another content", options(RunStart::resume));
  RunOptions allowed = options(RunStart::resume);
  allowed.other_data = OtherData::accept;
  run_training(config_, allowed);
  const SettingChange change = recorded().changes.back();
  EXPECT_EQ(change.key, "data");
  EXPECT_EQ(change.step, 4);
  EXPECT_NE(change.before, change.after);
}

// state.json with another step and a manifest that agrees with its bytes.
TEST_F(ProvenanceTest, AStateThatMakesNoSenseIsNotUsed) {
  const auto nonsense = std::vector<std::pair<std::string, json>>{{"step", -1},
                                                                  {"step", std::int64_t{1000000000000000000}},
                                                                  {"step", 2},
                                                                  {"updates", 7},
                                                                  {"updates", -1},
                                                                  {"skipped_batches", -5},
                                                                  {"last_weight_cast", 4000000000U},
                                                                  {"loss_scale_log2", 999},
                                                                  {"step", 3.5},
                                                                  {"switched", "no"},
                                                                  {"unit_factors", json::array({"x"})}};
  train_until(3);
  const CheckpointStore store = CheckpointStore::read_only(run_);
  const std::string good = store.load(3).state();
  for (const auto& [key, value] : nonsense) {
    json bad = json::parse(good);
    bad[key] = value;
    EXPECT_THROW(parse_state(bad.dump(), 3, "test"), Error) << key << " = " << value;
  }
  EXPECT_EQ(to_json(parse_state(good, 3, "test")), good);
  json bad = json::parse(good);
  bad["step"] = -1;
  const fs::path folder = run_ / "checkpoints" / "step-000003";
  const FileDigest digest = write_file_atomically(folder / "state.json", bad.dump());
  CheckpointManifest manifest = parse_manifest(contents(folder / "manifest.json"), "test");
  manifest.files["state.json"] = digest;
  write_file_atomically(folder / "manifest.json", render_manifest(manifest));
  train_until(3, RunStart::resume);
  EXPECT_THAT(warnings_, Contains(HasSubstr("step-000003 is not usable")));
  EXPECT_THAT(warnings_, Contains(HasSubstr("step is -1")));
}

}  // namespace
}  // namespace quaver::test
