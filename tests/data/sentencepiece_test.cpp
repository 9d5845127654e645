// SentencePiece's form of BPE, as tokenizer.json of Llama 2 and Mistral write it: spaces as ▁, characters that become
// bytes where they are no tokens. Ids are worked out by hand.
#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "data/expect_error.h"
#include "data/sample_text.h"
#include "io/utf8.h"

namespace quaver {
namespace {

using nlohmann::json;
using test::expect_error;
using ::testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t first_byte = 3;
enum Id : std::int32_t { unknown, begin, end, mark = 259, a, b, mark_a, ab, mark_ab, b_mark };

// Without `b_mark` but for those who ask for it.
json llama2() {
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = first_byte + byte;
  for (const char* token : {"▁", "a", "b", "▁a", "ab", "▁ab"}) vocab[token] = vocab.size();
  json added = json::array();
  for (const char* name : {"<unk>", "<s>", "</s>"}) {
    added.push_back({{"id", vocab[name]}, {"content", name}, {"special", true}, {"normalized", false}});
  }
  const json prepend = {{"type", "Prepend"}, {"prepend", "▁"}};
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  return {{"added_tokens", added},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", {prepend, replace}}}},
          {"pre_tokenizer", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}, strip}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", {"▁ a", "a b", "▁a b"}}}}};
}

std::unique_ptr<BpeTokenizer> read(const std::function<void(json&)>& change = [](json&) {}) {
  json file = llama2();
  change(file);
  return parse_bpe(file.dump(), "llama2.json");
}

std::unique_ptr<BpeTokenizer> metaspace(const char* scheme) {
  return read([&](json& file) {
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}};
  });
}

TEST(SentencePiece, MarksSpacesAndPutsOneBeforeTheText) {
  const auto tokenizer = read();
  EXPECT_THAT(tokenizer->encode("ab ab"), ElementsAre(mark_ab, mark_ab));
  EXPECT_THAT(tokenizer->encode("b"), ElementsAre(mark, b));
  EXPECT_THAT(tokenizer->encode(" ab"), ElementsAre(mark, mark_ab));
  EXPECT_THAT(tokenizer->encode("a  b"), ElementsAre(mark_a, mark, mark, b));
  EXPECT_THAT(tokenizer->encode("▁ab"), ElementsAre(mark, mark_ab)) << "the mark itself is a space, too";
  EXPECT_THAT(tokenizer->encode(""), ElementsAre());
  EXPECT_EQ(tokenizer->end_of_text(), end);
}

TEST(SentencePiece, CharactersThatAreNoTokensBecomeTheirBytes) {
  const auto tokenizer = read();
  EXPECT_THAT(tokenizer->encode("aé\n"), ElementsAre(mark_a, first_byte + 0xC3, first_byte + 0xA9, first_byte + '\n'));
  EXPECT_EQ(tokenizer->encode("\xFF"), tokenizer->encode("\uFFFD"));
}

TEST(SentencePiece, PartsBetweenSpecialTokensBeginAsTheFileSays) {
  const auto parsed = [](const BpeTokenizer& tokenizer, std::string_view text) {
    return tokenizer.encode(text, SpecialTokens::parsed);
  };
  EXPECT_THAT(parsed(*read(), "<s>ab</s> ab"), ElementsAre(begin, mark_ab, end, mark, mark_ab));
  EXPECT_THAT(parsed(*metaspace("always"), "<s>ab</s> ab"), ElementsAre(begin, mark_ab, end, mark_ab));
  EXPECT_THAT(parsed(*metaspace("first"), "<s>ab</s> ab"), ElementsAre(begin, ab, end, mark_ab));
  EXPECT_THAT(parsed(*metaspace("first"), "ab</s>ab"), ElementsAre(mark_ab, end, ab));
  EXPECT_THAT(parsed(*metaspace("first"), " ab"), ElementsAre(mark_ab));
  EXPECT_THAT(parsed(*metaspace("never"), "ab ab"), ElementsAre(ab, mark_ab));
}

TEST(SentencePiece, DecodesWhatItEncoded) {
  const auto tokenizer = read();
  EXPECT_EQ(tokenizer->decode(Ids{mark_ab, mark_ab}), "ab ab");
  EXPECT_EQ(tokenizer->decode(Ids{begin, mark_ab}), "<s> ab");
  EXPECT_EQ(tokenizer->text_of(mark_ab), " ab") << "inside a text";
  EXPECT_EQ(tokenizer->text_of(first_byte + '\n'), "\n");
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    for (const std::string& text : {test::random_text(200, seed), test::random_bytes(500, seed)}) {
      if (text.find("▁") != std::string::npos) continue;
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), replace_invalid_utf8(text));
    }
  }
  EXPECT_EQ(metaspace("never")->decode(Ids{mark_ab}), " ab");
}

// Words are merged one by one, unless a token reaches from one into the next.
TEST(SentencePiece, TokensMayReachIntoTheNextWord) {
  EXPECT_THAT(read()->definition().splits, ElementsAre(SplitPattern::marked_words));
  const auto reaching = read([](json& file) {
    file["model"]["vocab"]["b▁"] = b_mark;
    file["model"]["merges"] = {"b ▁", "▁ a", "a b", "▁a b"};
  });
  EXPECT_THAT(reaching->definition().splits, ElementsAre());
  EXPECT_THAT(reaching->encode("ab ab"), ElementsAre(mark_a, b_mark, ab));
}

TEST(SentencePiece, OtherFormsAreRefusedByName) {
  const auto refused = [](const std::function<void(json&)>& change, const std::string& part) {
    expect_error([&] { read(change); }, part);
  };
  refused([](json& file) { file["model"]["byte_fallback"] = false; }, "byte_fallback");
  refused([](json& file) { file["model"]["ignore_merges"] = true; }, "ignore_merges");
  refused([](json& file) { file["model"]["vocab"]["<0xFF>x"] = 258, file["model"]["vocab"].erase("<0xFF>"); },
          "no token for the single byte 0xff");
  refused([](json& file) { file["normalizer"]["normalizers"][0]["prepend"] = "_"; }, "the normalizer \"Prepend\"");
  refused([](json& file) { file["normalizer"]["normalizers"][1]["content"] = "_"; }, "the normalizer \"Prepend\"");
  refused([](json& file) { file["normalizer"] = nullptr; }, "the pre-tokenizer has no ByteLevel");
  refused(
      [](json& file) {
        file["pre_tokenizer"] = {{"type", "Digits"}};
      },
      "the pre-tokenizer after Prepend \"Digits\" is not supported");
  refused([](json& file) { file["decoder"] = {{"type", "WordPiece"}}; }, "the decoder \"WordPiece\"");
  const auto with_metaspace = [&](const json& more, const std::string& part) {
    refused(
        [&](json& file) {
          file["normalizer"] = nullptr;
          file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"split", false}};
          file["pre_tokenizer"].update(more);
        },
        part);
  };
  with_metaspace({{"split", true}}, "Metaspace splits the text");
  with_metaspace({{"replacement", "_"}}, "the mark of Metaspace");
  with_metaspace({{"prepend_scheme", "sometimes"}}, "sometimes");
}

}  // namespace
}  // namespace quaver
