// Overwriting a data set: at every moment the old one or the new one is whole, whatever ends the writer.
#include <atomic>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "support/temporary_folder.h"

#include "data/dataset.h"
#include "data/expect_error.h"
#include "data/identity.h"
#include "data/loader.h"
#include "data/prepare.h"

namespace quaver {
namespace {

namespace fs = std::filesystem;
using test::contents;
using test::expect_error;
using test::TemporaryFolder;
using Files = std::map<std::string, std::string>;

Files files_of(const fs::path& folder) {
  Files files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().filename().string()] = contents(entry.path());
  }
  return files;
}

// Opens and verifies everything.
DataIdentity identity_in(const fs::path& folder) {
  const Dataset dataset = open_dataset(folder);
  const ShardSource train(dataset.train, {WindowOrder::shuffled, 0, dataset.vocab_size});
  const ShardSource valid(dataset.valid, {WindowOrder::sequential, 0, dataset.vocab_size});
  for (const ShardSource* source : {&train, &valid}) {
    for (const Shard& shard : source->shards()) shard.verify();
  }
  return identity_of(train, &valid, dataset.tokenizer->hash(), dataset.vocab_size);
}

class Overwrite : public ::testing::Test {
 protected:
  Overwrite() {
    for (const char* name : {"a", "b"}) {
      for (int i = 0; i < 12; ++i) {
        std::string text = std::string("text ") + name + " " + std::to_string(i) + ":";
        for (int word = 0; word < 30 + i; ++word) text += " word" + std::to_string((word * (i + 3)) % 17);
        input_.write(std::string(name) + "/" + std::to_string(i) + ".txt", text);
      }
    }
    prepare(from("a"));
    before_ = files_of(output_);
  }

  PrepareOptions from(std::string_view name) const {
    PrepareOptions options;
    options.inputs = {input_ / name};
    options.output = output_;
    options.tokenizer = "bpe:300";
    options.valid_fraction = 0.2;
    options.shard_tokens = 500;
    options.existing = ExistingDataset::overwrite;
    return options;
  }

  // What a fresh folder gets.
  Files fresh(std::string_view name) const {
    PrepareOptions options = from(name);
    options.output = folder_ / "fresh";
    prepare(options);
    Files files = files_of(options.output);
    fs::remove_all(options.output);
    return files;
  }

  TemporaryFolder input_;
  TemporaryFolder folder_;
  fs::path output_ = folder_ / "set";
  Files before_;
};

TEST_F(Overwrite, EndsAsAFreshDataSetDoes) {
  prepare(from("b"));
  EXPECT_EQ(files_of(output_), fresh("b"));
  prepare(from("b"));
  EXPECT_EQ(files_of(output_), fresh("b"));
}

TEST_F(Overwrite, AFailureLeavesTheOldDataSet) {
  input_.write("empty/0.txt", "\n\n");
  expect_error([&] { prepare(from("empty")); }, "no document left");
  EXPECT_EQ(files_of(output_), before_);

  input_.write("b/z.jsonl", "not json\n");
  expect_error([&] { prepare(from("b")); }, "z.jsonl:1");
  EXPECT_EQ(files_of(output_), before_);
}

// The limit on a file's size stands for a full disk: it fails the shards, the tokenizer or dataset.json in turn.
TEST_F(Overwrite, AFullDiskLeavesTheOldDataSet) {
  int failures = 0;
  for (const rlim_t limit : {100, 700, 1300, 3000, 5000, 1 << 20}) {
    const pid_t child = fork();
    if (child == 0) {
      const struct rlimit sizes { limit, limit };
      std::signal(SIGXFSZ, SIG_IGN);
      if (setrlimit(RLIMIT_FSIZE, &sizes) != 0) _exit(2);
      try {
        prepare(from("b"));
      } catch (const Error& error) {
        _exit(std::string_view(error.what()).find(output_.string()) != std::string_view::npos ? 1 : 3);
      }
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 0) {
      EXPECT_EQ(files_of(output_), fresh("b"));
    } else {
      ASSERT_EQ(WEXITSTATUS(status), 1);
      EXPECT_EQ(files_of(output_), before_) << limit;
      ++failures;
    }
  }
  EXPECT_GE(failures, 3);
}

TEST_F(Overwrite, KilledAtAnyMomentOneDataSetIsWhole) {
  const DataIdentity a = identity_in(output_);
  const auto begin = std::chrono::steady_clock::now();
  prepare(from("b"));
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const DataIdentity b = identity_in(output_);
  ASSERT_NE(a, b);
  std::mt19937 random(1);
  std::uniform_real_distribution<double> life(0, 1.1 * whole);
  for (int kills = 0; kills < 16; ++kills) {
    const pid_t child = fork();
    if (child == 0) {
      prepare(from(kills % 2 == 0 ? "a" : "b"));
      _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(life(random)));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    const DataIdentity now = identity_in(output_);
    ASSERT_TRUE(now == a || now == b);
  }
  prepare(from("a"));
  EXPECT_EQ(files_of(output_), before_) << "something was left behind";
}

// The state that a kill between the two halves of a swap leaves.
TEST_F(Overwrite, AnInterruptedSwapIsADataSetAndIsTidiedUp) {
  const DataIdentity a = identity_in(output_);
  auto index = nlohmann::json::parse(before_.at("dataset.json"));
  for (const char* split : {"train", "valid"}) {
    for (auto& entry : index[split]) {
      std::string name = entry["file"];
      const std::string staged = name.substr(0, name.rfind('.')) + ".g1.qv";
      fs::copy_file(output_ / name, output_ / staged);
      entry["file"] = staged;
    }
  }
  fs::remove(output_ / "dataset.json");
  std::ofstream(output_ / "dataset.json") << index.dump();
  EXPECT_EQ(identity_in(output_), a);
  input_.write("empty/0.txt", "\n\n");
  expect_error([&] { prepare(from("empty")); }, "no document left");
  EXPECT_EQ(identity_in(output_), a);
  prepare(from("b"));
  EXPECT_EQ(files_of(output_), fresh("b"));
}

TEST_F(Overwrite, KeepsWhatIsNotItsOwn) {
  const std::vector<std::string> foreign{"notes.txt",         ".tmp-thesis-1-2",    "train-00000.gx.qv",
                                         "train-00000.g1.md", "train-00000.g01.qv", "train-1.bin"};
  const std::vector<std::string> left_by_a_kill{".tmp-train-00000.qv-123-0", ".tmp-train-00000.g1.qv-123-5",
                                                ".tmp-dataset.json-9-1", "train-00007.g3.qv", "tokenizer.g2.json"};
  for (const auto& name : foreign) std::ofstream(output_ / name) << name;
  for (const auto& name : left_by_a_kill) std::ofstream(output_ / name) << name;
  fs::create_directory(output_ / "train-00099.qv");
  prepare(from("b"));
  Files expected = fresh("b");
  for (const auto& name : foreign) expected[name] = name;
  EXPECT_EQ(files_of(output_), expected);
  EXPECT_TRUE(fs::is_directory(output_ / "train-00099.qv"));
}

TEST_F(Overwrite, ATokenizerThatTheDataSetDoesNotUseIsKept) {
  PrepareOptions bytes = from("a");
  bytes.tokenizer = "bytes";
  prepare(bytes);
  ASSERT_FALSE(fs::exists(output_ / "tokenizer.json"));
  std::ofstream(output_ / "tokenizer.json") << "mine";
  prepare(bytes);
  EXPECT_EQ(contents(output_ / "tokenizer.json"), "mine");
  prepare(from("a"));  // needs one of its own
  EXPECT_EQ(contents(output_ / "tokenizer.json"), "mine");
  EXPECT_GT(open_dataset(output_).vocab_size, 257);
  EXPECT_TRUE(fs::exists(output_ / "train-00000.qv"));
}

TEST_F(Overwrite, AReaderOfTheOldShardsReadsOn) {
  const Dataset dataset = open_dataset(output_);
  const ShardSource source(dataset.train, {WindowOrder::shuffled, 0, dataset.vocab_size});
  const auto window = [&] {
    std::vector<std::int32_t> inputs(32);
    std::vector<std::int32_t> targets(32);
    source.fill(5, 1, 32, inputs.data(), targets.data());
    return inputs;
  };
  const std::vector<std::int32_t> before = window();
  prepare(from("b"));
  EXPECT_EQ(window(), before);
}

TEST_F(Overwrite, WhoOpensMeanwhileGetsOneOfTheTwo) {
  std::atomic<bool> finished{false};
  std::atomic<int> opened{0};
  std::thread reader([&] {
    while (!finished) {
      EXPECT_NO_THROW(open_dataset(output_));
      ++opened;
    }
  });
  for (const char* name : {"b", "a", "b", "a"}) prepare(from(name));
  finished = true;
  reader.join();
  EXPECT_GT(opened, 4);
}

TEST_F(Overwrite, OneWriterAtATime) {
  const int other = ::open(output_.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  expect_error([&] { prepare(from("b")); }, "another process is writing a data set to " + output_.string());
  EXPECT_EQ(files_of(output_), before_);
  ::close(other);
  EXPECT_NO_THROW(prepare(from("b")));
}

TEST_F(Overwrite, WorksThroughASymbolicLink) {
  fs::create_directory_symlink(output_, folder_ / "link");
  PrepareOptions options = from("b");
  options.output = folder_ / "link";
  prepare(options);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(files_of(output_), fresh("b"));
}

}  // namespace
}  // namespace quaver
