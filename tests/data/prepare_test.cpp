#include "data/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>

#include "support/temporary_folder.h"

#include "data/dataset.h"
#include "data/expect_error.h"
#include "data/loader.h"
#include "data/sample_text.h"

namespace quaver {
namespace {

using test::contents;
using test::expect_error;
using test::TemporaryFolder;
using ::testing::HasSubstr;

std::uint64_t skipped(const PrepareReport& report, SkipReason reason) {
  return report.skipped[static_cast<std::size_t>(reason)].count;
}

PrepareOptions options_for(const std::filesystem::path& input, const std::filesystem::path& output) {
  PrepareOptions options;
  options.inputs = {input};
  options.output = output;
  options.valid_fraction = 0.2;
  return options;
}

// The documents of a split, decoded from its shards.
std::vector<std::string> documents_in(const std::vector<std::filesystem::path>& shards, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (const auto& path : shards) {
    const Shard shard = Shard::open(path);
    shard.verify();
    const std::size_t before = ids.size();
    ids.resize(before + shard.tokens());
    shard.read(0, std::span(ids).subspan(before), tokenizer.vocab_size());
  }
  std::vector<std::string> documents;
  std::vector<std::int32_t> current;
  for (const std::int32_t id : ids) {
    if (id == tokenizer.end_of_text()) {
      documents.push_back(tokenizer.decode(current));
      current.clear();
    } else {
      current.push_back(id);
    }
  }
  EXPECT_TRUE(current.empty()) << "the last document has no end";
  return documents;
}

std::string names_and_contents(const std::filesystem::path& folder) {
  std::set<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    all.insert(entry.path().filename().string() + "\n" + contents(entry.path()));
  }
  std::string joined;
  for (const std::string& one : all) joined += one;
  return joined;
}

class Prepare : public ::testing::Test {
 protected:
  void write_documents(int count) {
    for (int i = 0; i < count; ++i) {
      const std::string text = "document " + std::to_string(i) + test::random_text(60, static_cast<unsigned>(i));
      std::string valid;
      for (const char c : text) {
        if (static_cast<unsigned char>(c) < 128) valid += c;
      }
      input_.write("doc" + std::to_string(1000 + i) + ".txt", valid);
      expected_.insert(valid);
    }
  }

  TemporaryFolder input_;
  TemporaryFolder output_;
  std::set<std::string> expected_;
};

TEST_F(Prepare, EveryDocumentLandsInOneSplit) {
  write_documents(110);
  for (const char* tokenizer : {"bytes", "bpe:400"}) {
    for (const ShardFormat format : {ShardFormat::quaver, ShardFormat::llmc}) {
      PrepareOptions options = options_for(input_.path(), output_ / "set");
      options.tokenizer = tokenizer;
      options.format = format;
      options.shard_tokens = 700;
      options.valid_fraction = 0.5;  // of enough documents to be split by their hashes
      options.existing = ExistingDataset::overwrite;
      const PrepareReport report = prepare(options);
      const Dataset dataset = open_dataset(output_ / "set");
      const std::vector<std::string> train = documents_in(dataset.train, *dataset.tokenizer);
      const std::vector<std::string> valid = documents_in(dataset.valid, *dataset.tokenizer);
      EXPECT_EQ(train.size(), report.train_documents);
      EXPECT_EQ(valid.size(), report.valid_documents);
      EXPECT_EQ(report.documents(), 110u);
      EXPECT_GT(report.valid_documents, 30u);
      EXPECT_LT(report.valid_documents, 80u);
      std::set<std::string> all(train.begin(), train.end());
      all.insert(valid.begin(), valid.end());
      EXPECT_EQ(all, expected_);
      EXPECT_EQ(dataset.train_tokens, report.train_tokens);
      EXPECT_GT(dataset.train.size(), 2u);
      for (std::size_t i = 0; i + 1 < report.train_shards.size(); ++i) EXPECT_EQ(report.train_shards[i].tokens, 700u);
      EXPECT_NO_THROW(ShardSource(dataset.train, {WindowOrder::shuffled, 0, dataset.vocab_size}));
    }
  }
}

TEST_F(Prepare, EqualInputGivesEqualFiles) {
  write_documents(30);
  PrepareOptions options = options_for(input_.path(), output_ / "set");
  options.tokenizer = "bpe:350";
  prepare(options);
  const std::string first = names_and_contents(output_ / "set");
  options.existing = ExistingDataset::overwrite;
  prepare(options);
  EXPECT_EQ(names_and_contents(output_ / "set"), first);
}

TEST_F(Prepare, ATokenizerFileCanBeUsedAgain) {
  write_documents(30);
  PrepareOptions options = options_for(input_.path(), output_ / "first");
  options.tokenizer = "bpe:350";
  prepare(options);
  options.tokenizer = (output_ / "first/tokenizer.json").string();
  options.output = output_ / "second";
  prepare(options);
  EXPECT_EQ(contents(output_ / "second/train-00000.qv"), contents(output_ / "first/train-00000.qv"));
}

TEST_F(Prepare, LeavesOutWhatWouldHarm) {
  write_documents(10);
  input_.write("copy.txt", contents(input_ / "doc1003.txt"));
  input_.write("empty.txt", "");
  input_.write("blank.txt", " \n\t\n");
  input_.write("image.png", std::string("\x89PNG\0\0\1", 7));
  input_.write("latin1.txt", "caf\xE9 au lait");
  input_.write("tiny.txt", "x");
  input_.write("long.txt", std::string(5000, 'y'));
  PrepareOptions options = options_for(input_.path(), output_ / "set");
  options.min_bytes = 4;
  options.max_bytes = 3000;
  const PrepareReport report = prepare(options);
  EXPECT_EQ(report.documents(), 10u);
  EXPECT_EQ(skipped(report, SkipReason::duplicate), 1u);
  EXPECT_EQ(skipped(report, SkipReason::empty), 2u);
  EXPECT_EQ(skipped(report, SkipReason::binary), 1u);
  EXPECT_EQ(skipped(report, SkipReason::invalid_utf8), 1u);
  EXPECT_EQ(skipped(report, SkipReason::too_short), 1u);
  EXPECT_EQ(skipped(report, SkipReason::too_long), 1u);
  EXPECT_THAT(report.skipped[static_cast<std::size_t>(SkipReason::binary)].example, HasSubstr("image.png"));
  EXPECT_THAT(to_text(report), HasSubstr("1 invalid UTF-8"));

  options.invalid_text = InvalidText::keep;
  options.duplicates = Duplicates::keep;
  options.existing = ExistingDataset::overwrite;
  EXPECT_EQ(prepare(options).documents(), 12u);
}

TEST_F(Prepare, JsonLinesAndFoldersMix) {
  input_.write("a.jsonl", "{\"text\":\"first\"}\n{\"text\":\"second\"}\n");
  input_.write("b.txt", "third");
  const PrepareReport report = prepare(options_for(input_.path(), output_ / "set"));
  EXPECT_EQ(report.documents(), 3u);
  EXPECT_EQ(report.bytes, 16u);
  EXPECT_EQ(report.tokens(), 19u);
  EXPECT_EQ(report.lengths.min, 6u);
  EXPECT_EQ(report.lengths.median, 6u);
  EXPECT_EQ(report.lengths.max, 7u);
  EXPECT_EQ(report.frequent.front().text, "<|endoftext|>");
  EXPECT_EQ(report.frequent.front().count, 3u);

  input_.write("a.jsonl", "{\"text\":\"first\"}\n{\"text\":\n");
  expect_error([&] { prepare(options_for(input_.path(), output_ / "other")); }, "a.jsonl:2");
  PrepareOptions options = options_for(input_.path(), output_ / "other");
  options.reading.malformed = MalformedLine::skip;
  EXPECT_EQ(skipped(prepare(options), SkipReason::malformed), 1u);
}

TEST_F(Prepare, NothingIsLeftForValidationOfANote) {
  PrepareOptions options = options_for(input_.write("note.txt", "a note"), output_ / "one");
  options.valid_fraction = 0.01;
  const PrepareReport alone = prepare(options);
  EXPECT_EQ(alone.valid_documents, 0u);
  EXPECT_THAT(to_text(alone), HasSubstr("nothing is left for validation"));
  EXPECT_TRUE(open_dataset(output_ / "one").valid.empty());
}

TEST_F(Prepare, DoesNotOverwriteUnasked) {
  write_documents(5);
  const PrepareOptions options = options_for(input_.path(), output_ / "set");
  prepare(options);
  expect_error([&] { prepare(options); }, "already holds a data set");
  std::filesystem::remove(output_ / "set" / dataset_file_name);
  expect_error([&] { prepare(options); }, "already holds a data set");
}

TEST_F(Prepare, AFailureLeavesNothingBehind) {
  write_documents(20);
  input_.write("z.jsonl", "not json\n");
  PrepareOptions options = options_for(input_.path(), output_ / "set");
  options.valid_fraction = 0;  // no scan, so that the failure comes in the middle of writing
  options.shard_tokens = 100;
  expect_error([&] { prepare(options); }, "z.jsonl:1");
  EXPECT_TRUE(std::filesystem::is_empty(output_ / "set"));
}

TEST_F(Prepare, RefusesWhatMakesNoSense) {
  write_documents(3);
  const auto refused = [&](const std::function<void(PrepareOptions&)>& change, const std::string& part) {
    PrepareOptions options = options_for(input_.path(), output_ / "set");
    change(options);
    expect_error([&] { prepare(options); }, part);
    EXPECT_FALSE(std::filesystem::exists(output_ / "set/dataset.json"));
  };
  refused([](PrepareOptions& o) { o.tokenizer = "bpe:many"; }, "bpe:many");
  refused([](PrepareOptions& o) { o.tokenizer = "bpe:12"; }, "12 tokens");
  refused([](PrepareOptions& o) { o.tokenizer = "/no/tokenizer.json"; }, "/no/tokenizer.json");
  refused([](PrepareOptions& o) { o.valid_fraction = 1; }, "fraction of 1");
  refused([](PrepareOptions& o) { o.valid_fraction = std::nan(""); }, "fraction of nan");
  refused([](PrepareOptions& o) { o.shard_tokens = 0; }, "0 tokens");
  refused([](PrepareOptions& o) { o.min_bytes = 10, o.max_bytes = 5; }, "at least 10");
  refused([](PrepareOptions& o) { o.format = ShardFormat::bare; }, "bare");
  refused([](PrepareOptions& o) { o.inputs = {"/no/such/input"}; }, "/no/such/input");
  refused([](PrepareOptions& o) { o.min_bytes = 1 << 20; }, "no document left");
  refused([](PrepareOptions& o) { o.output.clear(); }, "no output");
}

TEST_F(Prepare, TellsItsProgress) {
  write_documents(20);
  PrepareOptions options = options_for(input_.path(), output_ / "set");
  options.tokenizer = "bpe:300";
  std::vector<std::string> stages;
  prepare(options, [&](const PrepareProgress& progress) {
    EXPECT_LE(progress.done, progress.total);
    if (stages.empty() || stages.back() != progress.stage) stages.emplace_back(progress.stage);
  });
  EXPECT_THAT(stages, ::testing::ElementsAre("scan", "learn", "write"));
}

TEST_F(Prepare, TheReportIsJson) {
  write_documents(20);
  const PrepareReport report = prepare(options_for(input_.path(), output_ / "set"));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json.at("documents").at("train"), report.train_documents);
  EXPECT_EQ(json.at("bytes"), report.bytes);
  EXPECT_EQ(json.at("frequent_tokens").size(), report.frequent.size());
  const auto file = nlohmann::json::parse(contents(output_ / "set/dataset.json"));
  EXPECT_EQ(file.at("report"), json);
}

TEST_F(Prepare, DatasetsAreCheckedWhenOpened) {
  write_documents(20);
  PrepareOptions options = options_for(input_.path(), output_ / "set");
  options.tokenizer = "bpe:300";
  prepare(options);
  const auto path = output_ / "set/dataset.json";
  const std::string good = contents(path);
  const auto refused = [&](const std::function<void(nlohmann::json&)>& change, const std::string& part) {
    auto file = nlohmann::json::parse(good);
    change(file);
    output_.write("set/dataset.json", file.dump());
    expect_error([&] { open_dataset(output_ / "set"); }, part);
  };
  refused([](auto& file) { file["version"] = 2; }, "version 2");
  refused([](auto& file) { file["format"] = "other"; }, "another format");
  refused([](auto& file) { file["format"] = 3; }, "damaged");
  refused([](auto& file) { file.erase("train"); }, "damaged");
  refused([](auto& file) { file["train"] = 3; }, "damaged");
  refused([](auto& file) { file["train"][0]["file"] = "../train-00000.qv"; }, "not in its folder");
  refused([](auto& file) { file["train"][0]["file"] = "gone.qv"; }, "gone.qv");
  refused([](auto& file) { file["train"][0]["tokens"] = 1; }, "records 1 tokens");
  refused([](auto& file) { file["tokenizer"]["hash"] = "0000000000000000"; }, "was made with tokenizer");
  output_.write("set/dataset.json", "{");
  expect_error([&] { open_dataset(output_ / "set"); }, "damaged");
  expect_error([&] { open_dataset(output_.path()); }, "not a prepared data set");

  output_.write("set/dataset.json", good);
  EXPECT_NO_THROW(open_dataset(output_ / "set"));
  ShardWriter other(output_ / "set/train-00000.qv", ShardFormat::quaver, 300, 99);
  other.append(std::vector<std::int32_t>(open_dataset(output_ / "set").train_tokens, 1));
  other.finish();
  expect_error([&] { open_dataset(output_ / "set"); }, "another tokenizer");
}

}  // namespace
}  // namespace quaver
