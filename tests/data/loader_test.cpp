#include "data/loader.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "support/temporary_folder.h"

#include "data/expect_error.h"
#include "data/permutation.h"

namespace quaver {
namespace {

using Ids = std::vector<std::int32_t>;
using test::expect_error;
using test::TemporaryFolder;

// Shards whose tokens count up without end, so that a window is known by its first token.
class CountingShards {
 public:
  explicit CountingShards(std::initializer_list<std::size_t> sizes) {
    std::int32_t next = 0;
    for (const std::size_t size : sizes) {
      Ids ids(size);
      std::iota(ids.begin(), ids.end(), next);
      next += static_cast<std::int32_t>(size);
      paths_.push_back(folder_ / (std::to_string(paths_.size()) + ".qv"));
      ShardWriter writer(paths_.back(), ShardFormat::quaver, 100000, 1);
      writer.append(ids);
      writer.finish();
    }
  }
  const std::vector<std::filesystem::path>& paths() const { return paths_; }
  ShardSource source(WindowOrder order, std::uint64_t seed = 0) const { return ShardSource(paths_, {order, seed, 0}); }

 private:
  TemporaryFolder folder_;
  std::vector<std::filesystem::path> paths_;
};

struct Batch {
  Ids inputs;
  Ids targets;
  bool operator==(const Batch&) const = default;
};

Batch batch_of(const TokenSource& source, std::uint64_t index, std::int64_t batch, std::int64_t context) {
  Batch result{Ids(static_cast<std::size_t>(batch * context)), Ids(static_cast<std::size_t>(batch * context))};
  source.fill(index, batch, context, result.inputs.data(), result.targets.data());
  return result;
}

TEST(Permutation, VisitsEveryIndexOnce) {
  for (const std::uint64_t size : {1u, 2u, 3u, 4u, 5u, 16u, 17u, 100u, 1000u, 4097u}) {
    for (std::uint64_t key = 0; key < 4; ++key) {
      const Permutation permutation(size, key);
      std::vector<bool> seen(size);
      for (std::uint64_t i = 0; i < size; ++i) {
        const std::uint64_t image = permutation(i);
        ASSERT_LT(image, size);
        ASSERT_FALSE(seen[image]);
        seen[image] = true;
      }
    }
  }
}

TEST(Permutation, IsAShuffle) {
  // Over many keys, each index lands everywhere about equally often: χ² with 99 degrees of freedom, mean 99,
  // deviation 14.
  constexpr int size = 100;
  constexpr int keys = 20000;
  for (const std::uint64_t index : {0u, 1u, 50u, 99u}) {
    std::vector<int> counts(size);
    for (int key = 0; key < keys; ++key) ++counts[Permutation(size, mix_bits(static_cast<std::uint64_t>(key)))(index)];
    double chi_squared = 0;
    for (const int count : counts) chi_squared += (count - keys / size) * (count - keys / size) / (1.0 * keys / size);
    EXPECT_LT(chi_squared, 170);
  }
}

TEST(ShardSource, TargetsAreInputsShiftedByOne) {
  const CountingShards shards{1000, 500};
  for (const WindowOrder order : {WindowOrder::sequential, WindowOrder::shuffled}) {
    const ShardSource source = shards.source(order);
    for (std::uint64_t index = 0; index < 50; ++index) {
      const Batch batch = batch_of(source, index, 3, 16);
      for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
        ASSERT_EQ(batch.targets[i], batch.inputs[i] + 1);
        if (i % 16 > 0) {
          ASSERT_EQ(batch.inputs[i], batch.inputs[i - 1] + 1);
        }
      }
    }
  }
}

TEST(ShardSource, EveryEpochVisitsEachWindowOnceInItsOwnOrder) {
  const CountingShards shards{1000, 17, 16, 333, 1};
  const std::int64_t context = 16;
  const std::size_t windows = 62 + 1 + 0 + 20 + 0;
  const ShardSource source = shards.source(WindowOrder::shuffled, 11);
  ASSERT_EQ(source.windows(context), windows);
  std::vector<Ids> epochs;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    Ids starts;
    for (std::uint64_t i = 0; i < windows; ++i) {
      starts.push_back(batch_of(source, epoch * windows + i, 1, context).inputs[0]);
    }
    EXPECT_EQ(std::set<std::int32_t>(starts.begin(), starts.end()).size(), windows);
    EXPECT_FALSE(std::is_sorted(starts.begin(), starts.end()));
    epochs.push_back(starts);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);

  Ids first;
  const ShardSource in_order = shards.source(WindowOrder::sequential);
  for (std::uint64_t i = 0; i < windows; ++i) first.push_back(batch_of(in_order, i, 1, context).inputs[0]);
  EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
  std::sort(epochs[0].begin(), epochs[0].end());
  EXPECT_EQ(first, epochs[0]);
}

TEST(ShardSource, DependsOnlyOnSeedAndIndex) {
  const CountingShards shards{5000, 3000};
  const ShardSource source = shards.source(WindowOrder::shuffled, 5);
  const Batch later = batch_of(source, 40, 4, 32);
  for (std::uint64_t i = 0; i < 40; ++i) batch_of(source, i, 4, 32);
  EXPECT_EQ(batch_of(source, 40, 4, 32), later);
  EXPECT_EQ(batch_of(shards.source(WindowOrder::shuffled, 5), 40, 4, 32), later);
  EXPECT_FALSE(batch_of(shards.source(WindowOrder::shuffled, 6), 40, 4, 32) == later);
  // The rows of a run do not depend on how they are cut into batches.
  const Batch halves = batch_of(source, 81, 2, 32);
  EXPECT_EQ(halves.inputs, Ids(later.inputs.begin() + 64, later.inputs.end()));
}

TEST(ShardSource, RefusesWhatItCannotServe) {
  const CountingShards shards{100};
  const TemporaryFolder folder;
  expect_error([&] { batch_of(shards.source(WindowOrder::sequential), 0, 1, 100); }, "context of 100");
  EXPECT_NO_THROW(batch_of(shards.source(WindowOrder::sequential), 0, 1, 99));
  expect_error([&] { shards.source(WindowOrder::sequential).windows(0); }, "context of 0");
  expect_error([] { ShardSource({}, {}); }, "no shards");
  expect_error([&] { ShardSource(shards.paths(), {WindowOrder::sequential, 0, 500}); }, "100000");

  const std::vector<std::filesystem::path> bare{folder.write("bare.bin", std::string(100, '\1'))};
  expect_error([&] { ShardSource(bare, {}); }, "vocabulary");
  const ShardSource limited(bare, {WindowOrder::sequential, 0, 200});
  expect_error([&] { batch_of(limited, 0, 1, 8); }, "token 257 at position 0");

  std::vector<std::filesystem::path> mixed = shards.paths();
  mixed.push_back(folder / "other.qv");
  ShardWriter writer(mixed.back(), ShardFormat::quaver, 100000, 2);
  writer.finish();
  expect_error([&] { ShardSource(mixed, {}); }, "different tokenizers");
}

// Counts up to a batch that fails.
class FailingSource final : public TokenSource {
 public:
  void fill(std::uint64_t index, std::int64_t, std::int64_t, std::int32_t* inputs, std::int32_t*) const override {
    if (index == 3) throw Error("batch 3 is broken", "mend it");
    inputs[0] = static_cast<std::int32_t>(index);
  }
  int vocab_size() const override { return 10; }
  std::uint64_t tokens() const override { return 0; }
  std::uint64_t windows(std::int64_t) const override { return 0; }
  std::string describe() const override { return "failing"; }
  std::uint64_t content_hash() const override { return 0; }
};

TEST(PrefetchLoader, GivesTheSameBatchesInOrder) {
  const CountingShards shards{5000, 3000};
  const ShardSource source = shards.source(WindowOrder::shuffled, 5);
  for (const int depth : {1, 2, 5}) {
    for (const std::uint64_t start : {0u, 17u}) {  // resuming is starting at an index
      PrefetchLoader loader(source, {start}, 4, 32, depth);
      for (std::uint64_t index = start; index < start + 60; ++index) {
        const PrefetchLoader::Batch batch = loader.next();
        const Batch direct = batch_of(source, index, 4, 32);
        ASSERT_EQ(batch.index, index);
        ASSERT_TRUE(std::equal(batch.inputs.begin(), batch.inputs.end(), direct.inputs.begin(), direct.inputs.end()));
        ASSERT_TRUE(
            std::equal(batch.targets.begin(), batch.targets.end(), direct.targets.begin(), direct.targets.end()));
      }
    }
  }
}

TEST(PrefetchLoader, ReportsAFailureAtItsBatch) {
  const FailingSource source;
  PrefetchLoader loader(source, {0}, 1, 1, 4);
  for (std::int32_t i = 0; i < 3; ++i) EXPECT_EQ(loader.next().inputs[0], i);
  expect_error([&] { loader.next(); }, "batch 3 is broken");
  expect_error([&] { loader.next(); }, "batch 3 is broken");
}

TEST(PrefetchLoader, StopsWithoutBeingRead) {
  const FailingSource source;
  { PrefetchLoader unread(source, {0}, 1, 1); }
  { PrefetchLoader failed(source, {3}, 1, 1); }
  expect_error([&] { PrefetchLoader(source, {0}, 0, 1); }, "0 sequences");
}

}  // namespace
}  // namespace quaver
