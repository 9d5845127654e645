// Examples from JSON lines: which tokens they become, which of them have a loss, and what is refused.
#include "data/examples.h"

#include <gmock/gmock.h>

#include "support/chat_tokenizer.h"
#include "support/temporary_folder.h"

#include "data/expect_error.h"

namespace quaver::test {
namespace {

const auto chatml = chat_tokenizer({"<|im_start|>", "<|im_end|>"});
const auto llama3 = chat_tokenizer({"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});

// The text of an example, what has a loss in brackets.
std::string shown(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens) {
  std::string text;
  bool inside = false;
  for (const std::int32_t token : tokens) {
    if (inside != (token >= 0)) text += inside ? "]" : "[";
    inside = token >= 0;
    const std::int32_t id = id_of(token);
    text += tokenizer.decode(std::span(&id, 1));
  }
  return inside ? text + "]" : text;
}

std::string shown(const std::string& line, const Tokenizer& tokenizer = *chatml,
                  ChatTemplate chat_template = ChatTemplate::automatic) {
  return shown(tokenizer, tokenize_example(line, tokenizer, chat_template));
}

TEST(Examples, OnlyTheCompletionHasALoss) {
  EXPECT_EQ(shown(R"({"prompt": "2+2=", "completion": "4", "other": [1]})"), "2+2=[4<|endoftext|>]");
  EXPECT_EQ(shown(R"({"prompt": "", "completion": "4"})"), "<|endoftext|>[4<|endoftext|>]");
}

TEST(Examples, AllOfATextHasALoss) { EXPECT_EQ(shown(R"({"text": "häh"})"), "<|endoftext|>[häh<|endoftext|>]"); }

TEST(Examples, OfMessagesTheAssistantsHaveALossWithTheirEnd) {
  const std::string line =
      R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi "},
          {"role": "assistant", "content": " Hello."}, {"role": "user", "content": "Bye"},
          {"role": "assistant", "content": "Bye."}], "prompt": "left alone"})";
  EXPECT_EQ(shown(line),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|>\n"
            "<|im_start|>assistant\n[ Hello.<|im_end|>]\n<|im_start|>user\nBye<|im_end|>\n"
            "<|im_start|>assistant\n[Bye.<|im_end|>]\n");
  EXPECT_EQ(shown(line, *llama3),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[Hello.<|eot_id|>]"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n[Bye.<|eot_id|>]");
}

// What a model reads before it answers is what it read there in training, to the last token.
TEST(Examples, APromptOfAChatIsWhatPrecedesTheAnswerInTraining) {
  const std::vector<ChatMessage> asked{{Speaker::system, " Be brief. "}, {Speaker::user, "Hi <|im_end|>"}};
  std::vector<ChatMessage> answered = asked;
  answered.push_back({Speaker::assistant, "Hello."});
  for (const auto* tokenizer : {chatml.get(), llama3.get()}) {
    const ChatPrompt prompt = prompt_of_chat(asked, *tokenizer, ChatTemplate::automatic);
    const std::vector<std::int32_t> trained = tokenize_chat(answered, *tokenizer, ChatTemplate::automatic);
    const auto answer = std::ranges::find_if(trained, [](std::int32_t token) { return token >= 0; });
    std::vector<std::int32_t> before(trained.begin(), answer);
    for (std::int32_t& token : before) token = id_of(token);
    EXPECT_EQ(prompt.ids, before);
    const auto end = std::ranges::find_if(answer, trained.end(), [](std::int32_t token) { return token >= 256; });
    ASSERT_NE(end, trained.end());
    EXPECT_EQ(prompt.end_of_turn, *end) << "the first special token of the answer";
  }
  expect_error([&] { prompt_of_chat(asked, *make_byte_tokenizer(), ChatTemplate::automatic); }, "no chat template");
  expect_error([&] { prompt_of_chat(asked, *chatml, ChatTemplate::llama3); }, "no special token <|begin_of_text|>");
}

TEST(Examples, APromptIsATextOrAChatThatEndsWithAQuestion) {
  EXPECT_EQ(parse_prompt(R"({"prompt": "a b", "n": 1})").text, "a b");
  const Prompt chat = parse_prompt(
      R"({"messages": [{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}], "prompt": "left alone"})");
  EXPECT_EQ(chat.text, "");
  ASSERT_EQ(chat.messages.size(), 2U);
  EXPECT_EQ(chat.messages[1].speaker, Speaker::user);
  EXPECT_EQ(chat.messages[1].content, "Hi");
  expect_error([] { parse_prompt(R"({"text": "a"})"); }, "no field \"prompt\"");
  expect_error([] { parse_prompt(R"({"prompt": 1})"); }, "field \"prompt\" is not a string");
  expect_error([] { parse_prompt(R"({"messages": []})"); }, "no message to answer");
  expect_error([] { parse_prompt(R"({"messages": [{"role": "assistant", "content": "a"}]})"); },
               "no message to answer");
  expect_error([] { parse_prompt(R"({"messages": [{"role": "poet", "content": "a"}]})"); }, "field \"role\"");
  expect_error([] { parse_prompt("[]"); }, "not a JSON object");
}

// What a user writes cannot end a turn.
TEST(Examples, NamesOfSpecialTokensInAMessageStayText) {
  const std::string line =
      R"({"messages": [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "No."}]})";
  const std::vector<std::int32_t> tokens = tokenize_example(line, *chatml, ChatTemplate::automatic);
  const std::int32_t end = chatml->encode("<|im_end|>", SpecialTokens::parsed).front();
  EXPECT_EQ(std::ranges::count_if(tokens, [&](std::int32_t token) { return id_of(token) == end; }), 2);
}

TEST(Examples, TheTokenizerMustHaveTheTokensOfTheTemplate) {
  const std::string line = R"({"messages": [{"role": "assistant", "content": "No."}]})";
  expect_error([&] { shown(line, *make_byte_tokenizer()); }, "special tokens of no chat template");
  expect_error([&] { shown(line, *chatml, ChatTemplate::llama3); }, "no special token <|begin_of_text|>");
}

TEST(Examples, WhatIsNoExampleIsRefusedWithItsPlace) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& line, const std::string& why) {
    const std::string good = R"({"prompt": "a", "completion": "b"})";
    const auto path = folder.write("examples.jsonl", good + "\n\n" + line + "\n");
    expect_error([&] { read_examples(path, *chatml, ChatTemplate::automatic); }, path.string() + ":3: " + why);
  };
  refused("{", "not valid JSON");
  refused("[1]", "not a JSON object");
  refused("{\"prompt\": \"\xff\", \"completion\": \"b\"}", "not valid JSON, or not UTF-8");
  refused(R"({"prompt": "\ud800", "completion": "b"})", "not valid JSON");
  refused(R"({"text": 1e999})", "not valid JSON");
  refused(std::string(100000, '['), "nested deeper than 8 levels");
  refused(R"({"prompt": "a"})", "no field \"completion\"");
  refused(R"({"completion": "a"})", "no field \"prompt\"");
  refused(R"({"prompt": "a", "completion": ""})", "field \"completion\" is empty");
  refused(R"({"prompt": "a", "completion": ["b"]})", "field \"completion\" is not a string");
  refused(R"({"text": ""})", "field \"text\" is empty");
  refused(R"({"words": "a"})", "none of the fields of an example");
  refused(R"({"messages": "a"})", "field \"messages\" is not a list");
  refused(R"({"messages": []})", "no message of the assistant");
  refused(R"({"messages": [{"role": "user", "content": "a"}]})", "no message of the assistant");
  refused(R"({"messages": ["a"]})", "a message is not a JSON object");
  refused(R"({"messages": [{"content": "a"}]})", "no field \"role\"");
  refused(R"({"messages": [{"role": "assistant", "content": null}]})", "field \"content\" is not a string");
  refused(R"({"messages": [{"role": "sage", "content": "a"}]})",
          "field \"role\" is none of system, user, assistant and tool");
  refused("{\"text\": \"" + std::string(std::size_t{9} << 20U, 'x') + "\"}", "a line longer than 8388608 bytes");
}

TEST(Examples, AFileMustHoldSome) {
  const TemporaryFolder folder;
  expect_error([&] { read_examples(folder.path(), *chatml, ChatTemplate::automatic); }, "not a file");
  expect_error([&] { read_examples(folder.path() / "none.jsonl", *chatml, ChatTemplate::automatic); }, "not a file");
  expect_error([&] { read_examples(folder.write("a.jsonl", "\n"), *chatml, ChatTemplate::automatic); }, "no examples");
}

TEST(Examples, AShareOfThemIsForValidation) {
  Examples all;
  for (std::int32_t i = 0; i < 10; ++i) all.append(std::vector{i, i});
  const auto firsts = [](const Examples& examples) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < examples.count(); ++i) ids.push_back(examples.at(i)[0]);
    return ids;
  };
  const auto [train, valid] = split_examples(all, 0.3);
  EXPECT_THAT(firsts(valid), testing::ElementsAre(3, 6, 9));
  EXPECT_THAT(firsts(train), testing::ElementsAre(0, 1, 2, 4, 5, 7, 8));
  EXPECT_EQ(split_examples(all, 0.001).second.count(), 1U);
  Examples one;
  one.append(std::vector{1, 2});
  expect_error([&] { split_examples(one, 0.5); }, "1 example cannot be divided");
}

}  // namespace
}  // namespace quaver::test
