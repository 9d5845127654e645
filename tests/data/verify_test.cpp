// Damage in shards is found and located, whether it is there before they are opened or happens while they are read.
#include <chrono>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>
#include <utility>

#include "support/temporary_folder.h"

#include "data/documents.h"
#include "data/expect_error.h"
#include "data/synthetic.h"
#include "data/verifier.h"

namespace quaver {
namespace {

using Ids = std::vector<std::int32_t>;
using test::contents;
using test::expect_error;
using test::TemporaryFolder;

constexpr std::size_t header_bytes = 256;
constexpr std::size_t block_bytes = 65536;

std::filesystem::path write_shard(const TemporaryFolder& folder, std::string_view name, std::size_t tokens,
                                  ShardFormat format = ShardFormat::quaver) {
  Ids ids(tokens);
  for (std::size_t i = 0; i < tokens; ++i) ids[i] = static_cast<std::int32_t>(i * 31 % 257);
  ShardWriter writer(folder / name, format, 257, 1);
  writer.append(ids);
  writer.finish();
  return folder / name;
}

void flip_bit(const std::filesystem::path& path, std::size_t byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(byte));
  const char flipped = static_cast<char>(file.get() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(flipped);
}

// The shard as version 1 had it: no table, zeros in its place in the header.
std::string without_blocks(std::string bytes, std::size_t tokens) {
  bytes.resize(header_bytes + 2 * tokens);
  const std::uint32_t version = 1;
  std::memcpy(bytes.data() + 8, &version, sizeof(version));
  std::memset(bytes.data() + 48, 0, 8);
  Fnv64 hash;
  hash.add(std::string_view(bytes).substr(0, 248));
  const std::uint64_t value = hash.value();
  std::memcpy(bytes.data() + 248, &value, sizeof(value));
  return bytes;
}

Ids window_of(const TokenSource& source, std::int64_t context) {
  Ids inputs(static_cast<std::size_t>(context));
  Ids targets(inputs.size());
  source.fill(0, 1, context, inputs.data(), targets.data());
  return inputs;
}

void wait_for(const DataVerifier& verifier) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!verifier.done() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(verifier.done());
}

TEST(Verify, AFlippedBitIsLocated) {
  const TemporaryFolder folder;
  constexpr std::size_t tokens = 2 * block_bytes;  // four blocks of two-byte ids
  const auto path = write_shard(folder, "a.qv", tokens);
  EXPECT_NO_THROW(Shard::open(path).verify());
  for (const std::size_t byte : {std::size_t{0}, block_bytes - 1, block_bytes, 3 * block_bytes + 5}) {
    flip_bit(path, header_bytes + byte);
    const std::size_t start = header_bytes + byte / block_bytes * block_bytes;
    expect_error([&] { Shard::open(path).verify(); }, "a.qv: damaged between bytes " + std::to_string(start) + " and " +
                                                          std::to_string(start + block_bytes));
    flip_bit(path, header_bytes + byte);
  }
  EXPECT_NO_THROW(Shard::open(path).verify());
  flip_bit(path, header_bytes + 2 * tokens + 1);
  expect_error([&] { Shard::open(path).verify(); }, "the table of checksums, bytes 262400 to 262416, is damaged");
}

// Files made apart from this program, from the description of the format alone.
TEST(Verify, TheFormatIsAsDescribed) {
  const auto corpus = std::filesystem::path(__FILE__).parent_path().parent_path() / "fuzz" / "corpus" / "data_shard";
  for (const char* name : {"quaver16", "quaver16_blocks"}) {
    const Shard shard = Shard::open(corpus / name);
    EXPECT_NO_THROW(shard.verify()) << name;
    Ids ids(shard.tokens());
    shard.read(0, ids, 257);
    EXPECT_EQ(ids, (Ids{1, 2, 3, 256, 7, 9})) << name;
  }
}

TEST(Verify, TheFirstVersionIsStillReadAndChecked) {
  const TemporaryFolder folder;
  const std::string now = contents(write_shard(folder, "new.qv", 1000));
  const auto path = folder.write("old.qv", without_blocks(now, 1000));
  const Shard shard = Shard::open(path);
  EXPECT_NO_THROW(shard.verify());
  EXPECT_EQ(shard.content_hash(), Shard::open(folder / "new.qv").content_hash());
  Ids ids(1000);
  shard.read(0, ids, 257);
  EXPECT_EQ(ids[999], 999 * 31 % 257);
  flip_bit(path, 600);
  expect_error([&] { Shard::open(path).verify(); }, "old.qv: damaged somewhere between bytes 256 and 2256");
  expect_error([&] { Shard::open(path).verify(); }, "version 1 of the format does not tell where");
}

TEST(Verify, AShardThatIsShortenedWhileOpenIsAnError) {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> paths{write_shard(folder, "a.qv", 100000)};
  const ShardSource source(paths, {WindowOrder::sequential, 0, 0});
  EXPECT_EQ(window_of(source, 64)[3], 93);
  std::filesystem::resize_file(paths.front(), 4096);
  expect_error([&] { window_of(source, 64); }, "a.qv changed while it was being read");
  expect_error([&] { source.shards().front().verify(); }, "a.qv changed while it was being read");

  PrefetchLoader loader(source, {0}, 4, 64);
  expect_error([&] { loader.next(); }, "a.qv changed while it was being read");
}

TEST(Verify, AValidationShardThatTurnsToZerosIsAnError) {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> paths{write_shard(folder, "valid-00000.qv", 1000)};
  const ShardSource source(paths, {WindowOrder::sequential, 0, 0});
  const auto size = std::filesystem::file_size(paths.front());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the file system's clock is coarse
  std::filesystem::resize_file(paths.front(), 0);
  std::filesystem::resize_file(paths.front(), size);
  expect_error([&] { window_of(source, 64); }, "valid-00000.qv changed while it was being read");
}

TEST(Verify, ARunReadsOnWhenItsShardIsReplaced) {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> paths{write_shard(folder, "a.qv", 1000)};
  const ShardSource source(paths, {WindowOrder::sequential, 0, 0});
  const Ids before = window_of(source, 64);
  write_shard(folder, "a.qv", 20);
  EXPECT_EQ(window_of(source, 64), before);
}

TEST(Documents, TextThatIsCutOffWhileItIsReadIsAnError) {
  const TemporaryFolder folder;
  for (const char* name : {"a.txt", "a.jsonl"}) {
    std::string text;
    for (int i = 0; i < 100000; ++i) text += "{\"text\": \"line " + std::to_string(i) + "\"}\n";
    const auto path = folder.write(name, text);
    bool first = true;
    const auto visit = [&](const Document&) {
      if (std::exchange(first, false)) std::filesystem::resize_file(path, 1 << 20);
    };
    expect_error([&] { read_documents(path, {}, visit); }, path.string());
  }
}

TEST(DataVerifier, FindsDamageInAnySource) {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> train{write_shard(folder, "t0.qv", 70000), write_shard(folder, "t1.qv", 10)};
  const std::vector<std::filesystem::path> valid{write_shard(folder, "v0.qv", 50000)};
  const auto verify = [&] {
    const ShardSource first(train, {WindowOrder::shuffled, 0, 0});
    const ShardSource second(valid, {WindowOrder::sequential, 0, 0});
    const TokenSource* const sources[] = {&first, nullptr, &second};
    const DataVerifier verifier(sources);
    EXPECT_EQ(verifier.bytes_total(), 2u * (70000 + 10 + 50000));
    wait_for(verifier);
    if (!verifier.failure()) {
      EXPECT_EQ(verifier.bytes_verified(), verifier.bytes_total());
    }
    verifier.rethrow_if_failed();
  };
  EXPECT_NO_THROW(verify());
  flip_bit(valid.front(), header_bytes + block_bytes + 10);
  expect_error(verify, "v0.qv: damaged between bytes 65792 and 100256");
}

TEST(DataVerifier, ChecksIdsOfFormatsWithoutAChecksum) {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> paths{write_shard(folder, "a.bin", 1000, ShardFormat::llmc)};
  flip_bit(paths.front(), 1024 + 2 * 500 + 1);  // a high byte: the id is now above 4096
  const ShardSource source(paths, {WindowOrder::shuffled, 0, 257});
  const TokenSource* const sources[] = {&source};
  const DataVerifier verifier(sources);
  wait_for(verifier);
  expect_error([&] { verifier.rethrow_if_failed(); }, "at position 500 (byte 2024) is outside the vocabulary of 257");
}

TEST(DataVerifier, StopsWhenItIsDestroyedAndNeedsNoShards) {
  const TemporaryFolder folder;
  const std::vector<std::filesystem::path> paths{write_shard(folder, "a.qv", 4'000'000)};
  const ShardSource source(paths, {WindowOrder::shuffled, 0, 0});
  const TokenSource* const sources[] = {&source};
  for (int i = 0; i < 20; ++i) const DataVerifier stopped(sources);

  const SyntheticSource generated({});
  const TokenSource* const none[] = {&generated};
  const DataVerifier idle(none);
  wait_for(idle);
  EXPECT_FALSE(idle.failure());
}

}  // namespace
}  // namespace quaver
