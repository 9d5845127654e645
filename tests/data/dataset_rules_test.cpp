// What a folder of data may hold and what becomes of it: which names are a data set's own, what a writer removes, what
// opening one refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/temporary_folder.h"

#include "data/dataset.h"
#include "data/dataset_folder.h"
#include "data/expect_error.h"

namespace quaver {
namespace {

using test::contents;
using test::expect_error;
using test::TemporaryFolder;
using ::testing::ElementsAre;

std::vector<std::string> sorted_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ExistingData, IsKnownByTheNamesOfItsFiles) {
  const auto is_refused = [](const char* name) {
    const TemporaryFolder folder;
    folder.write(name, "");
    try {
      refuse_existing_dataset(folder.path());
      return false;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr((folder / name).string()));
      return true;
    }
  };
  for (const char* name : {"dataset.json", "train-00000.qv", "valid-00000.qv", "train-00012.bin", "valid-123456.bin",
                           "train-00000.g1.qv", "valid-00003.g12.bin"}) {
    EXPECT_TRUE(is_refused(name)) << name;
  }
  for (const char* name : {"tokenizer.json", "tokenizer.g1.json", "train-0000.qv", "train-00000.txt", "test-00000.qv",
                           "train-0000a.qv", "train-00000", "train-00000.g0.qv", "train-00000.gx.qv", "train-.qv",
                           "train-00000.g1.txt", "old-train-00000.qv", "train-00000.g01.qv", "notes.json"}) {
    EXPECT_FALSE(is_refused(name)) << name;
  }
  EXPECT_NO_THROW(refuse_existing_dataset("/no/such/folder"));
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "train-00000.qv");
  EXPECT_NO_THROW(refuse_existing_dataset(folder.path())) << "a folder is no shard";
}

// Writes one shard, and the tokenizer where asked; the index says which names it was given.
void write_data_into(const TemporaryFolder& folder, bool tokenizer) {
  DatasetFolder writer(folder.path(), ExistingDataset::overwrite);
  std::ofstream(writer.stage("train-00000.qv")) << "new";
  if (tokenizer) std::ofstream(writer.stage("tokenizer.json")) << "new";
  writer.commit([&](const DatasetFolder::Files& files) {
    nlohmann::json index;
    index["train"] = {{{"file", files.name_of("train-00000.qv")}}};
    index["valid"] = nlohmann::json::array();
    index["tokenizer"] = nlohmann::json::object();
    if (tokenizer) index["tokenizer"]["file"] = files.name_of("tokenizer.json");
    if (!files.replaced.empty()) index["replaces"] = files.replaced;
    return index.dump();
  });
}

nlohmann::json index_in(const TemporaryFolder& folder) {
  return nlohmann::json::parse(contents(folder / "dataset.json"));
}

std::string index_of(const std::string& shard, const std::string& valid = "") {
  nlohmann::json index{{"train", {{{"file", shard}}}}, {"valid", nlohmann::json::array()}, {"tokenizer", {{"x", 1}}}};
  if (!valid.empty()) index["valid"].push_back({{"file", valid}});
  return index.dump();
}

TEST(DataFolder, HasTheUsualNamesInTheEndWhateverWasThere) {
  {
    const TemporaryFolder folder;  // nothing
    write_data_into(folder, true);
    EXPECT_THAT(sorted_names(folder.path()), ElementsAre("dataset.json", "tokenizer.json", "train-00000.qv"));
    EXPECT_FALSE(index_in(folder).contains("replaces"));
    write_data_into(folder, true);  // another
    EXPECT_THAT(sorted_names(folder.path()), ElementsAre("dataset.json", "tokenizer.json", "train-00000.qv"));
    EXPECT_EQ(index_in(folder)["train"][0]["file"], "train-00000.qv");
    EXPECT_EQ(index_in(folder)["tokenizer"]["file"], "tokenizer.json");
    EXPECT_FALSE(index_in(folder).contains("replaces"));
    write_data_into(folder, false);  // one without a tokenizer
    EXPECT_THAT(sorted_names(folder.path()), ElementsAre("dataset.json", "train-00000.qv"));
  }
  {
    const TemporaryFolder folder;  // shards of a writer that was killed before it had an index
    folder.write("train-00000.qv", "old");
    folder.write("valid-00000.bin", "old");
    write_data_into(folder, false);
    EXPECT_THAT(sorted_names(folder.path()), ElementsAre("dataset.json", "train-00000.qv"));
    EXPECT_EQ(index_in(folder)["train"][0]["file"], "train-00000.qv");
    EXPECT_EQ(contents(folder / "train-00000.qv"), "new");
  }
  {
    const TemporaryFolder folder;  // a data set that was left with the names of its staging
    folder.write("train-00000.g1.qv", "old");
    folder.write("dataset.json", index_of("train-00000.g1.qv"));
    write_data_into(folder, false);
    EXPECT_THAT(sorted_names(folder.path()), ElementsAre("dataset.json", "train-00000.qv"));
    EXPECT_EQ(index_in(folder)["train"][0]["file"], "train-00000.qv");
    EXPECT_FALSE(index_in(folder).contains("replaces"));
  }
}

TEST(DataFolder, StagesUnderTheFirstGenerationThatIsFree) {
  const TemporaryFolder folder;
  folder.write("train-00000.qv", "old");
  folder.write("dataset.json", index_of("train-00000.qv"));
  const DatasetFolder over_usual(folder.path(), ExistingDataset::overwrite);
  EXPECT_EQ(const_cast<DatasetFolder&>(over_usual).stage("train-00007.qv"), folder / "train-00007.g1.qv");
  EXPECT_EQ(const_cast<DatasetFolder&>(over_usual).stage("tokenizer.json"), folder / "tokenizer.g1.json");
  const TemporaryFolder second;
  second.write("train-00000.qv", "old");
  second.write("valid-00000.g1.qv", "old");
  second.write("dataset.json", index_of("train-00000.qv", "valid-00000.g1.qv"));
  DatasetFolder over_both(second.path(), ExistingDataset::overwrite);
  EXPECT_EQ(over_both.stage("train-00000.qv"), second / "train-00000.g2.qv");
  EXPECT_EQ(over_both.stage("train-00000.qv"), second / "train-00000.g2.qv") << "asked again";
}

TEST(DataFolder, ThatIsNotCommittedLosesOnlyWhatWasStaged) {
  const TemporaryFolder folder;
  folder.write("train-00000.qv", "old");
  folder.write("dataset.json", index_of("train-00000.qv"));
  {
    DatasetFolder writer(folder.path(), ExistingDataset::overwrite);
    std::ofstream(writer.stage("train-00000.qv")) << "new";
    EXPECT_THAT(sorted_names(folder.path()), ElementsAre("dataset.json", "train-00000.g1.qv", "train-00000.qv"));
    expect_error([&] { DatasetFolder(folder.path(), ExistingDataset::overwrite); }, "another process is writing");
  }
  EXPECT_THAT(sorted_names(folder.path()), ElementsAre("dataset.json", "train-00000.qv"));
  EXPECT_EQ(contents(folder / "train-00000.qv"), "old");
}

std::vector<std::string> left_of(const std::string& index, const std::vector<std::string>& names) {
  const TemporaryFolder folder;
  if (!index.empty()) folder.write("dataset.json", index);
  for (const std::string& name : names) folder.write(name, "");
  const DatasetFolder writer(folder.path(), ExistingDataset::overwrite);
  return sorted_names(folder.path());
}

TEST(DataFolder, RemovesWhatKilledWritersLeft) {
  EXPECT_THAT(left_of(index_of("train-00000.g1.qv"),
                      {"train-00000.g1.qv", "train-00000.g2.qv", "tokenizer.g2.json", "valid-00000.qv"}),
              ElementsAre("dataset.json", "train-00000.g1.qv", "valid-00000.qv"));
  EXPECT_THAT(left_of(index_of("train-00000.g1.qv", "valid-00000.g1.qv"), {"train-00000.g1.qv", "valid-00000.g1.qv"}),
              ElementsAre("dataset.json", "train-00000.g1.qv", "valid-00000.g1.qv"));
  EXPECT_THAT(left_of("", {"train-00000.g1.qv"}), ElementsAre()) << "no index refers to it";
  EXPECT_THAT(left_of("{", {"train-00000.g1.qv"}), ElementsAre("dataset.json", "train-00000.g1.qv"))
      << "which files a damaged index referred to is not known";
  EXPECT_THAT(left_of(R"({"train": [], "valid": [], "tokenizer": {"file": "tokenizer.g1.json"}})",
                      {"tokenizer.g1.json", "tokenizer.g2.json"}),
              ElementsAre("dataset.json", "tokenizer.g1.json"));
}

TEST(DataFolder, RemovesTemporaryFilesOfItsOwnNamesOnly) {
  EXPECT_THAT(left_of("", {".tmp-dataset.json-12-3", ".tmp-train-00000.qv-12-3", ".tmp-tokenizer.json-1-0",
                           ".tmp-valid-00000.g2.bin-7-7"}),
              ElementsAre());
  EXPECT_THAT(left_of("", {".tmp-dataset.json-12", ".tmp-dataset.json-12-x", ".tmp-notes.txt-12-3",
                           "tmp-dataset.json-12-3", ".tmp-dataset.json-x-3"}),
              ElementsAre(".tmp-dataset.json-12", ".tmp-dataset.json-12-x", ".tmp-dataset.json-x-3",
                          ".tmp-notes.txt-12-3", "tmp-dataset.json-12-3"));
}

// A tokenizer of the data set before last, which a writer was killed before it removed, against someone else's.
TEST(DataFolder, RemovesATokenizerThatTheIndexReplaced) {
  for (const bool replaced : {true, false}) {
    const TemporaryFolder folder;
    nlohmann::json index = nlohmann::json::parse(index_of("train-00000.qv"));
    if (replaced) index["replaces"] = {"tokenizer.json"};
    folder.write("dataset.json", index.dump());
    folder.write("train-00000.qv", "old");
    folder.write("tokenizer.json", "old");
    write_data_into(folder, false);
    EXPECT_EQ(std::filesystem::exists(folder / "tokenizer.json"), !replaced);
  }
}

// Three documents to train on and one to validate with, as bytes.
class OpenedData : public ::testing::Test {
 protected:
  OpenedData() {
    PrepareOptions options;
    options.inputs = {folder_.write("in.jsonl",
                                    "{\"text\":\"one\"}\n{\"text\":\"three\"}\n{\"text\":\"four\"}\n"
                                    "{\"text\":\"seven\"}\n")};
    options.output = folder_ / "set";
    options.valid_fraction = 0.05;  // "four" alone has a hash below that
    options.shard_tokens = 10;
    prepare(options);
    index_ = nlohmann::json::parse(contents(folder_ / "set/dataset.json"));
  }

  Dataset open_changed(const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json index = index_;
    change(index);
    folder_.write("set/dataset.json", index.dump());
    return open_dataset(folder_ / "set");
  }
  void expect_refused_as(const std::function<void(nlohmann::json&)>& change, const std::string& part) {
    expect_error([&] { open_changed(change); }, part);
  }

  TemporaryFolder folder_;
  nlohmann::json index_;
};

TEST_F(OpenedData, HasTheTokensOfEachSplit) {
  const Dataset dataset = open_changed([](nlohmann::json&) {});
  EXPECT_EQ(dataset.folder, folder_ / "set");
  EXPECT_EQ(dataset.train_tokens, 4U + 6 + 6);  // with their ends of text
  EXPECT_EQ(dataset.valid_tokens, 5U);
  EXPECT_THAT(dataset.train, ElementsAre(folder_ / "set/train-00000.qv", folder_ / "set/train-00001.qv"));
  EXPECT_THAT(dataset.valid, ElementsAre(folder_ / "set/valid-00000.qv"));
  EXPECT_EQ(dataset.vocab_size, 257);
  EXPECT_EQ(dataset.tokenizer->name(), "bytes");
}

TEST_F(OpenedData, IsRefusedWhereTheIndexDoesNotFit) {
  using nlohmann::json;
  expect_refused_as([](json& index) { index["version"] = 0; }, "is of version 0, this program reads version 1");
  expect_refused_as([](json& index) { index["version"] = 2; }, "is of version 2, this program reads version 1");
  expect_refused_as([](json& index) { index["format"] = "other"; }, "is of another format");
  expect_refused_as([](json& index) { index["train"][0]["tokens"] = 9; }, "records 9 tokens for ");
  expect_refused_as([](json& index) { index["tokenizer"]["hash"] = "00"; }, "was made with tokenizer 00, the one");
  expect_refused_as([](json& index) { index.erase("valid"); }, "is damaged");
  expect_error([&] { open_dataset(folder_.path()); }, "is not a prepared data set: it has no dataset.json");
}

TEST_F(OpenedData, DoesNotReachOutsideItsFolder) {
  for (const char* name : {"", ".", "..", "../set/train-00000.qv", "/etc/passwd", "sub/train-00000.qv", "sub/"}) {
    const std::string part = std::string("names the file \"") + name + "\", which is not in its folder";
    expect_refused_as([&](nlohmann::json& index) { index["train"][0]["file"] = name; }, part);
    expect_refused_as([&](nlohmann::json& index) { index["tokenizer"]["file"] = name; }, part);
  }
}

}  // namespace
}  // namespace quaver
