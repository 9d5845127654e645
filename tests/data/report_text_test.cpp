// The report of a data set, word by word and field by field, and the options it records.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/temporary_folder.h"

#include "data/bpe.h"
#include "data/dataset.h"
#include "data/expect_error.h"
#include "data/prepare.h"
#include "data/prepare_output.h"

namespace quaver {
namespace {

using nlohmann::json;
using test::contents;
using test::expect_error;
using test::TemporaryFolder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PrepareReport report_by_hand() {
  PrepareReport report;
  report.files = 3;
  report.bytes = 1200;
  report.train_documents = 70;
  report.valid_documents = 10;
  report.train_tokens = 300;
  report.valid_tokens = 100;
  report.skipped[static_cast<std::size_t>(SkipReason::too_short)] = {2, "a.txt:7"};
  report.skipped[static_cast<std::size_t>(SkipReason::malformed)] = {5, "b.jsonl:1"};
  report.lengths = {.min = 1, .median = 4, .p90 = 9, .max = 17, .mean = 5.25, .histogram = {1, 0, 60, 18, 1}};
  report.train_shards = {{"train-00000.qv", 200}, {"train-00001.qv", 100}};
  report.valid_shards = {{"valid-00000.qv", 50}, {"valid-00001.qv", 50}};
  report.frequent = {{32, " ", 80}, {10, "\\n", 6}};
  report.tokens_used = 90;
  report.tokenizer = "bpe:300";
  report.vocab_size = 300;
  report.tokenizer_hash = 0xabc;
  report.notes = {"one thing", "another"};
  return report;
}

TEST(DataReport, AsText) {
  EXPECT_EQ(to_text(report_by_hand()),
            "documents     80 of 3 files: 70 train, 10 valid\n"
            "left out      2 too short (a.txt:7), 5 malformed (b.jsonl:1)\n"
            "bytes         1200\n"
            "tokens        400: 300 train, 100 valid (25.00%)\n"
            "tokenizer     bpe:300, hash 0000000000000abc, 90 of 300 tokens occur\n"
            "compression   3.000 bytes a token\n"
            "lengths       min 1, median 4, mean 5.2, p90 9, max 17 tokens a document\n"
            "           1 – 1                  1  #\n"
            "           4 – 7                 60  ########################################\n"
            "           8 – 15                18  ############\n"
            "          16 – 31                 1  #\n"
            "shards        2 train, 2 valid; smallest / largest 0.500\n"
            "  train-00000.qv            200 tokens\n"
            "  train-00001.qv            100 tokens\n"
            "  valid-00000.qv             50 tokens\n"
            "  valid-00001.qv             50 tokens\n"
            "frequent      \" \" 20.00%, \"\\n\" 1.50%\n"
            "note          one thing\n"
            "note          another\n");
}

TEST(DataReport, OfNothing) {
  const PrepareReport report;
  EXPECT_EQ(report.bytes_per_token(), 0);
  EXPECT_EQ(report.shard_balance(), 1);
  EXPECT_THAT(to_text(report), HasSubstr("left out      none\n"));
  EXPECT_THAT(to_text(report), HasSubstr("0: 0 train, 0 valid (0.00%)\n"));
}

TEST(DataReport, ListsEightShardsOfASplit) {
  PrepareReport report = report_by_hand();
  report.train_shards.clear();
  for (int i = 0; i < 8; ++i) report.train_shards.push_back({"shard" + std::to_string(i), 5});
  EXPECT_THAT(to_text(report), HasSubstr("  shard7                      5 tokens\n  valid-00000.qv"));
  report.train_shards.push_back({"shard8", 5});
  EXPECT_THAT(to_text(report), HasSubstr("  shard7                      5 tokens\n  … 9 train shards in all\n"));
  EXPECT_THAT(to_text(report), ::testing::Not(HasSubstr("shard8")));
}

TEST(DataReport, AsJson) {
  const json object = json::parse(to_json(report_by_hand()));
  EXPECT_EQ(object, json::parse(R"({
    "files": 3, "documents": {"train": 70, "valid": 10},
    "skipped": {"too short": {"count": 2, "example": "a.txt:7"}, "malformed": {"count": 5, "example": "b.jsonl:1"}},
    "bytes": 1200, "tokens": {"train": 300, "valid": 100}, "bytes_per_token": 3.0,
    "document_tokens": {"min": 1, "median": 4, "p90": 9, "max": 17, "mean": 5.25, "log2_histogram": [1, 0, 60, 18, 1]},
    "shards": {"train": [{"file": "train-00000.qv", "tokens": 200}, {"file": "train-00001.qv", "tokens": 100}],
               "valid": [{"file": "valid-00000.qv", "tokens": 50}, {"file": "valid-00001.qv", "tokens": 50}]},
    "shard_balance": 0.5,
    "tokenizer": {"name": "bpe:300", "vocab_size": 300, "tokens_used": 90, "hash": "0000000000000abc"},
    "frequent_tokens": [{"id": 32, "text": " ", "count": 80}, {"id": 10, "text": "\\n", "count": 6}],
    "notes": ["one thing", "another"]})"));
}

TEST(DataReport, NamesOfReasons) {
  EXPECT_EQ(name_of(SkipReason::empty), "empty");
  EXPECT_EQ(name_of(SkipReason::too_short), "too short");
  EXPECT_EQ(name_of(SkipReason::too_long), "too long");
  EXPECT_EQ(name_of(SkipReason::binary), "binary");
  EXPECT_EQ(name_of(SkipReason::invalid_utf8), "invalid UTF-8");
  EXPECT_EQ(name_of(SkipReason::duplicate), "duplicate");
  EXPECT_EQ(name_of(SkipReason::malformed), "malformed");
}

TEST(ReadableText, HasNoControlCharacters) {
  EXPECT_EQ(readable("a b~"), "a b~");
  EXPECT_EQ(readable("\n\t\r"), "\\n\\t\\x0d");
  EXPECT_EQ(readable(std::string_view("\0\x1F\x20\x7E\x7F", 5)), "\\x00\\x1f ~\\x7f");
  EXPECT_EQ(readable("\xC2\x80\xC2\x9F\xC2\xA0é"), "\\xc2\\x80\\xc2\\x9f\xC2\xA0é");
  EXPECT_EQ(readable("\xFF"
                     "a\xC3"),
            "\\xffa\\xc3");
  EXPECT_EQ(readable("漢"), "漢");
}

// Each option other than its default.
TEST(DataOptions, AreRecorded) {
  const TemporaryFolder folder;
  PrepareOptions options;
  options.inputs = {folder.write("in/a.txt", "some text"), folder.write("in/b.txt", "other text")};
  options.include = {"*.txt"};
  options.exclude = {"*.md", "x"};
  options.reading.separator = "--";
  options.reading.piece_bytes = 2048;
  options.reading.text_field = "body";
  options.output = folder / "set";
  options.shard_tokens = 7;
  options.valid_fraction = 0.25;
  options.min_bytes = 2;
  options.max_bytes = 3000;
  options.bpe_sample_bytes = 12345;
  const auto recorded = [&] {
    options.existing = ExistingDataset::overwrite;
    prepare(options);
    return json::parse(contents(folder / "set/dataset.json"));
  };
  const json whole = recorded();
  json expected = {{"inputs", {(folder / "in/a.txt").string(), (folder / "in/b.txt").string()}},
                   {"include", {"*.txt"}},
                   {"exclude", {"*.md", "x"}},
                   {"text_field", "body"},
                   {"separator", "--"},
                   {"piece_bytes", 2048},
                   {"malformed_lines", "stop"},
                   {"tokenizer", "bytes"},
                   {"shard_format", "quaver"},
                   {"shard_tokens", 7},
                   {"valid_fraction", 0.25},
                   {"min_bytes", 2},
                   {"max_bytes", 3000},
                   {"invalid_text", "skip"},
                   {"duplicates", "skip"},
                   {"bpe_sample_bytes", 12345}};
  EXPECT_EQ(whole["options"], expected);
  EXPECT_EQ(whole["format"], "quaver dataset");
  EXPECT_EQ(whole["version"], 1);
  EXPECT_EQ(whole["tokenizer"], (json{{"name", "bytes"}, {"vocab_size", 257}, {"hash", "f2688bc97f55eab5"}}));
  EXPECT_EQ(whole["report"]["tokenizer"]["hash"], "f2688bc97f55eab5");
  EXPECT_FALSE(whole.contains("replaces"));
  options.reading.malformed = MalformedLine::skip;
  options.format = ShardFormat::llmc;
  options.invalid_text = InvalidText::keep;
  options.duplicates = Duplicates::keep;
  expected["malformed_lines"] = "skip";
  expected["shard_format"] = "llm.c";
  expected["invalid_text"] = "keep";
  expected["duplicates"] = "keep";
  EXPECT_EQ(recorded()["options"], expected);
}

class PreparedText : public ::testing::Test {
 protected:
  PrepareReport prepared(const std::vector<std::pair<std::string, std::string>>& files, PrepareOptions options = {}) {
    for (const auto& [name, text] : files) options.inputs.push_back(folder_.write(name, text));
    options.output = folder_ / "set";
    options.existing = ExistingDataset::overwrite;
    told_.clear();
    return prepare(options, [this](const PrepareProgress& progress) {
      told_.push_back({std::string(progress.stage), progress.done, progress.total});
    });
  }

  struct Told {
    std::string stage;
    std::uint64_t done;
    std::uint64_t total;
  };
  TemporaryFolder folder_;
  std::vector<Told> told_;
};

PrepareOptions without_validation() {
  PrepareOptions options;
  options.valid_fraction = 0;
  return options;
}

TEST_F(PreparedText, BlankIsWhiteSpaceOfAnyKind) {
  const PrepareReport report = prepared({{"a.txt", " \t\r\n\v\f"}, {"b.txt", "\v"}, {"c.txt", "\f"}, {"d.txt", "x"}});
  EXPECT_EQ(report.skipped[static_cast<std::size_t>(SkipReason::empty)].count, 3U);
  EXPECT_EQ(report.documents(), 1U);
}

TEST_F(PreparedText, NotesWhatIsToBeKnown) {
  const std::string one = "too little text: nothing is left for validation";
  EXPECT_THAT(prepared({{"a.txt", "text"}}).notes, ElementsAre(one));
  EXPECT_THAT(prepared({{"a.txt", "text"}}, without_validation()).notes, ElementsAre());
  EXPECT_THAT(prepared({{"a.txt", "text"}, {"b.txt", "other"}}).notes, ElementsAre());
  PrepareOptions bpe = without_validation();
  bpe.tokenizer = "bpe:258";
  EXPECT_THAT(prepared({{"a.txt", "abab"}}, bpe).notes, ElementsAre());
  bpe.tokenizer = "bpe:300";
  EXPECT_THAT(prepared({{"a.txt", "abab"}}, bpe).notes,
              ElementsAre("the text has enough repeated pairs for a vocabulary of 258, not 300"));
}

TEST_F(PreparedText, CountsEveryMalformedLineOfEveryFile) {
  PrepareOptions options;
  options.reading.malformed = MalformedLine::skip;
  const PrepareReport report = prepared(
      {{"a.jsonl", "{\"text\":\"x\"}\nbad\nbad\n"}, {"b.jsonl", "bad\n{\"text\":\"y\"}\nbad\nbad\n"}}, options);
  const SkippedDocuments& malformed = report.skipped[static_cast<std::size_t>(SkipReason::malformed)];
  EXPECT_EQ(malformed.count, 5U);
  EXPECT_EQ(malformed.example, (folder_ / "a.jsonl").string() + ":2");
  EXPECT_EQ(report.files, 2U);
  EXPECT_EQ(report.documents(), 2U);
}

TEST_F(PreparedText, CountsTheFilesOfAFolder) {
  folder_.write("in/a.txt", "one");
  folder_.write("in/b.txt", "two");
  folder_.write("in/sub/c.txt", "three");
  PrepareOptions options = without_validation();
  options.inputs = {folder_ / "in"};
  EXPECT_EQ(prepared({}, options).files, 3U);
}

TEST_F(PreparedText, FiguresOfTwentyDocuments) {
  std::string lines;
  for (int i = 1; i <= 20; ++i) {
    lines += "{\"text\":\"" + std::string(static_cast<std::size_t>(i), static_cast<char>('a' + i)) + "\"}\n";
  }
  const PrepareReport report = prepared({{"a.jsonl", lines}}, without_validation());
  EXPECT_EQ(report.lengths.median, 11U);  // the tenth of 2 … 21
  EXPECT_EQ(report.lengths.p90, 19U);     // the eighteenth
  EXPECT_EQ(report.lengths.max, 21U);
  EXPECT_DOUBLE_EQ(report.lengths.mean, 11.5);
  EXPECT_EQ(report.tokenizer_hash, make_byte_tokenizer()->hash());
  EXPECT_EQ(report.vocab_size, 257);
  EXPECT_EQ(report.tokens_used, 21);
  ASSERT_EQ(report.frequent.size(), 20U) << "of 21";
  EXPECT_EQ(report.frequent[0].text, "u");  // the last, twenty times, before as many ends of text
  EXPECT_EQ(report.frequent[1].text, "<|endoftext|>");
  EXPECT_EQ(report.frequent[19].count, 2U);
}

TEST_F(PreparedText, ShardsHaveTwoTokensOrMore) {
  PrepareOptions options = without_validation();
  options.shard_tokens = 2;
  EXPECT_EQ(prepared({{"a.txt", "abc"}}, options).train_shards.size(), 2U);
  options.shard_tokens = 1;
  expect_error([&] { prepared({{"a.txt", "abc"}}, options); }, "shards of 1 tokens");
}

// A BPE tokenizer learns from the documents whose hash, mixed once more, is below the share of bytes asked for: 0.18
// for the first, 0.70 for the second. The split goes by the hash itself, 0.82 and 0.26.
TEST_F(PreparedText, ASampleIsDrawnAllOverTheText) {
  const std::vector<std::pair<std::string, std::string>> files{{"a.txt", "qzqzqzqzqzqzqzqz"},
                                                               {"b.txt", "jkjkjkjkjkjkjkjk"}};
  PrepareOptions options = without_validation();
  options.tokenizer = "bpe:300";
  const auto learned = [&](std::uint64_t bytes) {
    options.bpe_sample_bytes = bytes;
    prepared(files, options);
    const auto tokenizer = load_bpe(folder_ / "set/tokenizer.json");
    std::string found;
    for (const std::string& token : tokenizer->definition().tokens) {
      if (token == "qz" || token == "jk") found += token;
    }
    return found;
  };
  EXPECT_EQ(learned(5), "");  // of 32
  EXPECT_EQ(learned(6), "qz");
  EXPECT_EQ(learned(22), "qz");
  EXPECT_EQ(learned(23), "jkqz");
  EXPECT_EQ(learned(1000), "jkqz");
}

TEST_F(PreparedText, ProgressIsInBytesOfAllFilesAndNotTooOften) {
  constexpr std::uint64_t mebibyte = 1 << 20;
  constexpr std::uint64_t piece = 65536;
  const auto text_of = [](char first) {
    std::string text;
    for (int i = 0; text.size() < mebibyte + mebibyte / 4; ++i) text += first + std::to_string(i) + "\n";
    return text;
  };
  const std::string a = text_of('a'), b = text_of('b');
  prepared({{"a.txt", a}, {"b.txt", b}}, without_validation());
  ASSERT_EQ(told_.size(), 3U);
  for (const Told& told : told_) {
    EXPECT_EQ(told.stage, "write");
    EXPECT_EQ(told.total, a.size() + b.size());
  }
  EXPECT_GE(told_[0].done, mebibyte);
  EXPECT_LT(told_[0].done, mebibyte + piece);
  EXPECT_GE(told_[1].done, told_[0].done + mebibyte);
  EXPECT_LT(told_[1].done, told_[0].done + mebibyte + piece);
  EXPECT_EQ(told_[2].done, a.size() + b.size());
}

TEST_F(PreparedText, LearningIsToldEvery64MergesAndAtTheEnd) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "w" + std::to_string(i * 7919 % 1000) + " w" + std::to_string(i) + "\n";
  PrepareOptions options;
  options.tokenizer = "bpe:357";  // a hundred merges
  prepared({{"a.txt", text}, {"b.txt", text + "x"}}, options);
  std::vector<std::uint64_t> learned;
  std::vector<std::string> stages;
  for (const Told& told : told_) {
    if (stages.empty() || stages.back() != told.stage) stages.push_back(told.stage);
    if (told.stage != "learn") continue;
    EXPECT_EQ(told.total, 100U);
    learned.push_back(told.done);
  }
  EXPECT_THAT(learned, ElementsAre(64, 100));
  EXPECT_THAT(stages, ElementsAre("scan", "learn", "write"));
}

}  // namespace
}  // namespace quaver
