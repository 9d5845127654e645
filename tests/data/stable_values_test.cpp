// Values that files and runs depend on: hashes that are written down, and the order in which a run sees its data. A
// data set, a checkpoint or a resumed run of yesterday must mean the same today. The numbers come from published test
// vectors and from an independent program, those of generated text from the first version that drew it.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

#include "data/bpe.h"
#include "data/hash.h"
#include "data/loader.h"
#include "data/permutation.h"
#include "data/random_tokens.h"
#include "data/synthetic.h"

namespace quaver {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;

std::uint64_t word_hash(std::string_view text) {
  WordHash hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.value();
}

TEST(StableHash, IsFnv1a) {
  EXPECT_EQ(hash_of(""), 0xcbf29ce484222325U);
  EXPECT_EQ(hash_of("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(hash_of("foobar"), 0x85944171f73967e8U);
  Fnv64 parts;
  parts.add("foo");
  parts.add("bar");
  EXPECT_EQ(parts.value(), hash_of("foobar"));
  Fnv64 number;
  number.add(std::uint64_t{0x0102});
  EXPECT_EQ(number.value(), hash_of(std::string_view("\x02\x01\0\0\0\0\0\0", 8))) << "the low byte first";
}

TEST(StableHash, OfWordsTakesTheLastFewBytesToo) {
  EXPECT_EQ(word_hash(""), 0xcbf29ce484222325U);
  EXPECT_EQ(word_hash("abcdefgh"), 0xcd0cf5a85793bf3cU);
  EXPECT_EQ(word_hash("abcdefghijk"), 0x1a45e89b8e154362U);
}

TEST(StableHash, BitsAreMixedAsBySplitMix64) {
  EXPECT_EQ(mix_bits(0), 0U);
  EXPECT_EQ(mix_bits(0x9e3779b97f4a7c15), 0xe220a8397b1dcdafU);
}

TEST(StableHash, OfSources) {
  const TemporaryFolder folder;
  const std::vector<std::vector<std::int32_t>> contents{{1, 2, 3}, {4, 5}};
  std::vector<std::filesystem::path> paths;
  for (const auto& ids : contents) {
    paths.push_back(folder / (std::to_string(paths.size()) + ".qv"));
    ShardWriter writer(paths.back(), ShardFormat::quaver, 100, 1);
    writer.append(ids);
    writer.finish();
  }
  EXPECT_EQ(ShardSource(paths, {}).content_hash(), 0xf0568674b9167b26U);
  EXPECT_EQ(RandomTokens(10, 3).content_hash(), 0x7a4d04a4b4a7b29U);
  const SyntheticSource generated({.kind = SyntheticKind::markov, .vocab_size = 64, .seed = 5, .stream = 1});
  EXPECT_EQ(generated.content_hash(), 0x4097644ce5604995U);
  EXPECT_EQ(make_byte_tokenizer()->hash(), 0xf2688bc97f55eab5U);
}

TEST(StableOrder, OfAPermutation) {
  const auto order = [](std::uint64_t size, std::uint64_t key) {
    std::vector<std::uint64_t> result;
    for (std::uint64_t i = 0; i < size; ++i) result.push_back(Permutation(size, key)(i));
    return result;
  };
  EXPECT_THAT(order(10, 7), ElementsAre(3, 0, 2, 4, 9, 1, 7, 5, 6, 8));
  EXPECT_THAT(order(5, 1), ElementsAre(0, 1, 4, 3, 2));
  EXPECT_THAT(order(1, 3), ElementsAre(0));
  EXPECT_THAT(order(2, 9), ElementsAre(0, 1));
}

// Windows of one token, which is its number.
TEST(StableOrder, OfTheWindowsOfAnEpoch) {
  const TemporaryFolder folder;
  std::vector<std::filesystem::path> paths{folder / "s.qv"};
  {
    ShardWriter writer(paths[0], ShardFormat::quaver, 100, 1);
    writer.append(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
    writer.finish();
  }
  const auto visited = [&](std::uint64_t seed, std::uint64_t epoch) {
    const ShardSource source(paths, {.order = WindowOrder::shuffled, .seed = seed, .vocab_size = 0});
    std::vector<std::int32_t> inputs(8), targets(8);
    source.fill(epoch, 8, 1, inputs.data(), targets.data());
    return inputs;
  };
  EXPECT_THAT(visited(42, 0), ElementsAre(1, 5, 4, 2, 0, 7, 6, 3));
  EXPECT_THAT(visited(42, 1), ElementsAre(4, 2, 5, 7, 3, 0, 6, 1));
  EXPECT_THAT(visited(0, 0), ElementsAre(5, 3, 7, 4, 6, 0, 1, 2));
}

std::vector<std::int32_t> second_batch(const TokenSource& source) {
  std::vector<std::int32_t> inputs(10), targets(10);
  source.fill(1, 2, 5, inputs.data(), targets.data());
  for (int i : {0, 1, 2, 3, 5, 6, 7, 8}) EXPECT_EQ(targets[i], inputs[i + 1]);
  inputs.push_back(targets[9]);
  return inputs;
}

TEST(StableText, OfGeneratedSources) {
  EXPECT_THAT(second_batch(RandomTokens(1000, 3)), ElementsAre(807, 553, 466, 5, 407, 402, 120, 302, 565, 996, 307));
  EXPECT_THAT(second_batch(SyntheticSource({.kind = SyntheticKind::markov, .vocab_size = 64, .seed = 5, .stream = 1})),
              ElementsAre(18, 2, 12, 11, 58, 55, 8, 63, 22, 42, 13));
  EXPECT_THAT(
      second_batch(SyntheticSource({.kind = SyntheticKind::skip_markov, .vocab_size = 32, .seed = 5, .stream = 0})),
      ElementsAre(21, 7, 7, 29, 30, 7, 6, 14, 12, 19, 16));
}

// Shards carry these: a change makes every data set that exists unreadable.
TEST(StableHash, OfTokenizersIsThatOfEarlierVersions) {
  const auto trained = train_bpe(std::vector<std::string>{"abab abab cdcd cdcd"}, 262);
  EXPECT_EQ(trained->hash(), 0xc1d4b05e2485a872U);
  BpeDefinition definition = trained->definition();
  definition.tokens.emplace_back("other");
  definition.in_model.push_back(false);
  definition.added.push_back({.id = 262, .content = "other"});
  definition.splits = {SplitPattern::llama3};
  definition.whole_pieces = WholePieces::take;
  EXPECT_EQ(BpeTokenizer(definition).hash(), 0xfb578972723ff377U);
  definition.normalization = TextNormalization::nfc;
  EXPECT_EQ(BpeTokenizer(definition).hash(), 0xfb578972723ff377U);
  EXPECT_EQ(parse_bpe(BpeTokenizer(definition).to_json(), "written")->hash(), 0xfb578972723ff377U);
}

// Everything that makes ids differ makes the hash differ.
TEST(StableHash, OfATokenizerFollowsAllThatDefinesIt) {
  BpeDefinition definition = train_bpe(std::vector<std::string>{"abab abab cdcd cdcd"}, 262)->definition();
  ASSERT_EQ(definition.merges.size(), 5U);
  definition.tokens.emplace_back("other");
  definition.in_model.push_back(false);
  definition.added.push_back({.id = 262, .content = "other", .role = TokenRole::ordinary});
  const std::uint64_t hash = BpeTokenizer(definition).hash();
  const auto changed = [&](const auto& change) {
    BpeDefinition other = definition;
    change(other);
    return BpeTokenizer(other).hash() != hash;
  };
  EXPECT_FALSE(changed([](BpeDefinition&) {}));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.splits = {SplitPattern::llama3}; }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.splits.push_back(SplitPattern::digit); }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.whole_pieces = WholePieces::take; }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.end_of_text = 262; }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.tokens.back() = "another"; }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.added.pop_back(); }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.added.back().role = TokenRole::special; }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.added.back().space = TakenSpace::left; }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.added.back().words = WordRule::whole_word; }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.added.back().matched = MatchedText::normalized; }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.prefix = {262}; }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { d.merges.pop_back(); }));
  EXPECT_TRUE(changed([](BpeDefinition& d) { std::swap(d.merges[0], d.merges[1]); }));
  // The same tokens, one of them from other parts.
  BpeDefinition threes = train_bpe(std::vector<std::string>{"aaa aaa"}, 259)->definition();
  ASSERT_EQ(threes.tokens[257], "aaa");
  const std::uint64_t hash_of_threes = BpeTokenizer(threes).hash();
  std::swap(threes.merges[1].left, threes.merges[1].right);
  EXPECT_NE(BpeTokenizer(threes).hash(), hash_of_threes);
}

}  // namespace
}  // namespace quaver
