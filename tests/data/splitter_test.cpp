// What of a corpus is for validation: documents by their hash where they are many, else files and the end of one.
#include "data/splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

#include "data/dataset.h"
#include "data/prepare.h"
#include "data/shard.h"
#include "data/tokenizer.h"
#include "io/utf8.h"

namespace quaver {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class SplitText : public ::testing::Test {
 protected:
  const PrepareReport& split(const std::vector<std::pair<std::string, std::string>>& files, double fraction) {
    PrepareOptions options;
    for (const auto& [name, text] : files) options.inputs.push_back(folder_.write(name, text));
    options.output = folder_ / "set";
    options.existing = ExistingDataset::overwrite;
    options.valid_fraction = fraction;
    report_ = prepare(options);
    return report_;
  }

  // The documents of a split, one after the other, without what ends them.
  std::string text_of(const std::vector<std::filesystem::path>& shards) const {
    const Dataset dataset = open_dataset(folder_ / "set");
    std::string text;
    for (const auto& path : shards) {
      const Shard shard = Shard::open(path);
      std::vector<std::int32_t> ids(shard.tokens());
      shard.read(0, ids, dataset.tokenizer->vocab_size());
      std::erase(ids, dataset.tokenizer->end_of_text());
      text += dataset.tokenizer->decode(ids);
    }
    return text;
  }
  std::string training() const { return text_of(open_dataset(folder_ / "set").train); }
  std::string validation() const { return text_of(open_dataset(folder_ / "set").valid); }

  double share() const { return static_cast<double>(report_.valid_tokens) / static_cast<double>(report_.tokens()); }

  TemporaryFolder folder_;
  PrepareReport report_;
};

std::string lines(int count, const std::string& about = "line") {
  std::string text;
  for (int i = 0; i < count; ++i) text += about + " " + std::to_string(i * 7919 % 10007) + " of many\n";
  return text;
}

TEST_F(SplitText, OneFileIsSplitNearItsEnd) {
  const std::string text = lines(57'000);
  ASSERT_GT(text.size(), 1'000'000U);
  split({{"book.txt", text}}, 0.1);
  EXPECT_NEAR(share(), 0.1, 0.01);
  EXPECT_EQ(training() + validation(), text);
  EXPECT_THAT(training(), EndsWith("\n"));
  EXPECT_THAT(report_.notes, ElementsAre("one file: its last 10.0% are for validation"));
}

TEST_F(SplitText, TextWithoutLinesIsSplitAtAWordAndWithoutWordsAtACharacter) {
  std::string words;
  std::string characters;
  for (int i = 0; i < 8000; ++i) {
    words += "word" + std::to_string(i) + " ";
    characters += "é";
  }
  split({{"words.txt", words}}, 0.25);
  EXPECT_NEAR(share(), 0.25, 0.01);
  EXPECT_THAT(training(), EndsWith(" "));
  EXPECT_EQ(training() + validation(), words);
  split({{"characters.txt", characters}}, 0.1001);
  EXPECT_NEAR(share(), 0.1, 0.01);
  EXPECT_EQ(find_invalid_utf8(validation()), std::string_view::npos);
  EXPECT_EQ(training() + validation(), characters);
}

// The first of its two long lines is nowhere near a tenth of the text.
TEST_F(SplitText, LongLinesDoNotChangeTheShare) {
  split({{"a.txt", std::string(10000, 'a') + "\n" + std::string(10000, 'b')}}, 0.1);
  EXPECT_NEAR(share(), 0.1, 0.01);
}

TEST_F(SplitText, OfFewFilesWholeOnesAndTheEndOfOneValidate) {
  std::vector<std::pair<std::string, std::string>> files;
  for (int i = 0; i < 20; ++i) {
    files.emplace_back(std::to_string(100 + i) + ".txt", lines(1000, "file " + std::to_string(100 + i)));
  }
  split(files, 0.17);
  EXPECT_NEAR(share(), 0.17, 0.01);
  EXPECT_THAT(report_.notes, ElementsAre(HasSubstr("few documents: 17.0% of the text are for validation")));
  int whole = 0;
  int parted = 0;
  const std::string train = training();
  const std::string valid = validation();
  for (const auto& [name, text] : files) {
    const bool begins_in_training = train.find(text.substr(0, 40)) != std::string::npos;
    const bool ends_in_validation = valid.find(text.substr(text.size() - 40)) != std::string::npos;
    whole += !begins_in_training && ends_in_validation ? 1 : 0;
    parted += begins_in_training && ends_in_validation ? 1 : 0;
  }
  EXPECT_EQ(whole, 3);  // 17% of 20 files are 3.4
  EXPECT_EQ(parted, 1);
  std::swap(files.front(), files.back());
  split(files, 0.17);
  EXPECT_EQ(validation().size(), valid.size()) << "it does not depend on the order of the files";
}

TEST_F(SplitText, ManyDocumentsAreKeptWhole) {
  std::string json;
  std::vector<std::string> texts;
  for (int i = 0; i < 1000; ++i) {
    texts.push_back("document " + std::to_string(i) + std::string(static_cast<std::size_t>(i % 90), 'x') + ".");
    json += "{\"text\":\"" + texts.back() + "\"}\n";
  }
  split({{"many.jsonl", json}}, 0.1);
  EXPECT_EQ(report_.documents(), 1000U);
  EXPECT_NEAR(static_cast<double>(report_.valid_documents), 100, 40);
  EXPECT_THAT(report_.notes, ElementsAre());
  const std::string valid = validation();
  const std::string train = training();
  for (const std::string& text : texts) {
    EXPECT_NE(valid.find(text) != std::string::npos, train.find(text) != std::string::npos) << text;
  }
  const std::string without_last = json.substr(0, json.rfind("{"));
  split({{"many.jsonl", without_last}}, 0.1);
  EXPECT_THAT(valid, StartsWith(validation())) << "where a document goes does not depend on others";
}

// Less would not be one context of a small model.
TEST_F(SplitText, AKilobyteAtLeastValidates) {
  const std::string text = lines(3000);
  split({{"a.txt", text}}, 0.001);
  EXPECT_GE(validation().size(), 1024U);
  EXPECT_LE(validation().size(), 1124U);
  EXPECT_EQ(training() + validation(), text);
}

TEST_F(SplitText, OfTooLittleTextNothingValidates) {
  split({{"a.txt", lines(400)}}, 0.1);
  EXPECT_EQ(report_.valid_tokens, 0U);
  EXPECT_THAT(report_.notes, ElementsAre("too little text: nothing is left for validation"));
}

TEST_F(SplitText, SomethingIsLeftToTrainOn) {
  for (const std::string text : {std::string(12000, 'a'), std::string("日本") + std::string(12000, 'a')}) {
    split({{"a.txt", text}}, 0.99999);
    EXPECT_NE(training(), "");
    EXPECT_NE(validation(), "");
    EXPECT_EQ(training() + validation(), text);
  }
}

}  // namespace
}  // namespace quaver
