// `sample` as a user runs it: prompts from everywhere, stop strings, output for programs, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/chat_tokenizer.h"

#include "cli/command.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SampledRun : public ::testing::Test {
 protected:
  void SetUp() override {
    prepare_text(folder_);
    const Outcome outcome = quaver(folder_, tiny_training_on("data", {"--dir=run"}));
    ASSERT_EQ(outcome.status, 0) << outcome.error;
  }

  Outcome sample(const Words& more) const { return quaver(folder_, Words{"sample", "run", "--tokens", "12"} + more); }
  std::vector<json> lines(const Words& more) const {
    const Outcome outcome = sample(Words{"--json"} + more);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    std::vector<json> all;
    std::istringstream in(outcome.out);
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
  }

  TemporaryFolder folder_;
};

TEST_F(SampledRun, PromptsOfAFileAreContinuedInTheirOrder) {
  folder_.write("prompts.txt", "one\n\nthe second\r\nthree");
  const Words greedy{"--temperature", "0"};
  const std::string together = sample(greedy + Words{"--prompts", "prompts.txt"}).out;
  std::string apart;
  for (const char* prompt : {"one", "the second", "three"}) {
    apart += (apart.empty() ? "" : "────\n") + sample(greedy + Words{"--prompt", prompt}).out;
  }
  EXPECT_EQ(together, apart);
  EXPECT_EQ(sample(greedy + Words{"--prompts", "prompts.txt", "--batch", "1"}).out, together);
  folder_.write("prompts.jsonl",
                "{\"prompt\": \"one\"}\n{\"prompt\": \"the second\", \"n\": 1}\n{\"prompt\": \"three\"}\n");
  EXPECT_EQ(sample(greedy + Words{"--prompts", "prompts.jsonl"}).out, together);
}

TEST_F(SampledRun, AnEmptyPromptOfAJsonLineIsAPrompt) {
  folder_.write("prompts.jsonl", "{\"prompt\": \"\"}\n\n{\"prompt\": \" \"}\n{\"prompt\": \"b\"}\n");
  const std::vector<json> texts = lines({"--prompts", "prompts.jsonl", "--temperature", "0"});
  ASSERT_EQ(texts.size(), 3U);
  EXPECT_EQ(texts[0].at("prompt"), "");
  EXPECT_EQ(texts[0].at("text"), lines({"--prompt", "", "--temperature", "0"}).at(0).at("text"));
  EXPECT_EQ(texts[1].at("prompt"), " ");
}

TEST_F(SampledRun, OutputForProgramsHasALineForEachText) {
  folder_.write("prompts.txt", "one\ntwo\n");
  const std::vector<json> four = lines({"--prompts", "prompts.txt", "--count", "2", "--seed", "5", "--top-p", "0.9"});
  ASSERT_EQ(four.size(), 4U);
  std::map<int, json> by_number;
  for (const json& line : four) by_number[line.at("number")] = line;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(by_number[i].at("prompt"), i < 2 ? "one" : "two");
    EXPECT_EQ(by_number[i].at("seed"), 5 + i);
    EXPECT_EQ(by_number[i].at("prompt_tokens"), 3);
    EXPECT_LE(by_number[i].at("tokens"), 12);
  }
}

TEST_F(SampledRun, AStopStringEndsTheText) {
  const json whole = lines({"--prompt", "a", "--temperature", "0"}).at(0);
  EXPECT_EQ(whole.at("end"), "length");
  const auto text = whole.at("text").get<std::string>();
  const std::string stop = text.substr(4, 3);
  const json cut = lines({"--prompt", "a", "--temperature", "0", "--stop", "@@", "--stop", stop}).at(0);
  EXPECT_EQ(cut.at("text"), text.substr(0, text.find(stop)));
  EXPECT_EQ(cut.at("end"), "stop");
}

TEST_F(SampledRun, SaysHowFastItWasAndTakesAnotherRecipe) {
  const Outcome told = sample({"--prompt", "a", "--recipe", "fp8-row", "--device", "cpu"});
  EXPECT_EQ(told.status, 0) << told.error;
  EXPECT_THAT(told.error, HasSubstr(" tokens/s"));
}

TEST_F(SampledRun, WhatIsNoPromptIsRefused) {
  folder_.write("blank.txt", "\n \n");
  folder_.write("bad.txt", "fine\n\xFF\xFE\n");
  folder_.write("bad.jsonl", "{\"text\": \"no prompt\"}\n");
  fs::create_directory(folder_ / "some");
  const auto refused = [&](const Words& more, const std::string& what) {
    const Outcome outcome = sample(more);
    EXPECT_EQ(outcome.status, 1) << what;
    EXPECT_THAT(outcome.error, HasSubstr(what));
  };
  refused({"--prompts", "nowhere.txt"}, "nowhere.txt");
  refused({"--prompts", "some"}, "some");
  refused({"--prompts", "blank.txt"}, "blank.txt: no prompts");
  refused({"--prompts", "bad.txt"}, "bad.txt:2: the prompt is not UTF-8");
  refused({"--prompts", "bad.jsonl"}, "bad.jsonl:1");
  refused({"--prompts", "bad.txt", "--prompt", "a"}, "excludes");
  refused({"--stop", ""}, "a stop string is empty");
  refused({"--prompts", "prompts.txt", "--count", "1000000"}, "prompts.txt");
}

TEST_F(SampledRun, APromptLongerThanTheContextIsRefusedWithTheNumbers) {
  const Outcome outcome = sample({"--prompt", std::string(5000, 'x')});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error,
              AllOf(HasSubstr("prompt 1 of 1 has 5000 tokens"), HasSubstr("at a time"), HasSubstr("shorten it")));
}

// A model that has learned two answers by heart.
class SampledChat : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    folder_->write("tokenizer.json", chat_tokenizer({"<|im_start|>", "<|im_end|>"})->to_json());
    std::string lines;
    for (const auto& [asked, answer] : {std::pair{"up?", "down"}, std::pair{"left?", "right"}}) {
      const json messages = {{{"role", "user"}, {"content", asked}}, {{"role", "assistant"}, {"content", answer}}};
      lines += json{{"messages", messages}}.dump() + "\n";
    }
    folder_->write("chats.jsonl", lines);
    folder_->write("asked.jsonl", R"({"messages": [{"role": "user", "content": "left?"}]})"
                                  "\n"
                                  R"({"prompt": "up?"})");
    const Outcome outcome =
        quaver(*folder_,
               tiny_training_on("chats.jsonl", {"--data.kind=examples", "--data.valid_share=0",
                                                "--data.tokenizer=tokenizer.json", "--steps=150", "--model.context=64",
                                                "--train.context=64", "--optim.learning_rate=0.01", "--dir=run"}));
    ASSERT_EQ(outcome.status, 0) << outcome.error;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static Outcome sample(const Words& more) {
    return quaver(*folder_, Words{"sample", "run", "--tokens", "12", "--temperature", "0"} + more);
  }

  static inline std::unique_ptr<TemporaryFolder> folder_;
};

TEST_F(SampledChat, AnAnswerEndsWithItsTurn) {
  EXPECT_EQ(sample({"--chat", "--prompt", "up?"}).out, "down\n");
  EXPECT_NE(sample({"--prompt", "up?"}).out, "down\n") << "without --chat a prompt is continued";
  EXPECT_EQ(sample({"--chat", "--prompts", "asked.jsonl"}).out, "right\n────\ndown\n");
}

TEST_F(SampledChat, MessagesAreAnsweredWithoutBeingAskedTo) {
  const Outcome outcome = sample({"--prompts", "asked.jsonl", "--json", "--batch", "1"});
  std::istringstream lines(outcome.out);
  std::string first;
  std::getline(lines, first);
  const json answer = json::parse(first);
  EXPECT_EQ(answer.at("text"), "right");
  EXPECT_EQ(answer.at("end"), "end-of-turn");
  EXPECT_EQ(answer.at("tokens"), 5);
  EXPECT_EQ(answer.at("messages"), json::parse(R"([{"role": "user", "content": "left?"}])"));
  EXPECT_FALSE(answer.contains("prompt"));
}

TEST_F(SampledChat, AChatNeedsATemplateAndAQuestion) {
  const Outcome other = sample({"--chat", "--prompt", "up?", "--data.template=llama3"});
  EXPECT_EQ(other.status, 1);
  EXPECT_THAT(other.error, HasSubstr("no special token <|begin_of_text|>"));
  const Outcome none = sample({"--chat"});
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.error, HasSubstr("there is no prompt"));
}

}  // namespace
}  // namespace quaver::test
