#include "train/checkpoint_store.h"

#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/core.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <signal.h>
#include <sstream>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace quaver {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void overwrite(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

// A checkpoint whose every part depends on the step, so that a mixture of two is seen.
struct Sample {
  std::vector<float> weights;
  CheckpointContent content;
};

Sample sample(std::uint64_t step, std::size_t count = 64) {
  Sample made{std::vector<float>(count, static_cast<float>(step)), {}};
  const auto bytes = std::as_bytes(std::span(made.weights));
  made.content.model = {{"w", "F32", {static_cast<std::int64_t>(count)}, bytes}};
  made.content.optimizer = {{"w.m", "F32", {static_cast<std::int64_t>(count)}, bytes}};
  made.content.state = fmt::format(R"({{"step": {}}})", step);
  made.content.metadata = {{"step", std::to_string(step)}};
  return made;
}

void expect_consistent(const Checkpoint& checkpoint) {
  const auto expected = static_cast<float>(checkpoint.step());
  for (const TensorEntry& tensor : {checkpoint.model().at("w"), checkpoint.optimizer().at("w.m")}) {
    for (std::size_t i = 0; i < tensor.data.size(); i += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, tensor.data.data() + i, sizeof value);
      ASSERT_EQ(value, expected);
    }
  }
  EXPECT_EQ(checkpoint.state(), fmt::format(R"({{"step": {}}})", checkpoint.step()));
  EXPECT_EQ(checkpoint.metadata().at("step"), std::to_string(checkpoint.step()));
}

class CheckpointStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    // In memory where possible: killing a process tests the order of the steps, not the disk, and a busy disk is slow.
    const fs::path base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : testing::TempDir();
    run_ = base / fmt::format("quaver_checkpoints_{}", getpid());
    fs::remove_all(run_);
  }
  void TearDown() override { fs::remove_all(run_); }

  fs::path folder(std::uint64_t step) const { return run_ / "checkpoints" / fmt::format("step-{:06}", step); }
  std::size_t temporaries() const {
    std::size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(run_ / "checkpoints")) {
      if (entry.path().filename().string().starts_with(".tmp-")) ++count;
    }
    return count;
  }

  fs::path run_;
};

TEST_F(CheckpointStoreTest, WhatIsSavedIsLoaded) {
  CheckpointStore store(run_, 3);
  const auto saved = store.save(500, sample(500).content);
  EXPECT_EQ(saved.path, folder(500));
  std::uint64_t on_disk = 0;
  for (const auto& entry : fs::directory_iterator(folder(500))) on_disk += entry.file_size();
  EXPECT_EQ(saved.bytes, on_disk);
  EXPECT_THAT(store.steps(), ElementsAre(500));
  Checkpoint first = store.load(500);
  const Checkpoint moved = std::move(first);
  expect_consistent(moved);
  EXPECT_EQ(temporaries(), 0U);
}

TEST_F(CheckpointStoreTest, AnEmptyStoreHasNoGoodCheckpoint) {
  EXPECT_FALSE(CheckpointStore(run_, 1).latest_good(nullptr).has_value());
  EXPECT_FALSE(CheckpointStore::read_only(run_ / "elsewhere").latest_good(nullptr).has_value());
  EXPECT_FALSE(fs::exists(run_ / "elsewhere"));
  EXPECT_THROW(CheckpointStore(run_, 0), Error);
}

TEST_F(CheckpointStoreTest, KeepsTheNewest) {
  CheckpointStore store(run_, 2);
  for (const std::uint64_t step : {10U, 20U, 30U, 40U, 50U}) {
    const auto saved = store.save(step, sample(step).content);
    EXPECT_TRUE(saved.warnings.empty());
    EXPECT_EQ(saved.removed, step > 20 ? std::vector<std::uint64_t>{step - 20} : std::vector<std::uint64_t>{});
  }
  EXPECT_THAT(store.steps(), ElementsAre(40, 50));
  EXPECT_EQ(temporaries(), 0U);
}

// After a return to an earlier step, later checkpoints exist; the one just written must not be the "oldest".
TEST_F(CheckpointStoreTest, TheOneJustWrittenStaysAlsoWhenLaterOnesExist) {
  CheckpointStore store(run_, 1);
  store.save(100, sample(100).content);
  store.save(50, sample(50).content);
  EXPECT_THAT(store.steps(), ElementsAre(50, 100));
  EXPECT_THAT(store.set_aside_after(50), ElementsAre(run_ / "checkpoints" / "unusable-step-000100"));
  EXPECT_THAT(store.steps(), ElementsAre(50));
  expect_consistent(*store.latest_good(nullptr));
}

TEST_F(CheckpointStoreTest, SavingAStepAgainReplacesIt) {
  CheckpointStore store(run_, 3);
  store.save(7, sample(3).content);
  store.save(7, sample(7).content);
  expect_consistent(store.load(7));
  EXPECT_EQ(temporaries(), 0U);
}

TEST_F(CheckpointStoreTest, AReplacementThatDidNotArriveIsUndone) {
  { CheckpointStore(run_, 3).save(7, sample(7).content); }
  fs::rename(folder(7), run_ / "checkpoints" / ".tmp-replaced-step-000007");
  fs::create_directories(run_ / "checkpoints" / ".tmp-step-000007-123");
  CheckpointStore store(run_, 3);
  expect_consistent(store.load(7));
  EXPECT_EQ(temporaries(), 0U);
}

TEST_F(CheckpointStoreTest, LeftoversGoAtTheNextOpenButNotWhenOnlyReading) {
  { CheckpointStore(run_, 3).save(1, sample(1).content); }
  fs::create_directories(run_ / "checkpoints" / ".tmp-step-000002-99");
  overwrite(run_ / "checkpoints" / ".tmp-step-000002-99" / "model.safetensors", "half");
  expect_consistent(*CheckpointStore::read_only(run_).latest_good(nullptr));
  EXPECT_EQ(temporaries(), 1U);
  const CheckpointStore store(run_, 3);
  EXPECT_EQ(temporaries(), 0U);
  EXPECT_THAT(store.steps(), ElementsAre(1));
}

TEST_F(CheckpointStoreTest, OneWriterAtATime) {
  CheckpointStore first(run_, 3);
  try {
    CheckpointStore second(run_, 3);
    FAIL() << "a second writer was let in";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("in use by another writer"));
  }
  CheckpointStore moved = std::move(first);
  moved.save(1, sample(1).content);
  CheckpointStore reader = CheckpointStore::read_only(run_);
  expect_consistent(reader.load(1));
  EXPECT_THROW(reader.save(2, sample(2).content), Error);
  EXPECT_THROW(reader.set_aside_after(0), Error);
}

TEST_F(CheckpointStoreTest, EveryFlippedByteIsFoundAndTheOneBeforeIsTaken) {
  CheckpointStore store(run_, 3);
  store.save(1, sample(1, 8).content);
  store.save(2, sample(2, 8).content);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}) {
    const fs::path path = folder(2) / name;
    const std::string good = read(path);
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      overwrite(path, bad);
      std::vector<std::string> reports;
      const auto found = store.latest_good([&](const fs::path& checkpoint, const std::string& why) {
        EXPECT_EQ(checkpoint, folder(2));
        reports.push_back(why);
      });
      ASSERT_TRUE(found.has_value());
      ASSERT_EQ(found->step(), 1U) << name << " byte " << i;
      ASSERT_EQ(reports.size(), 1U);
      ASSERT_THAT(reports[0], HasSubstr(name));
    }
    overwrite(path, good);
  }
  expect_consistent(*store.latest_good(nullptr));
}

TEST_F(CheckpointStoreTest, ATruncatedOrMissingFileIsFound) {
  CheckpointStore store(run_, 3);
  store.save(1, sample(1).content);
  store.save(2, sample(2).content);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}) {
    const fs::path path = folder(2) / name;
    const std::string good = read(path);
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, good.size() / 2, good.size() - 1}) {
      overwrite(path, good.substr(0, length));
      EXPECT_EQ(store.latest_good(nullptr)->step(), 1U) << name << " cut to " << length;
    }
    overwrite(path, good + "x");
    EXPECT_EQ(store.latest_good(nullptr)->step(), 1U) << name << " longer";
    fs::remove(path);
    std::string why;
    EXPECT_EQ(store.latest_good([&](const fs::path&, const std::string& text) { why = text; })->step(), 1U);
    EXPECT_THAT(why, HasSubstr(name));
    overwrite(path, good);
  }
  fs::remove_all(folder(1));
  fs::remove(folder(2) / "manifest.json");
  EXPECT_FALSE(store.latest_good(nullptr).has_value());
  store.save(2, sample(2).content);  // a damaged checkpoint of our own may be replaced
  expect_consistent(store.load(2));
}

TEST_F(CheckpointStoreTest, ACheckpointUnderTheNameOfAnotherStepIsFound) {
  CheckpointStore store(run_, 3);
  store.save(1, sample(1).content);
  fs::rename(folder(1), folder(9));
  EXPECT_THROW(store.load(9), Error);
}

TEST_F(CheckpointStoreTest, ANewerVersionIsAnErrorAndNotDamage) {
  CheckpointStore store(run_, 3);
  store.save(1, sample(1).content);
  store.save(2, sample(2).content);
  std::string text = read(folder(2) / "manifest.json");
  text.replace(text.find("\"version\": 2"), 12, "\"version\": 7");
  text.resize(text.rfind("\"manifest_crc32c\""));
  text += fmt::format("\"manifest_crc32c\": \"{:08x}\"\n}}\n", crc32c(std::as_bytes(std::span(text))));
  overwrite(folder(2) / "manifest.json", text);
  try {
    store.latest_good(nullptr);
    FAIL() << "an older checkpoint was taken silently";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("version 7"));
    EXPECT_THAT(error.remedy(), HasSubstr("newer quaver"));
  }
}

TEST_F(CheckpointStoreTest, WhatOthersPutThereIsNeverDeleted) {
  CheckpointStore store(run_, 1);
  store.save(1, sample(1).content);
  overwrite(folder(1) / "notes.txt", "mine");
  fs::create_directories(run_ / "checkpoints" / "step-12");
  overwrite(run_ / "checkpoints" / "README", "mine");
  overwrite(folder(3), "a file");
  store.save(2, sample(2).content);
  EXPECT_TRUE(fs::exists(folder(1) / "notes.txt"));
  EXPECT_TRUE(fs::exists(run_ / "checkpoints" / "step-12"));
  EXPECT_TRUE(fs::exists(run_ / "checkpoints" / "README"));
  EXPECT_THROW(store.save(1, sample(1).content), Error);
  EXPECT_THROW(store.save(3, sample(3).content), Error);
  EXPECT_THROW(store.load(3), Error);
  EXPECT_EQ(store.latest_good(nullptr)->step(), 2U);
}

TEST_F(CheckpointStoreTest, AFileInPlaceOfTheDirectoryIsAnError) {
  fs::create_directories(run_);
  overwrite(run_ / "checkpoints", "a file");
  EXPECT_THROW(CheckpointStore(run_, 1), Error);
  EXPECT_THROW(CheckpointStore::read_only(run_), Error);
}

TEST_F(CheckpointStoreTest, AStateThatIsNotJsonIsRefused) {
  CheckpointStore store(run_, 1);
  Sample bad = sample(1);
  bad.content.state = "{";
  EXPECT_THROW(store.save(1, bad.content), Error);
  EXPECT_TRUE(store.steps().empty());
  EXPECT_EQ(temporaries(), 0U);
}

void expect_failed_save(CheckpointStore& store, const std::string& reason) {
  try {
    store.save(2, sample(2, 100'000).content);
    ADD_FAILURE() << "the save did not fail";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the checkpoint of step 2 was not saved"));
    EXPECT_THAT(error.what(), HasSubstr(reason));
    EXPECT_THAT(error.remedy(), HasSubstr("the older checkpoints are intact"));
    EXPECT_THAT(error.remedy(), HasSubstr("step-000001"));
  }
  EXPECT_THAT(store.steps(), ElementsAre(1));
  expect_consistent(*store.latest_good(nullptr));
}

TEST_F(CheckpointStoreTest, AFileSizeLimitLeavesTheOlderCheckpoints) {
  CheckpointStore store(run_, 1);
  store.save(1, sample(1).content);
  auto* const previous_handler = signal(SIGXFSZ, SIG_IGN);
  rlimit previous{};
  getrlimit(RLIMIT_FSIZE, &previous);
  rlimit limit = previous;
  limit.rlim_cur = 200'000;
  setrlimit(RLIMIT_FSIZE, &limit);
  expect_failed_save(store, "File too large");
  setrlimit(RLIMIT_FSIZE, &previous);
  signal(SIGXFSZ, previous_handler);
  EXPECT_EQ(temporaries(), 0U);
}

TEST_F(CheckpointStoreTest, AFullDiskLeavesTheOlderCheckpoints) {
  fs::create_directories(run_);
  if (mount("none", run_.c_str(), "tmpfs", 0, "size=512k") != 0) GTEST_SKIP() << "mounting a tmpfs is not permitted";
  {
    CheckpointStore store(run_, 1);
    store.save(1, sample(1).content);
    expect_failed_save(store, "No space left on device");
    EXPECT_EQ(temporaries(), 0U);
    store.save(3, sample(3).content);  // and the store goes on where there is room
    EXPECT_THAT(store.steps(), ElementsAre(3));
  }
  umount(run_.c_str());
}

// A child saves in a loop, now and then the same step again, until it is killed.
[[noreturn]] void save_until_killed(const fs::path& run, std::uint64_t first) {
  try {
    CheckpointStore store(run, 2);
    for (std::uint64_t step = first;; ++step) {
      const Sample made = sample(step, 4096);
      store.save(step, made.content);
      if (step % 3 == 0) store.save(step, made.content);
    }
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  _exit(1);
}

TEST_F(CheckpointStoreTest, AKilledProcessLeavesCompleteCheckpoints) {
  std::mt19937 random(4);
  // The child is killed within about four saves of its start, however long this disk takes over one.
  const auto started = std::chrono::steady_clock::now();
  { CheckpointStore(run_, 2).save(1, sample(1, 4096).content); }
  const auto save_time =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - started);
  std::uniform_int_distribution<std::int64_t> delay(0, 4 * save_time.count() + 4000);
  std::uint64_t newest = 1;
  std::size_t with_leftovers = 0;
  for (int round = 0; round < 60; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_until_killed(run_, newest + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(delay(random)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";

    with_leftovers += temporaries() > 0 ? 1 : 0;
    const CheckpointStore store(run_, 2);
    const auto found = store.latest_good(
        [](const fs::path& path, const std::string& why) { ADD_FAILURE() << path << " is damaged: " << why; });
    ASSERT_TRUE(found.has_value());
    ASSERT_GE(found->step(), newest);
    ASSERT_EQ(found->step(), store.steps().back());
    expect_consistent(*found);
    ASSERT_EQ(temporaries(), 0U);
    newest = found->step();
  }
  EXPECT_GT(newest, 10U) << "the children hardly saved: the test shows nothing";
  EXPECT_GT(with_leftovers, 5U) << "no child was killed in the middle of a save";
}

TEST(CheckpointManifestTest, ComesBackAsItWasWritten) {
  const CheckpointManifest manifest{
      12, {{"model.safetensors", {5, 0xDEADBEEF}}, {"optimizer.safetensors", {0, 0}}, {"state.json", {~0ULL, 1}}}};
  const CheckpointManifest parsed = parse_manifest(render_manifest(manifest), "m");
  EXPECT_EQ(parsed.step, manifest.step);
  EXPECT_EQ(parsed.files, manifest.files);
}

// A body of any content under a checksum that agrees: what stands behind the first line of defence.
std::string signed_manifest(std::string body) {
  return body +
         fmt::format("\"manifest_crc32c\": \"{:08x}\"\n}}\n", crc32c(std::as_bytes(std::span(std::as_const(body)))));
}

TEST(CheckpointManifestTest, RefusesWhatIsSignedButWrong) {
  const std::string digest = R"({"size": 1, "crc32c": "00000000"})";
  const std::string files =
      R"("model.safetensors": )" + digest + R"(,"optimizer.safetensors": )" + digest + R"(,"state.json": )" + digest;
  const std::string head = R"({"format": "quaver-checkpoint", "version": 2, "step": 1, "files": {)";
  EXPECT_NO_THROW(parse_manifest(signed_manifest(head + files + "},"), "m"));
  for (const std::string& body : {
           std::string("["),
           std::string("{"),
           head + "},",
           head + R"("model.safetensors": )" + digest + "},",
           head + files + R"(, "../../etc/passwd": )" + digest + "},",
           head + files + R"(, "manifest.json": )" + digest + "},",
           R"({"format": "other", "version": 2, "step": 1, "files": {)" + files + "},",
           R"({"format": "quaver-checkpoint", "version": "1", "step": 1, "files": {)" + files + "},",
           R"({"format": "quaver-checkpoint", "version": 2, "step": -1, "files": {)" + files + "},",
           R"({"format": "quaver-checkpoint", "version": 2, "step": 1, "files": [)" + digest + "],",
           head + R"("model.safetensors": 3,"optimizer.safetensors": 3,"state.json": 3},)",
           head + R"("model.safetensors": {"size": 1, "crc32c": "xyz"}},)",
       }) {
    EXPECT_THROW(parse_manifest(signed_manifest(body), "m"), Error) << body;
  }
}

TEST(CheckpointManifestTest, SurvivesTheFuzzCorpus) {
  const fs::path corpus = fs::path(__FILE__).parent_path().parent_path() / "fuzz" / "corpus" / "checkpoint_manifest";
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(corpus)) {
    const std::string body = read(entry.path());
    for (std::size_t length = 0; length <= body.size(); ++length) {
      for (const std::string& text : {body.substr(0, length), signed_manifest(body.substr(0, length))}) {
        try {
          parse_manifest(text, "input");
        } catch (const Error& error) {
          EXPECT_NE(error.remedy(), "");
        }
      }
    }
    ++files;
  }
  EXPECT_GE(files, 4U);
}

}  // namespace
}  // namespace quaver
