// What a store of checkpoints takes for its own, and what it does with what is nearly right.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "io/file_io.h"
#include "train/checkpoint_store.h"
#include "train/support.h"
#include "train/trainer_state.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StoredCheckpoints : public testing::Test {
 protected:
  static CheckpointContent content_of(std::uint64_t step, const std::string& run = "") {
    static const std::vector<float> values{1, 2};
    const auto bytes = std::as_bytes(std::span(values));
    return {.model = {{"w", "F32", {2}, bytes}},
            .optimizer = {{"w.m", "F32", {2}, bytes}},
            .state = fmt::format(R"({{"step": {}}})", step),
            .run = run,
            .metadata = {}};
  }
  fs::path of(std::uint64_t step) const { return folder_.path() / "checkpoints" / fmt::format("step-{:06}", step); }

  // Replaces a file of a checkpoint and writes the manifest that goes with it.
  void replace(std::uint64_t step, const std::string& name, const std::string& text) const {
    std::ofstream(of(step) / name) << text;
    CheckpointManifest manifest = parse_manifest(contents(of(step) / "manifest.json"), "test");
    manifest.files[name] = {text.size(), crc32c(std::as_bytes(std::span(text)))};
    std::ofstream(of(step) / "manifest.json") << render_manifest(manifest);
  }

  TemporaryFolder folder_;
};

TEST_F(StoredCheckpoints, OnlyNamesOfSixDigitsOrMoreAreSteps) {
  CheckpointStore store(folder_.path(), 9);
  store.save(500, content_of(500));
  store.save(1234567, content_of(1234567));
  for (const char* name : {"step-500", "step-0000501", "step-", "step-00050x", "step-+00502", "Step-000503"}) {
    fs::create_directory(folder_.path() / "checkpoints" / name);
  }
  EXPECT_THAT(store.steps(), ElementsAre(500, 1234567));
}

TEST_F(StoredCheckpoints, AMissingStepIsAnsweredWithThoseThatAreThere) {
  CheckpointStore store(folder_.path(), 9);
  const auto remedy = [&] {
    try {
      store.load(7);
    } catch (const Error& error) {
      return error.remedy();
    }
    return std::string();
  };
  EXPECT_EQ(remedy(), "the run has no checkpoint yet");
  for (const std::uint64_t step : {10U, 20U, 30U}) store.save(step, content_of(step));
  EXPECT_EQ(remedy(), "the newest step is 30, the oldest 10");
}

TEST_F(StoredCheckpoints, KeepsAsManyAsAskedForWithTheOneJustWritten) {
  CheckpointStore store(folder_.path(), 3);
  for (const std::uint64_t step : {1U, 2U, 3U}) EXPECT_THAT(store.save(step, content_of(step)).removed, IsEmpty());
  EXPECT_THAT(store.save(4, content_of(4)).removed, ElementsAre(1));
  EXPECT_THAT(store.save(4, content_of(4)).removed, IsEmpty()) << "replaced, not added";
  EXPECT_THAT(store.steps(), ElementsAre(2, 3, 4));
  CheckpointStore one(folder_.path() / "other", 1);
  one.save(1, content_of(1));
  EXPECT_THAT(one.save(2, content_of(2)).removed, ElementsAre(1));
  EXPECT_THAT(one.steps(), ElementsAre(2));
}

TEST_F(StoredCheckpoints, SetAsideTakesANameThatIsFree) {
  CheckpointStore store(folder_.path(), 9);
  const fs::path folder = folder_.path() / "checkpoints";
  for (const std::uint64_t step : {1U, 2U, 3U}) store.save(step, content_of(step));
  EXPECT_THAT(store.set_aside_after(1), ElementsAre(folder / "unusable-step-000003", folder / "unusable-step-000002"));
  EXPECT_THAT(store.steps(), ElementsAre(1));
  for (int again = 2; again <= 3; ++again) {
    store.save(2, content_of(2));
    EXPECT_THAT(store.set_aside_after(1), ElementsAre(folder / fmt::format("unusable-step-000002-{}", again)));
  }
  EXPECT_THAT(store.set_aside_after(1), IsEmpty());
  EXPECT_THAT(store.steps(), ElementsAre(1));
}

TEST_F(StoredCheckpoints, AReadOnlyStoreChangesNothing) {
  { CheckpointStore(folder_.path(), 1).save(5, content_of(5)); }
  CheckpointStore store = CheckpointStore::read_only(folder_.path());
  EXPECT_THROW(store.save(6, content_of(6)), Error);
  EXPECT_THROW(store.set_aside_after(0), Error);
  EXPECT_THROW(store.repair(), Error);
  EXPECT_THAT(store.steps(), ElementsAre(5));
}

// Signed by its manifest and yet no JSON: not what a run writes.
TEST_F(StoredCheckpoints, TextThatIsNotJsonIsDamage) {
  CheckpointStore store(folder_.path(), 9);
  store.save(1, content_of(1, "{}"));
  store.save(2, content_of(2, "{}"));
  replace(2, "state.json", "{");
  try {
    store.load(2);
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("state.json: the text is not JSON"));
  }
  EXPECT_EQ(store.latest_good(nullptr)->step(), 1U);
  replace(2, "state.json", "{}");
  EXPECT_EQ(store.latest_good(nullptr)->step(), 2U);
  replace(2, "run.json", "[");
  EXPECT_EQ(store.latest_good(nullptr)->step(), 1U);
}

TEST_F(StoredCheckpoints, TheLatestRunIsThatOfTheNewestThatVerifies) {
  CheckpointStore store(folder_.path(), 9);
  EXPECT_EQ(store.latest_run(), "");
  store.save(1, content_of(1, R"({"of": 1})"));
  store.save(2, content_of(2, R"({"of": 2})"));
  EXPECT_EQ(store.latest_run(), R"({"of": 2})");
  std::ofstream(of(2) / "run.json") << R"({"of": 9})";
  EXPECT_EQ(store.latest_run(), R"({"of": 1})") << "of as many bytes, and not what was written";
  store.save(3, content_of(3));
  EXPECT_EQ(store.latest_run(), "") << "the newest is of an earlier version, which recorded none";
}

TEST_F(StoredCheckpoints, LatestGoodReportsEachThatItSkips) {
  CheckpointStore store(folder_.path(), 9);
  for (const std::uint64_t step : {1U, 2U, 3U}) store.save(step, content_of(step));
  std::ofstream(of(3) / "manifest.json") << "{}";
  std::vector<std::string> skipped;
  const auto report = [&](const fs::path& path, const std::string& why) {
    skipped.push_back(path.filename().string() + ": " + why);
  };
  const auto refuse_two = [](const Checkpoint& checkpoint) {
    if (checkpoint.step() == 2) throw Error("not this one");
  };
  const auto found = store.latest_good(report, refuse_two);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step(), 1U);
  ASSERT_EQ(skipped.size(), 2U);
  EXPECT_THAT(skipped[0], HasSubstr("step-000003: "));
  EXPECT_EQ(skipped[1], "step-000002: not this one");
}

std::string manifest_text(const std::string& version, const std::string& checksum) {
  const std::string entry = R"({"size": 1, "crc32c": ")" + checksum + R"("})";
  const std::string body = R"({"format": "quaver-checkpoint", "version": )" + version +
                           R"(, "step": 1, "files": {"model.safetensors": )" + entry +
                           R"(, "optimizer.safetensors": )" + entry + R"(, "state.json": )" + entry + "},\n";
  return body + fmt::format("\"manifest_crc32c\": \"{:08x}\"\n}}\n", crc32c(std::as_bytes(std::span(body))));
}

TEST(ManifestLimits, VersionsFromOneToItsOwnAreRead) {
  EXPECT_NO_THROW(parse_manifest(manifest_text("1", "00000000"), "m"));
  EXPECT_NO_THROW(parse_manifest(manifest_text("2", "00000000"), "m"));
  for (const char* version : {"0", "3", "-1", "1.5", "null"}) {
    EXPECT_THROW(parse_manifest(manifest_text(version, "00000000"), "m"), Error) << version;
  }
}

TEST(ManifestLimits, AChecksumHasEightHexadecimalDigits) {
  EXPECT_EQ(parse_manifest(manifest_text("2", "0000abCD"), "m").files.at("state.json").crc32c, 0xABCDU);
  for (const char* checksum : {"", "0000000", "000000000", "0000000g", " 0000000", "0x000000"}) {
    EXPECT_THROW(parse_manifest(manifest_text("2", checksum), "m"), Error) << checksum;
  }
}

TrainerState made_up_state() {
  return {.step = 9,
          .updates = 8,
          .skipped_batches = 4,
          .last_weight_cast = 7,
          .switched = true,
          .loss_scale_log2 = 5,
          .loss_scale_clean_steps = 3,
          .watch = {.guard = {.mean = 1.5, .bad_steps = 2, .skipped_steps = 6, .rewinds = 1, .seen = 8}, .alarms = {}},
          .unit_factors = {0.5F, 2},
          .scale_book = R"({"sites":{}})"};
}

TEST(TrainersState, ComesBackAsItWasWritten) {
  const TrainerState read = parse_state(to_json(made_up_state()), 9, "s");
  EXPECT_EQ(read.step, 9);
  EXPECT_EQ(read.updates, 8);
  EXPECT_EQ(read.skipped_batches, 4);
  EXPECT_EQ(read.last_weight_cast, 7U);
  EXPECT_TRUE(read.switched);
  EXPECT_EQ(read.loss_scale_log2, 5);
  EXPECT_EQ(read.loss_scale_clean_steps, 3);
  EXPECT_EQ(read.watch.guard.mean, 1.5);
  EXPECT_EQ(read.watch.guard.bad_steps, 2);
  EXPECT_EQ(read.watch.guard.skipped_steps, 6);
  EXPECT_EQ(read.watch.guard.rewinds, 1);
  EXPECT_EQ(read.watch.guard.seen, 8);
  EXPECT_THAT(read.unit_factors, ElementsAre(0.5F, 2));
  EXPECT_EQ(read.scale_book, R"({"sites":{}})");
}

// Checkpoints of earlier versions hold fewer numbers, and a damaged one any.
TEST(TrainersState, TakesWhatItKnowsOfGuardAndAlarms) {
  const WatchState read =
      parse_watch_state({{"guard.seen", 7}, {"guard.rewinds", 1e300}, {"guard.bad_steps", -3}, {"other", 1}});
  EXPECT_EQ(read.guard.seen, 7);
  EXPECT_EQ(read.guard.mean, 0);
  EXPECT_EQ(read.guard.bad_steps, 0);
  EXPECT_EQ(read.guard.rewinds, 0) << "no count";
  const std::map<std::string, double> written = to_numbers(read);
  EXPECT_EQ(written.size(), 5U) << "of the guard alone";
  EXPECT_EQ(written.at("guard.seen"), 7);
}

TEST(TrainersState, RefusesNumbersThatNoRunComesTo) {
  const auto accepted = [](const std::function<void(TrainerState&)>& change) {
    TrainerState state = made_up_state();
    change(state);
    try {
      parse_state(to_json(state), 9, "s");
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  EXPECT_TRUE(accepted([](TrainerState& state) { state.updates = 9; }));
  EXPECT_FALSE(accepted([](TrainerState& state) { state.updates = 10; })) << "more than steps";
  EXPECT_FALSE(accepted([](TrainerState& state) { state.updates = -1; }));
  EXPECT_TRUE(accepted([](TrainerState& state) { state.last_weight_cast = 9; }));
  EXPECT_FALSE(accepted([](TrainerState& state) { state.last_weight_cast = 10; })) << "in a step to come";
  EXPECT_FALSE(accepted([](TrainerState& state) { state.skipped_batches = -1; }));
  EXPECT_TRUE(accepted([](TrainerState& state) { state.skipped_batches = Size{1} << 50; }));
  EXPECT_FALSE(accepted([](TrainerState& state) { state.skipped_batches = (Size{1} << 50) + 1; }));
  EXPECT_TRUE(accepted([](TrainerState& state) { state.loss_scale_log2 = LossScale::largest_log2; }));
  EXPECT_FALSE(accepted([](TrainerState& state) { state.loss_scale_log2 = LossScale::largest_log2 + 1; }));
  EXPECT_FALSE(accepted([](TrainerState& state) { state.loss_scale_log2 = -1; }));
  EXPECT_FALSE(accepted([](TrainerState& state) { state.loss_scale_clean_steps = -1; }));
  EXPECT_FALSE(accepted([](TrainerState& state) { state.step = 8; })) << "of another step than the manifest's";
}

TEST(TrainersState, RefusesFactorsBeyondFloatAndDeepNesting) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = to_json(made_up_state());
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    return text.replace(at, from.size(), to);
  };
  EXPECT_THROW(parse_state(with("0.5", "1e60"), 9, "s"), Error);
  EXPECT_THROW(parse_state(with("\"updates\": 8", "\"updates\": 8.5"), 9, "s"), Error);
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']') + "}";
  };
  EXPECT_NO_THROW(parse_state(with("\"sites\": {}", "\"sites\": " + nested(20)), 9, "s"));
  EXPECT_THROW(parse_state(with("\"sites\": {}", "\"sites\": " + nested(40)), 9, "s"), Error);
}

}  // namespace
}  // namespace quaver::test
