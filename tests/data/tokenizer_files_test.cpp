#include "data/tokenizer_files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/temporary_folder.h"

#include "data/bpe.h"
#include "data/dataset.h"
#include "data/prepare.h"
#include "data/sample_text.h"
#include "data/shard.h"
#include "data/text_tokens.h"
#include "io/file_io.h"
#include "io/utf8.h"

namespace quaver {
namespace {

using nlohmann::json;

TEST(TokenizerFiles, OfBytesGiveTheBytes) {
  const test::TemporaryFolder folder;
  const auto bytes = make_byte_tokenizer();
  write_tokenizer_files(*bytes, 128, folder / "made");
  const auto read = load_tokenizer(folder / "made");
  EXPECT_TRUE(same_vocabulary(*read, *bytes));
  EXPECT_EQ(read->end_of_text(), bytes->end_of_text());
  const std::string text = replace_invalid_utf8(test::random_text(300, 4)) + "<|endoftext|>";
  EXPECT_EQ(read->encode(text), bytes->encode(text));
  EXPECT_EQ(read->encode(text, SpecialTokens::parsed), bytes->encode(text, SpecialTokens::parsed));
  const json config = json::parse(read_file(folder / "made" / "tokenizer_config.json", 1 << 20));
  EXPECT_EQ(config.at("model_max_length"), 128);
}

TEST(TokenizerFiles, NameTheTokensThatDocumentsBeginAndEndWith) {
  const test::TemporaryFolder folder;
  BpeDefinition definition = train_bpe(std::vector<std::string>{"abab abab"}, 258)->definition();
  definition.added.push_back({.id = 258, .content = "<s>"});
  definition.tokens.emplace_back("<s>");
  definition.in_model.push_back(false);
  definition.prefix = {258};
  write_tokenizer_files(BpeTokenizer(definition), 128, folder.path());
  const json map = json::parse(read_file(folder / "special_tokens_map.json", 1 << 20));
  EXPECT_EQ(map, (json{{"bos_token", "<s>"}, {"eos_token", "<|endoftext|>"}}));
}

TEST(TokenizerFiles, VocabulariesAreTheSameByTheirBytes) {
  const auto trained = train_bpe(std::vector<std::string>{"abab abab"}, 258);
  BpeDefinition definition = trained->definition();
  definition.splits = {SplitPattern::llama3};
  EXPECT_TRUE(same_vocabulary(*trained, BpeTokenizer(definition)));
  definition.tokens[257] = "<end>";
  EXPECT_FALSE(same_vocabulary(*trained, BpeTokenizer(definition)));
  EXPECT_FALSE(same_vocabulary(*trained, *make_byte_tokenizer()));
}

// As Llama 3's post-processor asks for; in shards, and in text that is evaluated.
TEST(Documents, BeginWithTheTokenizersPrefix) {
  const test::TemporaryFolder folder;
  BpeDefinition definition = train_bpe(std::vector<std::string>{"abab abab"}, 258)->definition();
  definition.added.push_back({.id = 258, .content = "<s>"});
  definition.tokens.emplace_back("<s>");
  definition.in_model.push_back(false);
  definition.prefix = {258, 258};
  const BpeTokenizer tokenizer(definition);
  const auto file = folder.write("tokenizer.json", tokenizer.to_json());
  const auto text = folder.write("text/a.txt", "abc");
  std::vector<std::int32_t> expected{258, 258};
  tokenizer.encode("abc", expected);
  expected.push_back(tokenizer.end_of_text());

  PrepareOptions options;
  options.inputs = {text};
  options.output = folder / "data";
  options.tokenizer = file.string();
  options.valid_fraction = 0;
  prepare(options);
  const Dataset dataset = open_dataset(folder / "data");
  const Shard shard = Shard::open(dataset.train.front());
  std::vector<std::int32_t> ids(shard.tokens());
  shard.read(0, ids, tokenizer.vocab_size());
  EXPECT_EQ(ids, expected);

  expected.pop_back();
  const std::vector<TokenizedDocument> documents = read_text_tokens(text, tokenizer).documents;
  ASSERT_EQ(documents.size(), 1U);
  EXPECT_EQ(documents[0].name, text.string());
  EXPECT_EQ(documents[0].ids, expected) << "as it is trained on, but for the end of text";
}

}  // namespace
}  // namespace quaver
