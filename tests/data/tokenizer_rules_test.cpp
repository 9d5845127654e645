// What a tokenizer is refused for and what a tokenizer.json means where it says nothing.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "data/expect_error.h"
#include "io/utf8.h"

namespace quaver {
namespace {

using test::expect_error;
using ::testing::ElementsAre;

// The bytes, "ab", "abab" and the end of text, 258.
BpeDefinition definition_of_ab() {
  BpeDefinition definition;
  for (int byte = 0; byte < 256; ++byte) definition.tokens.emplace_back(1, static_cast<char>(byte));
  definition.tokens.insert(definition.tokens.end(), {"ab", "abab", std::string(end_of_text_name)});
  definition.in_model.assign(259, true);
  definition.in_model[258] = false;
  definition.added = {{.id = 258, .content = std::string(end_of_text_name)}};
  definition.merges = {{'a', 'b', 256}, {256, 256, 257}};
  definition.end_of_text = 258;
  return definition;
}

void expect_contradiction(const std::function<void(BpeDefinition&)>& change, const std::string& part) {
  BpeDefinition definition = definition_of_ab();
  change(definition);
  try {
    const BpeTokenizer tokenizer(definition, "made.json");
    ADD_FAILURE() << "taken, where this was expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), "made.json: " + part);
  }
}

TEST(BpeDefinition, IsTakenAsItIs) {
  const BpeTokenizer tokenizer(definition_of_ab());
  EXPECT_EQ(tokenizer.name(), "bpe:259");
  EXPECT_EQ(tokenizer.vocab_size(), 259);
  EXPECT_EQ(tokenizer.end_of_text(), 258);
  EXPECT_THAT(tokenizer.encode("ababab"), ElementsAre(257, 256));
  EXPECT_THAT(tokenizer.encode("babab"), ElementsAre('b', 257));
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{257, 'x', 258}), "ababx<|endoftext|>");
  expect_error([&] { tokenizer.decode(std::vector<std::int32_t>{259}); }, "token 259 is outside the vocabulary of 259");
  expect_error([&] { tokenizer.decode(std::vector<std::int32_t>{-1}); }, "token -1 is outside");
}

// Ids are appended, the second time from memory of the first.
TEST(BpeDefinition, RepeatedWordsAreEncodedAlike) {
  const BpeTokenizer tokenizer(definition_of_ab());
  std::vector<std::int32_t> ids{7};
  tokenizer.encode("abc", ids);
  EXPECT_THAT(ids, ElementsAre(7, 256, 'c'));
  tokenizer.encode("abc", ids);
  tokenizer.encode("", ids);
  EXPECT_THAT(ids, ElementsAre(7, 256, 'c', 256, 'c'));
  const std::string longer(200, 'a');
  EXPECT_EQ(tokenizer.encode(longer).size(), 200U);
  EXPECT_EQ(tokenizer.encode(longer).size(), 200U);
}

TEST(BpeDefinition, OfEqualMergesTheFirstInTheTextComesFirst) {
  BpeDefinition definition = definition_of_ab();
  definition.tokens[256] = "aa";
  definition.tokens[257] = "aaaa";
  definition.merges = {{'a', 'a', 256}, {256, 256, 257}};
  EXPECT_THAT(BpeTokenizer(definition).encode("aaa"), ElementsAre(256, 'a'));
  EXPECT_THAT(BpeTokenizer(definition).encode("aaaaa"), ElementsAre(257, 'a'));
}

TEST(BpeDefinition, ThatContradictsItselfIsRefused) {
  expect_contradiction([](BpeDefinition& d) { d.in_model.pop_back(); }, "259 tokens with 258 kinds");
  expect_contradiction([](BpeDefinition& d) { d.end_of_text = 259; }, "the end-of-text id 259 is not a special token");
  expect_contradiction([](BpeDefinition& d) { d.end_of_text = -1; }, "the end-of-text id -1 is not a special token");
  expect_contradiction([](BpeDefinition& d) { d.end_of_text = 257; }, "the end-of-text id 257 is not a special token");
  expect_contradiction([](BpeDefinition& d) { d.tokens[257] = ""; }, "token 257 is empty");
  expect_contradiction([](BpeDefinition& d) { d.tokens[257] = "ab"; }, "token 257 is the same as token 256");
  expect_contradiction([](BpeDefinition& d) { d.tokens[255] = "xy"; }, "no token for the single byte 0xff");
  expect_contradiction([](BpeDefinition& d) { d.tokens[0] = "xy"; }, "no token for the single byte 0x00");
  expect_contradiction([](BpeDefinition& d) { d.merges[1].result = 256; },
                       "merge 1 joins 256 and 256 into 256, which are not such tokens");
  expect_contradiction([](BpeDefinition& d) { d.merges[0].left = 259; },
                       "merge 0 joins 259 and 98 into 256, which are not such tokens");
  expect_contradiction([](BpeDefinition& d) { d.merges[0].right = -1; },
                       "merge 0 joins 97 and -1 into 256, which are not such tokens");
  expect_contradiction(
      [](BpeDefinition& d) {
        d.in_model[257] = false;
        d.tokens.push_back("xx");
        d.in_model.push_back(true);
      },
      "merge 1 joins 256 and 256 into 257, which are not such tokens");
  expect_contradiction([](BpeDefinition& d) { d.merges.push_back(d.merges[0]); }, "merge 2 is listed twice");
}

std::string json_of_ab(const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json file = nlohmann::json::parse(BpeTokenizer(definition_of_ab()).to_json());
  change(file);
  return file.dump();
}

std::unique_ptr<BpeTokenizer> read_ab(const std::function<void(nlohmann::json&)>& change) {
  return parse_bpe(json_of_ab(change), "ab.json");
}

void expect_unread(const std::function<void(nlohmann::json&)>& change, const std::string& part) {
  expect_error([&] { read_ab(change); }, part);
}

nlohmann::json split_step(std::string_view behavior, bool invert) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", regex_of(SplitPattern::llama3)}}},
          {"behavior", behavior},
          {"invert", invert}};
}
const nlohmann::json byte_step = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};

nlohmann::json sequence_of(const std::vector<nlohmann::json>& steps) {
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

TEST(TokenizerFile, WhatIsAbsentHasTheMeaningThatOthersGiveIt) {
  using nlohmann::json;
  expect_unread([](json& file) { file["pre_tokenizer"].erase("add_prefix_space"); }, "\"add_prefix_space\" is set");
  EXPECT_EQ(read_ab([](json& file) { file["pre_tokenizer"].erase("use_regex"); })->definition().splits,
            std::vector{SplitPattern::gpt2});
  EXPECT_EQ(read_ab([](json& file) { file["model"].erase("ignore_merges"); })->definition().whole_pieces,
            WholePieces::merge);
  EXPECT_EQ(read_ab([](json& file) { file["model"]["ignore_merges"] = nullptr; })->definition().whole_pieces,
            WholePieces::merge);
  EXPECT_EQ(read_ab([](json& file) { file["model"]["ignore_merges"] = true; })->definition().whole_pieces,
            WholePieces::take);
  EXPECT_EQ(read_ab([](json& file) { file["model"].erase("type"); })->vocab_size(), 259);
  EXPECT_EQ(read_ab([](json& file) { file.erase("normalizer"); })->definition().normalization, TextNormalization::none);
  EXPECT_EQ(read_ab([](json& file) { file.erase("decoder"); })->vocab_size(), 259);
  EXPECT_EQ(read_ab([](json& file) { file["model"]["byte_fallback"] = true; })->vocab_size(), 259);
  EXPECT_EQ(read_ab([](json& file) { file["model"]["dropout"] = 0.0; })->vocab_size(), 259);
  EXPECT_EQ(read_ab([](json& file) { file["model"]["continuing_subword_prefix"] = ""; })->vocab_size(), 259);
  expect_unread([](json& file) { file["model"]["continuing_subword_prefix"] = "##"; },
                "\"continuing_subword_prefix\" is set");
  expect_unread([](json& file) { file["model"]["ignore_merges"] = "yes"; },
                "\"ignore_merges\" is neither true nor false");
  expect_unread([](json& file) { file["model"]["type"] = 3; }, "\"type\" is not a string");
}

using Splits = std::vector<SplitPattern>;

Splits read_splits(const std::vector<nlohmann::json>& steps) {
  return read_ab([&](nlohmann::json& file) { file["pre_tokenizer"] = sequence_of(steps); })->definition().splits;
}

TEST(TokenizerFile, StepsOfThePreTokenizerAreTakenInOrder) {
  using nlohmann::json;
  const json split = split_step("Isolated", false);
  const json each_digit = {{"type", "Digits"}, {"individual_digits", true}};
  json with_regex = byte_step;
  with_regex["use_regex"] = true;
  EXPECT_EQ(read_splits({split, byte_step}), Splits{SplitPattern::llama3});
  EXPECT_EQ(read_splits({byte_step}), Splits{});
  EXPECT_EQ(read_splits({split, with_regex}), (Splits{SplitPattern::llama3, SplitPattern::gpt2}));
  EXPECT_EQ(read_splits({each_digit, with_regex}), (Splits{SplitPattern::digit, SplitPattern::gpt2}));
  EXPECT_EQ(read_splits({{{"type", "Digits"}, {"individual_digits", false}}, byte_step}), Splits{SplitPattern::digits});
  json without_invert = split;
  without_invert.erase("invert");
  EXPECT_EQ(read_splits({without_invert, byte_step}), Splits{SplitPattern::llama3});
}

// The known expressions match all of a text: inverted, there is nothing to remove.
TEST(TokenizerFile, ASplitKeepsEveryPiece) {
  using nlohmann::json;
  EXPECT_EQ(read_splits({split_step("Isolated", true), byte_step}), Splits{SplitPattern::llama3});
  EXPECT_EQ(read_splits({split_step("Removed", true), byte_step}), Splits{SplitPattern::llama3});
  expect_error([&] { read_splits({split_step("Removed", false), byte_step}); }, "the split behavior \"Removed\"");
  expect_error(
      [&] {
        read_splits({split_step("MergedWithNext", true), byte_step});
      },
      "the split behavior \"MergedWithNext\", inverted,");
  json digits = split_step("Removed", true);
  digits["pattern"]["Regex"] = "\\p{N}";
  expect_error([&] { read_splits({digits, byte_step}); }, "the split behavior \"Removed\", inverted,");
}

TEST(TokenizerFile, OtherStepsAreRefusedByName) {
  using nlohmann::json;
  const json split = split_step("Isolated", false);
  expect_error(
      [&] {
        read_splits({split, byte_step, byte_step});
      },
      "the pre-tokenizer has \"ByteLevel\" after ByteLevel");
  expect_error([&] { read_splits({byte_step, split}); }, "the pre-tokenizer has \"Split\" after ByteLevel");
  expect_error([&] { read_splits({split}); }, "the pre-tokenizer has no ByteLevel");
  expect_error([&] { read_splits({sequence_of({byte_step})}); }, "the pre-tokenizer \"Sequence\" is not supported");
  expect_error([&] { read_splits({{{"type", "Whitespace"}}}); }, "the pre-tokenizer \"Whitespace\" is not supported");
  expect_error([&] { read_splits({json("ByteLevel")}); }, "a step of \"pre_tokenizer\" is not an object");
  json other_pattern = split;
  other_pattern["pattern"]["Regex"] = "\\w+";
  expect_error([&] { read_splits({other_pattern, byte_step}); }, "the split pattern \"\\w+\" is not supported");
  other_pattern["pattern"] = {{"String", " "}};
  expect_error([&] { read_splits({other_pattern, byte_step}); }, "a Split has no regular expression");
}

// Ids from 259 on.
std::unique_ptr<BpeTokenizer> with_added(const std::vector<std::string>& contents) {
  return read_ab([&](nlohmann::json& file) {
    file["added_tokens"] = nlohmann::json::array();
    std::size_t id = 258;
    for (const std::string& content : contents) {
      file["added_tokens"].push_back({{"id", id++}, {"content", content}});
    }
  });
}

TEST(TokenizerFile, TheEndOfTextIsTheBestKnownNameAmongTheAddedTokens) {
  EXPECT_EQ(with_added({"<eos>", "</s>", "<|end_of_text|>", "<|endoftext|>"})->end_of_text(), 261);
  EXPECT_EQ(with_added({"<eos>", "</s>", "<|end_of_text|>"})->end_of_text(), 260);
  EXPECT_EQ(with_added({"<eos>", "</s>"})->end_of_text(), 259);
  EXPECT_EQ(with_added({"<eos>"})->end_of_text(), 258);
  expect_error([] { with_added({"<end>"}); }, "no end-of-text token");
  expect_error([] { with_added({""}); }, "an added token has no \"content\"");
  // An ordinary token of that name ends nothing.
  const auto ordinary = read_ab([](nlohmann::json& file) {
    file["added_tokens"][0]["content"] = "</s>";
    file["model"]["vocab"]["<eos>"] = 259;
    file["model"]["vocab"]["<|endoftext|>"] = 260;
  });
  EXPECT_EQ(ordinary->end_of_text(), 258);
  EXPECT_EQ(ordinary->decode(std::vector<std::int32_t>{258, 259}), "</s><eos>");
}

TEST(TokenizerFile, NormalizesToNfcAndNothingElse) {
  using nlohmann::json;
  const json nfc = {{"type", "NFC"}};
  const auto read = [](const json& normalizer) {
    return read_ab([&](json& file) { file["normalizer"] = normalizer; })->definition().normalization;
  };
  const auto sequence = [](const std::vector<json>& steps) {
    return json{{"type", "Sequence"}, {"normalizers", steps}};
  };
  EXPECT_EQ(read(nullptr), TextNormalization::none);
  EXPECT_EQ(read(nfc), TextNormalization::nfc);
  EXPECT_EQ(read(sequence({})), TextNormalization::none);
  EXPECT_EQ(read(sequence({nfc})), TextNormalization::nfc);
  expect_error([&] { read({{"type", "Lowercase"}}); }, "the normalizer \"Lowercase\" is not supported");
  expect_error([&] { read(sequence({nfc, {{"type", "Prepend"}}})); }, "the normalizer \"Prepend\" is not supported");
  BpeDefinition definition = definition_of_ab();
  definition.normalization = TextNormalization::nfc;
  EXPECT_EQ(parse_bpe(BpeTokenizer(definition).to_json(), "written")->definition().normalization,
            TextNormalization::nfc);
}

nlohmann::json template_of(const std::vector<std::string>& pieces) {
  nlohmann::json single = nlohmann::json::array();
  for (const std::string& piece : pieces) {
    single.push_back(piece == "A" ? nlohmann::json{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}
                                  : nlohmann::json{{"SpecialToken", {{"id", piece}, {"type_id", 0}}}});
  }
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"special_tokens",
           {{"<bos>", {{"id", "<bos>"}, {"ids", {257}}, {"tokens", {"<bos>"}}}},
            {"<end>", {{"id", "<end>"}, {"ids", {258}}, {"tokens", {"<end>"}}}},
            {"<far>", {{"id", "<far>"}, {"ids", {259}}, {"tokens", {"<far>"}}}}}}};
}

TEST(TokenizerFile, APostProcessorGivesWhatDocumentsBeginWith) {
  using nlohmann::json;
  const auto prefix = [](const json& processor) {
    return read_ab([&](json& file) { file["post_processor"] = processor; })->definition().prefix;
  };
  const json bytes = {{"type", "ByteLevel"}};
  EXPECT_THAT(prefix(nullptr), ElementsAre());
  EXPECT_THAT(prefix(bytes), ElementsAre());
  EXPECT_THAT(prefix(template_of({"<bos>", "A"})), ElementsAre(257));
  EXPECT_THAT(prefix(template_of({"<bos>", "<bos>", "A", "<end>"})), ElementsAre(257, 257));
  EXPECT_THAT(prefix({{"type", "Sequence"}, {"processors", {bytes, template_of({"<bos>", "A"})}}}), ElementsAre(257));
  expect_error([&] { prefix(template_of({"A", "<bos>"})); }, "the post-processor puts \"<bos>\" behind a text");
  expect_error([&] { prefix(template_of({"<bos>"})); }, "the post-processor leaves out the text");
  expect_error([&] { prefix(template_of({"A", "A"})); }, "the post-processor repeats the text");
  expect_error([&] { prefix(template_of({"<no>", "A"})); }, "the post-processor does not define \"<no>\"");
  expect_error([&] { prefix(template_of({"<far>", "A"})); }, "the id 259 of \"<far>\" is outside");
  expect_error([&] { prefix({{"type", "RobertaProcessing"}}); }, "the post-processor \"RobertaProcessing\"");
  BpeDefinition definition = definition_of_ab();
  definition.prefix = {258};
  EXPECT_THAT(parse_bpe(BpeTokenizer(definition).to_json(), "written")->definition().prefix, ElementsAre(258));
}

// Printable bytes are themselves, the 68 others U+0100 upward in order.
TEST(TokenizerFile, EveryByteHasTheCharacterThatGpt2GivesIt) {
  const auto file = nlohmann::json::parse(BpeTokenizer(definition_of_ab()).to_json());
  std::uint32_t unprintable = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool hidden = byte <= 0x20 || (byte >= 0x7F && byte <= 0xA0) || byte == 0xAD;
    std::string name;
    append_utf8(hidden ? unprintable++ : byte, name);
    ASSERT_TRUE(file.at("model").at("vocab").contains(name)) << byte;
    EXPECT_EQ(file["model"]["vocab"][name], byte);
  }
  EXPECT_EQ(unprintable, 0x144U);
  EXPECT_THAT(file["model"]["merges"].get<std::vector<std::string>>(), ElementsAre("a b", "ab ab"));
  EXPECT_EQ(file["added_tokens"][0]["id"], 258);
  EXPECT_EQ(file["added_tokens"][0]["special"], true);
  EXPECT_EQ(file["model"]["ignore_merges"], false);
  EXPECT_EQ(file["pre_tokenizer"]["use_regex"], true);
}

TEST(BpeTraining, TellsEveryMergeAndTakesAnyVocabularyInRange) {
  std::vector<std::pair<int, int>> told;
  const std::vector<std::string> text{"abab abab abab"};
  const auto tokenizer = train_bpe(text, 259, [&](int done, int total) { told.emplace_back(done, total); });
  EXPECT_THAT(told, ElementsAre(std::pair(1, 2), std::pair(2, 2)));
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_LT(train_bpe(text, 1 << 22)->vocab_size(), 270) << "no pair is left";
  expect_error([&] { train_bpe(text, (1 << 22) + 1); }, "a BPE vocabulary of 4194305 tokens");
}

// "ab" three times in one word that occurs twice outweighs "cd", which is in four words.
TEST(BpeTraining, CountsWordsAsOftenAsTheyOccur) {
  const auto tokenizer = train_bpe(std::vector<std::string>{"ababab ababab cd cd cd cd"}, 258);
  EXPECT_EQ(tokenizer->definition().tokens[256], "ab");
  const auto other = train_bpe(std::vector<std::string>{"ababab cd cd cd cd"}, 258);
  EXPECT_EQ(other->definition().tokens[256], " c") << "as often as \"cd\", with smaller ids";
  const auto tie = train_bpe(std::vector<std::string>{"zy zy xy xy"}, 259);
  EXPECT_EQ(tie->definition().tokens[256], " x") << "by the smaller ids";
}

}  // namespace
}  // namespace quaver
