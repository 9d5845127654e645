// The identity of data follows its token ids and tokenizer, and nothing else.
#include "data/identity.h"

#include <cstring>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

#include "data/loader.h"
#include "data/synthetic.h"

namespace quaver {
namespace {

using Ids = std::vector<std::int32_t>;
using test::TemporaryFolder;

Ids counting(std::size_t size) {
  Ids ids(size);
  for (std::size_t i = 0; i < size; ++i) ids[i] = static_cast<std::int32_t>(i * 7 % 250);
  return ids;
}

std::filesystem::path write_shard(const std::filesystem::path& path, const Ids& ids, std::uint64_t tokenizer_hash = 5,
                                  ShardFormat format = ShardFormat::quaver) {
  std::filesystem::create_directories(path.parent_path());
  ShardWriter writer(path, format, 300, tokenizer_hash);
  writer.append(ids);
  writer.finish();
  return path;
}

DataIdentity identity(const std::vector<std::filesystem::path>& train, const std::vector<std::filesystem::path>& valid,
                      std::uint64_t tokenizer_hash = 5) {
  const ShardSource first(train, {WindowOrder::shuffled, 3, 300});
  if (valid.empty()) return identity_of(first, nullptr, tokenizer_hash, 300);
  const ShardSource second(valid, {WindowOrder::sequential, 3, 300});
  return identity_of(first, &second, tokenizer_hash, 300);
}

class Identity : public ::testing::TestWithParam<ShardFormat> {
 protected:
  std::filesystem::path shard(std::string_view name, const Ids& ids) const {
    return write_shard(folder_ / name, ids, 5, GetParam());
  }
  TemporaryFolder folder_;
};

TEST_P(Identity, IsTheSameAtAnotherPath) {
  const DataIdentity here = identity({shard("a/train-00000.qv", counting(100)), shard("a/train-00001.qv", {1, 2, 3})},
                                     {shard("a/valid-00000.qv", counting(40))});
  const DataIdentity there =
      identity({shard("b/x.qv", counting(100)), shard("b/a.qv", {1, 2, 3})}, {shard("b/y.qv", counting(40))});
  EXPECT_EQ(here, there);
  EXPECT_EQ(describe_difference(here, there), "");
  EXPECT_EQ(here.train_tokens, 103u);
  EXPECT_EQ(here.valid_tokens, 40u);
  EXPECT_EQ(here.train_hash.size(), 16u);
  EXPECT_EQ(here.valid_hash.size(), 16u);
  EXPECT_EQ(here.tokenizer_hash, "0000000000000005");
}

TEST_P(Identity, EveryTokenCounts) {
  const DataIdentity before = identity({shard("a.qv", counting(21))}, {});
  for (std::size_t i = 0; i < 21; ++i) {
    Ids changed = counting(21);
    changed[i] ^= 1;
    const DataIdentity after = identity({shard("b.qv", changed)}, {});
    ASSERT_NE(before, after) << i;
    ASSERT_EQ(describe_difference(before, after),
              "training data has another content (hash " + before.train_hash + " → " + after.train_hash + ")");
  }
}

TEST_P(Identity, FollowsTheSplitAndTheShards) {
  const auto a = shard("a.qv", counting(60));
  const auto b = shard("b.qv", counting(50));
  const DataIdentity before = identity({a}, {b});
  EXPECT_EQ(describe_difference(before, identity({a, b}, {b})), "training tokens: 60 → 110");
  EXPECT_EQ(describe_difference(before, identity({a}, {a})), "validation tokens: 50 → 60");
  EXPECT_EQ(describe_difference(before, identity({a}, {})), "validation data: some → none");
  EXPECT_NE(identity({a, b}, {}), identity({b, a}, {}));  // windows come in another order
}

INSTANTIATE_TEST_SUITE_P(Formats, Identity, ::testing::Values(ShardFormat::quaver, ShardFormat::llmc));

TEST(DataIdentity, FollowsTheTokenizerAndTheVocabulary) {
  const TemporaryFolder folder;
  const auto path = write_shard(folder / "a.qv", counting(60));
  const DataIdentity before = identity({path}, {});
  EXPECT_EQ(describe_difference(before, identity({path}, {}, 6)), "tokenizer: 0000000000000005 → 0000000000000006");
  EXPECT_EQ(describe_difference(before, identity({path}, {}, 0)), "tokenizer: 0000000000000005 → none");
  DataIdentity wider = before;
  wider.vocab_size = 301;
  EXPECT_EQ(describe_difference(before, wider), "vocabulary: 300 → 301 tokens");
}

TEST(DataIdentity, SyntheticTextIsKnownByWhatItIsDrawnFrom) {
  const SyntheticOptions base{.kind = SyntheticKind::markov, .vocab_size = 16, .seed = 1, .stream = 0};
  std::vector<SyntheticOptions> others(4, base);
  others[0].kind = SyntheticKind::skip_markov;
  others[1].vocab_size = 17;
  others[2].seed = 2;
  others[3].stream = 1;
  const std::uint64_t hash = SyntheticSource(base).content_hash();
  EXPECT_EQ(SyntheticSource(base).content_hash(), hash);
  for (const SyntheticOptions& other : others) EXPECT_NE(SyntheticSource(other).content_hash(), hash);
}

}  // namespace
}  // namespace quaver
