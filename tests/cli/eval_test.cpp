// `eval` on a run's own data and on other text, as a user runs it.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class EvaluatedRun : public ::testing::Test {
 protected:
  void SetUp() override {
    prepare_text(folder_);
    const Outcome outcome = quaver(folder_, tiny_training_on("data", {"--dir=run"}));
    ASSERT_EQ(outcome.status, 0) << outcome.error;
  }

  json evaluated(const Words& more) const {
    const Outcome outcome = quaver(folder_, Words{"eval", "run", "--json"} + more);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return outcome.status == 0 ? json::parse(outcome.out) : json();
  }

  TemporaryFolder folder_;
};

TEST_F(EvaluatedRun, TakesAllOfTheValidationData) {
  const json index = json::parse(contents(folder_ / "data/dataset.json"));
  std::uint64_t tokens = 0;
  for (const json& shard : index.at("valid")) tokens += shard.at("tokens").get<std::uint64_t>() - 1;
  const json all = evaluated({});
  EXPECT_EQ(all.at("tokens"), tokens);
  EXPECT_LT(all.at("bytes"), tokens) << "ends of text are tokens and no bytes";
  const json one = evaluated({"--batches", "1"});
  EXPECT_LT(one.at("tokens"), tokens);
  EXPECT_NE(one.at("validation_loss"), all.at("validation_loss"));
}

TEST_F(EvaluatedRun, TakesAFileOrAFolderOfText) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "some words " + std::to_string(i) + "\n";
  folder_.write("other/a.txt", text);
  const json file = evaluated({"--text", "other/a.txt"});
  EXPECT_EQ(file.at("tokens"), text.size()) << "a byte is a token";
  EXPECT_EQ(file.at("bytes"), text.size());
  EXPECT_NEAR(file.at("bits_per_byte").get<double>(), file.at("loss").get<double>() / std::log(2.0), 1e-9);
  EXPECT_NEAR(file.at("perplexity").get<double>(), std::exp(file.at("loss").get<double>()), 1e-9);
  EXPECT_FALSE(file.contains("validation_loss"));

  folder_.write("other/b.jsonl", "{\"text\": \"more words\"}\n");
  folder_.write("other/c.bin", std::string("\0\1\2", 3));
  const json both = evaluated({"--text", "other"});
  EXPECT_EQ(both.at("tokens"), text.size() + 10) << "each document by itself";
  EXPECT_EQ(both.at("bytes"), text.size() + 10);

  const Outcome told = quaver(folder_, {"eval", "run", "--text", "other"});
  EXPECT_THAT(told.out, HasSubstr("nats per token, perplexity "));
  EXPECT_THAT(told.out, HasSubstr(" bits per byte ("));
  EXPECT_THAT(told.error, HasSubstr("left out: 1 document that is not UTF-8 text (other/c.bin:1)"));
}

// Every document is as if it were alone, and the whole is their sum.
TEST_F(EvaluatedRun, WritesTheLossOfEachDocument) {
  folder_.write("docs/a.txt", "some words and more of them, longer than a window of the model is");
  folder_.write("docs/b.jsonl", "{\"text\": \"more words\"}\n\n{\"text\": \"the last of them\"}\n");
  const json total = evaluated({"--text", "docs", "--documents", "each.json"});
  const json each = json::parse(contents(folder_ / "each.json"));
  EXPECT_EQ(each.at("loss"), total.at("loss"));
  EXPECT_EQ(each.at("tokens"), total.at("tokens"));
  std::vector<std::string> names;
  double nats = 0;
  std::uint64_t bytes = 0;
  for (const json& document : each.at("documents")) {
    names.push_back(document.at("name"));
    nats += document.at("loss").get<double>() * document.at("tokens").get<double>();
    bytes += document.at("bytes").get<std::uint64_t>();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"docs/a.txt", "docs/b.jsonl:1", "docs/b.jsonl:3"}));
  EXPECT_NEAR(nats / total.at("tokens").get<double>(), total.at("loss").get<double>(), 1e-12);
  EXPECT_EQ(bytes, total.at("bytes"));
  folder_.write("alone.jsonl", "{\"text\": \"the last of them\"}\n");
  EXPECT_NEAR(evaluated({"--text", "alone.jsonl"}).at("loss").get<double>(),
              each.at("documents").at(2).at("loss").get<double>(), 1e-6);
  evaluated({"--documents", "shards.json"});
  EXPECT_EQ(json::parse(contents(folder_ / "shards.json")).at("documents").size(), 1U) << "the validation shard";
}

TEST_F(EvaluatedRun, TextThatIsNotThereIsNamed) {
  const Outcome missing = quaver(folder_, {"eval", "run", "--text", "nowhere"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.error, HasSubstr("nowhere"));
  folder_.write("blank.txt", " \n");
  const Outcome blank = quaver(folder_, {"eval", "run", "--text", "blank.txt"});
  EXPECT_EQ(blank.status, 1);
  EXPECT_THAT(blank.error, HasSubstr("blank.txt: no text"));
}

}  // namespace
}  // namespace quaver::test
