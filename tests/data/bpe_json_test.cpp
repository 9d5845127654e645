#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/temporary_folder.h"

#include "data/bpe.h"
#include "data/expect_error.h"
#include "data/sample_text.h"

namespace quaver {
namespace {

using nlohmann::json;
using test::expect_error;
using test::TemporaryFolder;

std::unique_ptr<BpeTokenizer> small_tokenizer() {
  return train_bpe(std::vector<std::string>{test::random_text(2000, 3)}, 320);
}

// A valid file with one thing changed.
std::string altered(const std::function<void(json&)>& change) {
  json file = json::parse(small_tokenizer()->to_json());
  change(file);
  return file.dump();
}

void expect_refused(const std::function<void(json&)>& change, const std::string& part) {
  expect_error([&] { parse_bpe(altered(change), "changed.json"); }, part);
  expect_error([&] { parse_bpe(altered(change), "changed.json"); }, "changed.json");
}

void expect_same_ids(const Tokenizer& a, const Tokenizer& b) {
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_EQ(a.vocab_size(), b.vocab_size());
  EXPECT_EQ(a.end_of_text(), b.end_of_text());
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    const std::string text = test::random_text(400, seed);
    EXPECT_EQ(a.encode(text), b.encode(text));
  }
}

TEST(TokenizerJson, ReloadedGivesTheSameIds) {
  const TemporaryFolder folder;
  const auto tokenizer = small_tokenizer();
  const auto path = folder.write("tokenizer.json", tokenizer->to_json());
  expect_same_ids(*load_tokenizer(path), *tokenizer);
  expect_same_ids(*load_tokenizer(folder.path()), *tokenizer);
  EXPECT_EQ(load_bpe(path)->to_json(), tokenizer->to_json());
}

TEST(TokenizerJson, BytesAreWrittenAsOthersWriteThem) {
  const json file = json::parse(small_tokenizer()->to_json());
  const json& vocab = file.at("model").at("vocab");
  EXPECT_EQ(vocab.at("Ġ"), 32);
  EXPECT_EQ(vocab.at("Ċ"), 10);
  EXPECT_EQ(vocab.at("A"), 65);
  EXPECT_EQ(vocab.at("ÿ"), 255);
  EXPECT_EQ(vocab.at("Ā"), 0);
  EXPECT_EQ(vocab.at("Ń"), 173);
  EXPECT_FALSE(vocab.contains("<|endoftext|>"));
  EXPECT_EQ(file.at("added_tokens").at(0).at("content"), "<|endoftext|>");
}

TEST(TokenizerJson, NewerAndOlderSpellingsAreTheSame) {
  const std::string pairs = altered([](json& file) {
    for (json& merge : file["model"]["merges"]) {
      const auto text = merge.get<std::string>();
      merge = json::array({text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)});
    }
  });
  expect_same_ids(*parse_bpe(pairs, "pairs"), *small_tokenizer());

  const std::string in_vocab = altered([](json& file) {  // GPT-2's own file lists the special token twice
    file["model"]["vocab"]["<|endoftext|>"] = file["added_tokens"][0]["id"];
  });
  expect_same_ids(*parse_bpe(in_vocab, "in vocab"), *small_tokenizer());
}

TEST(TokenizerJson, OtherSplitsAreReadAndWritten) {
  for (const SplitPattern pattern : {SplitPattern::llama3, SplitPattern::qwen2}) {
    BpeDefinition definition = small_tokenizer()->definition();
    definition.splits = {pattern};
    definition.whole_pieces = WholePieces::take;
    const BpeTokenizer tokenizer(definition);
    const auto reloaded = parse_bpe(tokenizer.to_json(), "reloaded");
    EXPECT_EQ(reloaded->definition().splits, std::vector{pattern});
    expect_same_ids(*reloaded, tokenizer);
    EXPECT_NE(reloaded->hash(), small_tokenizer()->hash());
  }
}

TEST(TokenizerJson, WholePiecesAreTakenWhereTheFileSaysSo) {
  BpeDefinition definition = small_tokenizer()->definition();
  definition.tokens.emplace_back("zqxj");  // in the vocabulary, but no merge leads to it
  definition.in_model.push_back(true);
  EXPECT_EQ(BpeTokenizer(definition).encode("zqxj").size(), 4u);
  definition.whole_pieces = WholePieces::take;
  EXPECT_EQ(BpeTokenizer(definition).encode("zqxj").size(), 1u);
}

TEST(TokenizerJson, AFileThatWasReadComesBackByteForByte) {
  const std::string written = altered([](json& file) { file["anything else"] = "kept"; }) + " \n";
  EXPECT_EQ(parse_bpe(written, "file")->to_json(), written);
}

TEST(TokenizerJson, RefusesIdsThatDoNotAddUp) {
  expect_refused([](json& file) { file["model"]["vocab"]["A"] = 66; }, "two tokens have the id");
  expect_refused([](json& file) { file["model"]["vocab"]["A"] = 100000; }, "outside a vocabulary");
  expect_refused([](json& file) { file["model"]["vocab"]["A"] = -1; }, "outside a vocabulary");
  expect_refused([](json& file) { file["model"]["vocab"]["A"] = 18446744073709551615u; }, "outside a vocabulary");
  expect_refused([](json& file) { file["model"]["vocab"]["A"] = 6.5; }, "not an integer");
  expect_refused([](json& file) { file["model"]["vocab"]["A"] = "65"; }, "not an integer");
  expect_refused([](json& file) { file["model"]["vocab"].erase("A"); }, "outside a vocabulary");
  expect_refused([](json& file) { file["added_tokens"][0]["id"] = 3; }, "two tokens have the id");
  expect_refused([](json& file) { file["model"]["vocab"]["<|endoftext|>"] = 7; }, "id");
  expect_refused([](json& file) { file["added_tokens"] = json::array(); }, "end-of-text");
  expect_refused([](json& file) { file["added_tokens"][0]["content"] = "<other>"; }, "end-of-text");
}

TEST(TokenizerJson, RefusesMergesOfWhatIsNotThere) {
  expect_refused([](json& file) { file["model"]["merges"].push_back("q z"); }, "which is no token");
  expect_refused([](json& file) { file["model"]["merges"].push_back("qqq z"); }, "which is no token");
  expect_refused([](json& file) { file["model"]["merges"].push_back("漢 z"); }, "byte-level");
  expect_refused([](json& file) { file["model"]["merges"].push_back("ab"); }, "not a pair");
  expect_refused([](json& file) { file["model"]["merges"].push_back(" b"); }, "byte-level");
  expect_refused([](json& file) { file["model"]["merges"].push_back(json::array({"a"})); }, "not a pair");
  expect_refused([](json& file) { file["model"]["merges"].push_back(7); }, "not a pair");
  expect_refused([](json& file) { file["model"]["merges"].push_back(file["model"]["merges"][0]); }, "twice");
  expect_refused([](json& file) { file["model"]["merges"] = "none"; }, "not a list");
}

TEST(TokenizerJson, RefusesWhatItCouldNotReproduce) {
  expect_refused([](json& file) { file["model"]["type"] = "WordPiece"; }, "WordPiece");
  expect_refused([](json& file) { file["model"]["dropout"] = 0.1; }, "dropout");
  expect_refused([](json& file) { file["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix");
  expect_refused([](json& file) { file["pre_tokenizer"]["add_prefix_space"] = true; }, "add_prefix_space");
  expect_refused([](json& file) { file["pre_tokenizer"] = {{"type", "Whitespace"}}; }, "Whitespace");
  expect_refused([](json& file) { file["pre_tokenizer"] = 3; }, "pre_tokenizer");
  expect_refused([](json& file) { file["pre_tokenizer"] = nullptr; }, "the pre-tokenizer has no ByteLevel");
  expect_refused([](json& file) { file["decoder"] = {{"type", "Metaspace"}}; }, "the decoder \"Metaspace\"");
  expect_refused([](json& file) { file.erase("model"); }, "model");
  expect_refused([](json& file) { file["model"] = json::array(); }, "model");
  expect_refused([](json& file) { file = json::array(); }, "object");
  expect_error([] { parse_bpe("{\"model\": ", "cut.json"); }, "cut.json: not JSON");
  expect_error([] { load_tokenizer("/no/such/tokenizer.json"); }, "/no/such/tokenizer.json");
}

}  // namespace
}  // namespace quaver
