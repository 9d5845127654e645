#include "data/shard.h"

#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "support/temporary_folder.h"

#include "data/expect_error.h"

namespace quaver {
namespace {

using Ids = std::vector<std::int32_t>;
using test::contents;
using test::expect_error;
using test::TemporaryFolder;

Ids random_ids(std::size_t count, int vocab_size) {
  std::mt19937 random(9);
  Ids ids(count);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab_size));
  return ids;
}

std::filesystem::path write_shard(const TemporaryFolder& folder, std::string_view name, const Ids& ids, int vocab_size,
                                  ShardFormat format = ShardFormat::quaver) {
  ShardWriter writer(folder / name, format, vocab_size, 0x1234);
  writer.append(std::span(ids).first(ids.size() / 3));
  writer.append(std::span(ids).subspan(ids.size() / 3));
  writer.finish();
  return folder / name;
}

Ids read_all(const Shard& shard, int vocab_size) {
  Ids ids(shard.tokens());
  shard.read(0, ids, vocab_size);
  return ids;
}

template <class Value>
void put(std::string& bytes, std::size_t offset, Value value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

std::string int_header(std::initializer_list<std::int32_t> numbers, std::string_view magic = "") {
  std::string header(1024, '\0');
  std::memcpy(header.data(), magic.data(), magic.size());
  std::size_t offset = magic.size();
  for (const std::int32_t number : numbers) {
    put(header, offset, number);
    offset += 4;
  }
  return header;
}

template <class Id>
std::string bytes_of(std::initializer_list<Id> ids) {
  std::string bytes(ids.size() * sizeof(Id), '\0');
  std::memcpy(bytes.data(), std::data(ids), bytes.size());
  return bytes;
}

TEST(Shard, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  for (const ShardFormat format : {ShardFormat::quaver, ShardFormat::llmc}) {
    for (const int vocab_size : {257, 65536, 65537, 200000}) {
      const Ids ids = random_ids(3001, vocab_size);
      const Shard shard = Shard::open(write_shard(folder, "x.qv", ids, vocab_size, format));
      EXPECT_EQ(read_all(shard, vocab_size), ids);
      EXPECT_EQ(shard.info().format, format);
      EXPECT_EQ(shard.info().bytes_per_token, vocab_size <= 65536 ? 2 : 4);
      if (format == ShardFormat::quaver) {
        EXPECT_EQ(shard.info().vocab_size, vocab_size);
        EXPECT_EQ(shard.info().tokenizer_hash, 0x1234u);
      }
      EXPECT_NO_THROW(shard.verify());
      Ids part(10);
      shard.read(2991, part, vocab_size);
      EXPECT_EQ(part, Ids(ids.end() - 10, ids.end()));
    }
  }
}

TEST(Shard, ReadsWhatOthersWrite) {
  const TemporaryFolder folder;
  const Ids expected{1, 2, 50256};
  const auto narrow = bytes_of<std::uint16_t>({1, 2, 50256});
  const auto wide = bytes_of<std::uint32_t>({1, 2, 50256});
  struct Case {
    std::string bytes;
    ShardFormat format;
    bool noted;
  };
  const Case cases[] = {
      {int_header({20240520, 1, 3}) + narrow, ShardFormat::llmc, false},
      {int_header({20240801, 7, 3}) + wide, ShardFormat::llmc, false},
      {int_header({2, 4, 3, 50257, 0}, "BIN.TOK\n") + wide, ShardFormat::llmq, false},
      {int_header({2, 4, 3, 50257, 1}, "BIN.TOK\n") + wide + "\x05", ShardFormat::llmq, true},
      {narrow, ShardFormat::bare, true},
  };
  for (const Case& c : cases) {
    const Shard shard = Shard::open(folder.write("other.bin", c.bytes));
    EXPECT_EQ(shard.info().format, c.format);
    EXPECT_EQ(read_all(shard, 50257), expected);
    EXPECT_EQ(!shard.note().empty(), c.noted);
    EXPECT_NO_THROW(shard.verify());
  }
}

TEST(Shard, RefusesWhatIsNoShard) {
  const TemporaryFolder folder;
  const auto refused = [&](std::string_view name, std::string_view bytes, const std::string& part) {
    const auto path = folder.write(name, bytes);
    expect_error([&] { Shard::open(path); }, part);
    expect_error([&] { Shard::open(path); }, path.string());
  };
  refused("a.qv", "", "empty");
  refused("a.qv", "some text, not tokens", "no token shard");
  refused("a.bin", "odd", "odd size");
  refused("a.bin", int_header({20240520, 2, 0}), "version 2");
  refused("a.bin", int_header({20240520, 1, -1}), "-1");
  refused("a.bin", int_header({20240520, 1, 5}) + "12", "truncated");
  refused("a.bin", int_header({20240520, 1, 1}) + "1234", "follow");
  refused("a.bin", int_header({20240520, 1, 1}).substr(0, 500), "truncated");
  refused("a.bin", int_header({2, 2, 1, 10, 0}, "BIN.TOK\n") + "12", "2 bytes per token");
  refused("a.bin", int_header({2, 4, 1, 10, 1}, "BIN.TOK\n") + "1234", "follow");
  refused("a.bin", "BIN.TOK\n", "truncated");
  expect_error([&] { Shard::open(folder / "missing.qv"); }, "missing.qv");
  expect_error([&] { Shard::open(folder.path()); }, "not a regular file");
}

TEST(Shard, EveryTruncationAndBitFlipIsFound) {
  const TemporaryFolder folder;
  const std::string good = contents(write_shard(folder, "good.qv", random_ids(40, 300), 300));
  for (std::size_t length = 0; length < good.size(); ++length) {
    const auto path = folder.write("bad.qv", good.substr(0, length));
    ASSERT_THROW(Shard::open(path), Error) << length;
  }
  ASSERT_THROW(Shard::open(folder.write("bad.qv", good + "x")), Error);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    const auto path = folder.write("bad.qv", bad);
    ASSERT_THROW(Shard::open(path).verify(), Error) << bit;
  }
}

TEST(Shard, AHugeCountDoesNotOverflow) {
  const TemporaryFolder folder;
  std::string bytes = contents(write_shard(folder, "good.qv", random_ids(40, 300), 300));
  for (const std::uint64_t count : {~std::uint64_t{0}, std::uint64_t{1} << 63, (std::uint64_t{1} << 63) + 40}) {
    put(bytes, 16, count);
    Fnv64 hash;
    hash.add(std::string_view(bytes).substr(0, 248));
    put(bytes, 248, hash.value());
    const auto path = folder.write("huge.qv", bytes);
    expect_error([&] { Shard::open(path); }, "truncated");
  }
}

TEST(Shard, ReadingChecksBoundsAndVocabulary) {
  const TemporaryFolder folder;
  Ids ids(100, 5);
  ids[70] = 299;
  const Shard shard = Shard::open(write_shard(folder, "a.qv", ids, 300));
  Ids out(10);
  expect_error([&] { shard.read(91, out, 300); }, "it has 100");
  expect_error([&] { shard.read(~std::uint64_t{0}, out, 300); }, "it has 100");
  EXPECT_NO_THROW(shard.read(90, out, 299));
  expect_error([&] { shard.read(65, out, 299); }, "token 299 at position 70");
  expect_error([&] { shard.read(65, out, 299); }, "a.qv");

  const auto wide = int_header({20240801, 7, 1}) + bytes_of<std::uint32_t>({0x80000001u});
  const Shard negative = Shard::open(folder.write("wide.bin", wide));
  Ids one(1);
  expect_error([&] { negative.read(0, one, 300); }, "token 2147483649 at position 0");
}

TEST(ShardWriter, LeavesNothingUnlessFinished) {
  const TemporaryFolder folder;
  {
    ShardWriter writer(folder / "a.qv", ShardFormat::quaver, 300, 0);
    writer.append(Ids{1, 2, 3});
    expect_error([&] { writer.append(Ids{300}); }, "token 300");
    expect_error([&] { writer.append(Ids{-1}); }, "token -1");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  expect_error([&] { ShardWriter(folder / "no/such/folder.qv", ShardFormat::quaver, 300, 0); }, "folder.qv");
  expect_error([&] { ShardWriter(folder / "a.bin", ShardFormat::bare, 300, 0); }, "bare");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ShardWriter, AnEmptyShardIsAShard) {
  const TemporaryFolder folder;
  EXPECT_EQ(Shard::open(write_shard(folder, "empty.qv", {}, 300)).tokens(), 0u);
}

}  // namespace
}  // namespace quaver
