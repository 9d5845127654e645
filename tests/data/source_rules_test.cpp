// Limits of sources, loaders and shards: how far ahead a loader reads, which vocabulary several shards have, what
// headers may say.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>

#include "support/temporary_folder.h"

#include "data/expect_error.h"
#include "data/loader.h"
#include "data/synthetic.h"
#include "data/verifier.h"

namespace quaver {
namespace {

using test::contents;
using test::expect_error;
using test::TemporaryFolder;
using ::testing::HasSubstr;

// Fills a batch with its number, and lets a test wait for how many were filled.
class CountedSource final : public TokenSource {
 public:
  void fill(std::uint64_t index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
            std::int32_t* targets) const override {
    for (std::int64_t i = 0; i < batch * context; ++i) inputs[i] = targets[i] = static_cast<std::int32_t>(index);
    const std::scoped_lock guard(lock_);
    filled_.push_back(index);
    changed_.notify_all();
  }
  int vocab_size() const override { return 100; }
  std::uint64_t tokens() const override { return 0; }
  std::uint64_t windows(std::int64_t) const override { return 0; }
  std::string describe() const override { return ""; }
  std::uint64_t content_hash() const override { return 0; }

  std::vector<std::uint64_t> wait_for(std::size_t count) const {
    std::unique_lock guard(lock_);
    changed_.wait_for(guard, std::chrono::seconds(30), [&] { return filled_.size() >= count; });
    return filled_;
  }

 private:
  mutable std::mutex lock_;
  mutable std::condition_variable changed_;
  mutable std::vector<std::uint64_t> filled_;
};

TEST(ReadAhead, GoesAsFarAsAskedForBesideTheBatchInHand) {
  const CountedSource source;
  PrefetchLoader loader(source, {5}, 2, 3, 2);
  EXPECT_THAT(source.wait_for(3), ::testing::ElementsAre(5, 6, 7));
  for (std::uint64_t index = 5; index < 12; ++index) {
    const PrefetchLoader::Batch batch = loader.next();
    EXPECT_EQ(batch.index, index);
    EXPECT_EQ(batch.inputs.size(), 6U);
    EXPECT_EQ(batch.targets.size(), 6U);
    const std::vector<std::uint64_t> filled = source.wait_for(index - 5 + 3);  // this one and two more
    EXPECT_EQ(filled.size(), index - 5 + 3) << "no further: this batch is still in use";
    EXPECT_EQ(batch.inputs[5], static_cast<std::int32_t>(index));
    EXPECT_EQ(batch.targets[0], static_cast<std::int32_t>(index));
  }
}

TEST(ReadAhead, NeedsABatchAContextAndADepth) {
  const CountedSource source;
  expect_error([&] { PrefetchLoader(source, {0}, 0, 1, 1); }, "a loader of 0 sequences of 1 tokens, 1 batches ahead");
  expect_error([&] { PrefetchLoader(source, {0}, 1, 0, 1); }, "a loader of 1 sequences of 0 tokens, 1 batches ahead");
  expect_error([&] { PrefetchLoader(source, {0}, 1, 1, 0); }, "a loader of 1 sequences of 1 tokens, 0 batches ahead");
  PrefetchLoader least(source, {0}, 1, 1, 1);
  EXPECT_EQ(least.next().index, 0U);
  EXPECT_EQ(least.next().index, 1U);
}

std::filesystem::path counted_shard(const TemporaryFolder& folder, const char* name, int vocab, int tokens,
                                    std::uint64_t tokenizer = 1, ShardFormat format = ShardFormat::quaver) {
  ShardWriter writer(folder / name, format, vocab, tokenizer);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < tokens; ++i) ids.push_back(i % vocab);
  writer.append(ids);
  writer.finish();
  return folder / name;
}

TEST(VocabularyOfShards, IsTheLargestUnlessMoreIsAskedFor) {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> paths{
      counted_shard(folder, "a.qv", 20, 9), counted_shard(folder, "b.qv", 30, 4), counted_shard(folder, "c.qv", 10, 5)};
  EXPECT_EQ(ShardSource(paths, {}).vocab_size(), 30);
  EXPECT_EQ(ShardSource(paths, {.vocab_size = 30}).vocab_size(), 30);
  EXPECT_EQ(ShardSource(paths, {.vocab_size = 31}).vocab_size(), 31);
  expect_error([&] { ShardSource(paths, {.vocab_size = 29}); }, "has a vocabulary of 30, more than 29");
  const std::vector<std::filesystem::path> untold{counted_shard(folder, "d.bin", 20, 9, 1, ShardFormat::llmc)};
  EXPECT_EQ(ShardSource(untold, {.vocab_size = 20}).vocab_size(), 20);
  expect_error([&] { ShardSource(untold, {}); }, "the llm.c format does not tell its vocabulary");
  const std::vector<std::filesystem::path> mixed{untold[0], paths[2], counted_shard(folder, "e.qv", 10, 5, 2)};
  EXPECT_EQ(ShardSource(std::span(mixed).first(2), {.vocab_size = 20}).vocab_size(), 20);
  expect_error([&] { ShardSource(mixed, {.vocab_size = 20}); }, "were made with different tokenizers");
  EXPECT_THROW(ShardSource({}, {}), Error);
}

TEST(SourceOfShards, IsDescribed) {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> paths{counted_shard(folder, "a.qv", 20, 9),
                                                 counted_shard(folder, "b.qv", 30, 4)};
  EXPECT_EQ(ShardSource(paths, {}).describe(), "2 shards, 13 tokens, vocabulary 30, shuffled");
  EXPECT_EQ(ShardSource(std::span(paths).first(1), {.order = WindowOrder::sequential}).describe(),
            "1 shard, 9 tokens, vocabulary 20, in order");
  EXPECT_EQ(ShardSource(paths, {}).shards().size(), 2U);
  std::vector<std::int32_t> ids(20);
  expect_error([&] { ShardSource(paths, {}).fill(0, 1, 9, ids.data(), ids.data()); },
               "no shard has the 10 tokens that a context of 9 needs (2 shards, 13 tokens");
  expect_error([&] { ShardSource(paths, {}).windows(0); }, "a context of 0 tokens");
  EXPECT_EQ(ShardSource(paths, {}).windows(8), 1U);
  EXPECT_EQ(ShardSource(paths, {}).windows(3), 3U);
  EXPECT_EQ(ShardSource(paths, {}).windows(1), 11U);
}

// A shard with some bytes of its header changed and the header's checksum made right again.
Shard with_header(const TemporaryFolder& folder, std::size_t offset, std::uint32_t value) {
  std::string bytes = contents(counted_shard(folder, "s.qv", 20, 9));
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  const std::uint64_t checksum = hash_of(std::string_view(bytes).substr(0, 248));
  std::memcpy(bytes.data() + 248, &checksum, sizeof(checksum));
  return Shard::open(folder.write("s.qv", bytes));
}

TEST(ShardHeader, IsCheckedFieldByField) {
  const TemporaryFolder folder;
  EXPECT_EQ(with_header(folder, 32, 21).info().vocab_size, 21);
  EXPECT_EQ(with_header(folder, 24, 77).info().tokenizer_hash, 77U);
  expect_error([&] { with_header(folder, 32, 0); }, "a vocabulary of 0 tokens");
  expect_error([&] { with_header(folder, 32, 0x80000000); }, "a vocabulary of 2147483648 tokens");
  EXPECT_EQ(with_header(folder, 32, 0x7FFFFFFF).info().vocab_size, 0x7FFFFFFF);
  expect_error([&] { with_header(folder, 12, 3); }, "3 bytes per token");
  expect_error([&] { with_header(folder, 12, 4); }, "truncated: the header promises 9 tokens, the file has room for 5");
  expect_error([&] { with_header(folder, 16, 8); }, "6 bytes follow the 8 tokens, where 4 are expected");
  expect_error([&] { with_header(folder, 8, 3); }, "version 3, this program reads versions 1 to 2");
  expect_error([&] { with_header(folder, 8, 0); }, "version 0, this program reads versions 1 to 2");
  expect_error([&] { with_header(folder, 8, 1); }, "4 bytes follow the 9 tokens, where 0 are expected");
  expect_error([&] { with_header(folder, 48, 4096); }, "blocks of 4096 bytes, where 65536 are expected");
}

TEST(ShardHeader, TellsTheVocabularyThatIdsAreVerifiedAgainst) {
  const TemporaryFolder folder;
  EXPECT_NO_THROW(with_header(folder, 32, 9).verify());
  // The ids are 0 to 8, of two bytes, after 256 bytes of header.
  expect_error([&] { with_header(folder, 32, 8).verify(); },
               "token 8 at position 8 (byte 272) is outside the vocabulary of 8");
  expect_error([&] { with_header(folder, 32, 9).verify(5); },
               "token 5 at position 5 (byte 266) is outside the vocabulary of 5");
  std::vector<std::int32_t> ids(3);
  const Shard shard = with_header(folder, 32, 9);
  shard.read(6, ids, 9);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{6, 7, 8}));
  expect_error([&] { shard.read(6, ids, 8); }, "token 8 at position 8 (byte 272) is outside the vocabulary of 8");
  expect_error([&] { shard.read(7, ids, 9); }, "tokens 7 to 10 asked for, it has 9");
  shard.read(9, std::span(ids).first(0), 9);
  expect_error([&] { shard.read(10, std::span(ids).first(0), 9); }, "tokens 10 to 10 asked for, it has 9");
}

std::string llmq_bytes(std::int32_t width, std::int32_t tokens, std::int32_t vocab, std::int32_t mask,
                       std::size_t after_header) {
  std::string bytes(1024 + after_header, '\0');
  std::memcpy(bytes.data(), "BIN.TOK\n", 8);
  const std::int32_t fields[] = {1, width, tokens, vocab, mask};
  std::memcpy(bytes.data() + 8, fields, sizeof(fields));
  return bytes;
}

TEST(LlmqHeader, IsCheckedFieldByField) {
  const TemporaryFolder folder;
  const auto open_with = [&](std::int32_t width, std::int32_t tokens, std::int32_t vocab, std::int32_t mask,
                             std::size_t after_header) {
    return Shard::open(folder.write("q.bin", llmq_bytes(width, tokens, vocab, mask, after_header)));
  };
  const Shard plain = open_with(4, 9, 50, 0, 36);
  EXPECT_EQ(plain.tokens(), 9U);
  EXPECT_EQ(plain.info().vocab_size, 50);
  EXPECT_EQ(plain.info().bytes_per_token, 4);
  EXPECT_EQ(plain.note(), "");
  EXPECT_THAT(open_with(4, 9, 50, 1, 36 + 2).note(), HasSubstr("its loss mask is ignored"));
  EXPECT_EQ(open_with(4, 8, 0, 1, 32 + 1).info().vocab_size, 0);
  expect_error([&] { open_with(4, 9, 50, 1, 36 + 1); }, "1 bytes follow the 9 tokens, where 2 are expected");
  expect_error([&] { open_with(4, 9, 50, 2, 36); }, "a mask flag of 2");
  expect_error([&] { open_with(2, 9, 50, 0, 36); }, "2 bytes per token, where 4 are expected");
  expect_error([&] { open_with(4, -1, 50, 0, 36); }, "a header of -1 tokens");
  expect_error([&] { open_with(4, 9, -1, 0, 36); }, "a vocabulary of -1 tokens");
}

TEST(WrittenShards, HaveTwoBytesPerIdUpTo65536) {
  EXPECT_EQ(bytes_per_token_for(65536), 2);
  EXPECT_EQ(bytes_per_token_for(65537), 4);
  const TemporaryFolder folder;
  {
    ShardWriter writer(folder / "a.qv", ShardFormat::quaver, 65536, 1);
    writer.append(std::vector<std::int32_t>{0, 65535});
    EXPECT_EQ(writer.tokens(), 2U);
    expect_error([&] { writer.append(std::vector<std::int32_t>{65536}); }, "token 65536 is outside the vocabulary");
    expect_error([&] { writer.append(std::vector<std::int32_t>{-1}); }, "token -1 is outside the vocabulary of 65536");
  }
  EXPECT_THROW(ShardWriter(folder / "a.qv", ShardFormat::quaver, 0, 1), Error);
  EXPECT_THROW(ShardWriter(folder / "a.qv", ShardFormat::quaver, -1, 1), Error);
  EXPECT_NO_THROW(ShardWriter(folder / "a.qv", ShardFormat::quaver, 1, 1));
  expect_error([&] { ShardWriter(folder / "a.qv", ShardFormat::llmq, 9, 1); },
               "shards are not written in LLM.Q format");
  expect_error([&] { ShardWriter(folder / "a.qv", ShardFormat::bare, 9, 1); }, "shards are not written in bare format");
}

TEST(WrittenShards, OfLlmcHaveItsMagicAndVersion) {
  const TemporaryFolder folder;
  const auto header_of = [&](int vocab) {
    const std::string bytes = contents(counted_shard(folder, "l.bin", vocab, 3, 1, ShardFormat::llmc));
    std::vector<std::int32_t> fields(3);
    std::memcpy(fields.data(), bytes.data(), 12);
    fields.push_back(static_cast<std::int32_t>(bytes.size()));
    return fields;
  };
  EXPECT_THAT(header_of(65536), ::testing::ElementsAre(20240520, 1, 3, 1024 + 6));
  EXPECT_THAT(header_of(65537), ::testing::ElementsAre(20240801, 7, 3, 1024 + 12));
}

TEST(VerifiedBytes, AreThoseOfAllShardsOfAllSources) {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> train{counted_shard(folder, "a.qv", 20, 9),
                                                 counted_shard(folder, "b.qv", 20, 5)};
  const std::vector<std::filesystem::path> valid{counted_shard(folder, "c.qv", 20, 2)};
  const ShardSource first(train, {}), second(valid, {});
  const SyntheticSource generated({});
  const TokenSource* const sources[] = {&first, nullptr, &generated, &second};
  const DataVerifier verifier(sources);
  EXPECT_EQ(verifier.bytes_total(), 2U * (9 + 5 + 2));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!verifier.done() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(verifier.done());
  EXPECT_EQ(verifier.bytes_verified(), 2U * (9 + 5 + 2));
  EXPECT_FALSE(verifier.failure().has_value());
  EXPECT_NO_THROW(verifier.rethrow_if_failed());
}

TEST(GeneratedText, HasAVocabularyInRange) {
  const auto made = [](SyntheticKind kind, int vocab) {
    return SyntheticSource({.kind = kind, .vocab_size = vocab, .seed = 1, .stream = 0}).vocab_size();
  };
  EXPECT_EQ(made(SyntheticKind::markov, 2), 2);
  EXPECT_EQ(made(SyntheticKind::markov, 1024), 1024);
  EXPECT_EQ(made(SyntheticKind::skip_markov, 2), 2);
  expect_error([&] { made(SyntheticKind::markov, 1); }, "a synthetic markov vocabulary of 1 tokens");
  expect_error([&] { made(SyntheticKind::markov, 1025); }, "a synthetic markov vocabulary of 1025 tokens");
  expect_error([&] { made(SyntheticKind::skip_markov, 257); }, "a synthetic skip_markov vocabulary of 257 tokens");
}

// Every token has eight likely successors, as 1, 1/2, … 1/8 of 95 %, and a share of the other 5 %.
TEST(GeneratedText, HasTheProbabilitiesThatItsHeaderPromises) {
  const SyntheticSource source({.kind = SyntheticKind::markov, .vocab_size = 20, .seed = 1, .stream = 0});
  double weights = 0;
  for (int rank = 1; rank <= 8; ++rank) weights += 1.0 / rank;
  for (std::int32_t last = 0; last < 20; ++last) {
    std::vector<double> probabilities;
    for (std::int32_t next = 0; next < 20; ++next)
      probabilities.push_back(source.probability(std::span(&last, 1), next));
    std::sort(probabilities.rbegin(), probabilities.rend());
    for (int rank = 1; rank <= 20; ++rank) {
      const double likely = rank <= 8 ? 0.95 / rank / weights : 0;
      EXPECT_NEAR(probabilities[static_cast<std::size_t>(rank - 1)], likely + 0.05 / 20, 1e-12);
    }
  }
  EXPECT_THAT(source.describe(), ::testing::StartsWith("synthetic markov, vocabulary 20, seed 1, stream 0, entropy "));
  const std::vector<std::int32_t> longer{3, 7};
  EXPECT_EQ(source.probability(longer, 5), source.probability(std::vector<std::int32_t>{7}, 5));
  expect_error([&] { source.probability({}, 5); }, "a history of 0 tokens does not predict token 5");
  expect_error([&] { source.probability(longer, 20); }, "a history of 2 tokens does not predict token 20");
  expect_error([&] { source.probability(longer, -1); }, "a history of 2 tokens does not predict token -1");
  expect_error([&] { source.probability(std::vector<std::int32_t>{20}, 1); }, "does not predict token 1");
}

}  // namespace
}  // namespace quaver
