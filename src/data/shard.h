// Token shards: files of token ids behind a short header. Reads our own format, llm.c's, LLM.Q's and nanoGPT's bare
// ids; writes our own and llm.c's. All are little-endian.
//
// Our format, 256 bytes of header, then the ids, then a table of checksums:
//    0  "QVSHARD1"            32  u32 vocabulary size
//    8  u32 version, 2        40  u64 FNV-1a checksum of the ids
//   12  u32 bytes per id      48  u32 bytes per block of ids, 65536
//   16  u64 number of ids     52  u32 CRC-32C of the table
//   24  u64 hash of the      248  u64 FNV-1a checksum of the 248 bytes before; the rest is zero
//           tokenizer
// The table has the CRC-32C of each block of ids as a u32; the last block may be shorter. Version 1 has no table, and
// zeros at 48 and 52.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/hash.h"
#include "io/file_io.h"
#include "io/file_reader.h"

namespace quaver {

enum class ShardFormat : std::uint8_t { quaver, llmc, llmq, bare };
std::string_view name_of(ShardFormat format);

// What a shard says of itself. Zero stands for what its format does not record.
struct ShardInfo {
  ShardFormat format = ShardFormat::quaver;
  std::uint64_t tokens = 0;
  int bytes_per_token = 2;
  int vocab_size = 0;
  std::uint64_t tokenizer_hash = 0;
};

// Called after each block of a verification with the bytes of ids read so far; false ends it early.
using VerifyStep = std::function<bool(std::uint64_t bytes)>;

// A shard, open for reading. Every Error names the file and, where it is about ids, the bytes.
class Shard {
 public:
  // Error for a file that is truncated, damaged or no shard. Looks at the header only: see verify().
  static Shard open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const ShardInfo& info() const { return info_; }
  std::uint64_t tokens() const { return info_.tokens; }
  std::uint64_t id_bytes() const { return info_.tokens * static_cast<unsigned>(info_.bytes_per_token); }

  // What a careful reader should know, such as an ignored loss mask; empty if nothing.
  const std::string& note() const { return note_; }

  // Ids [first, first + out.size()). Error past the end, for an id outside [0, vocab_size), and where the file changed
  // since it was opened. Safe to call from several threads.
  void read(std::uint64_t first, std::span<std::int32_t> out, int vocab_size) const;

  // A hash of the ids: the checksum that the header records, else computed from all of them.
  std::uint64_t content_hash() const;

  // Reads everything: the checksums where the format has them, and the ids against the vocabulary, where
  // 0 stands for the one that the shard records.
  void verify(int vocab_size = 0, const VerifyStep& step = {}) const;

 private:
  explicit Shard(FileReader file) : file_(std::move(file)) {}
  void read_header();
  void read_quaver_header();
  void read_llmc_header();
  void read_llmq_header();
  void read_bare();
  void set_layout(std::uint64_t header_bytes, std::uint64_t tokens, int bytes_per_token);
  void expect_end(std::uint64_t trailing_bytes) const;
  std::vector<std::uint32_t> read_block_checksums() const;
  void check_vocabulary(std::uint64_t first, std::span<const std::int32_t> ids, int vocab_size) const;
  [[noreturn]] void fail(const std::string& what) const;
  template <class Value>
  Value field(std::size_t offset) const;

  FileReader file_;
  ShardInfo info_;
  std::uint64_t ids_at_ = 0;    // where they begin in the file
  std::uint64_t checksum_ = 0;  // of all ids, as the header records it
  std::uint32_t table_checksum_ = 0;
  std::uint32_t version_ = 0;  // of our format
  std::string note_;
};

// Ids in two bytes where the vocabulary fits, in four otherwise.
constexpr int bytes_per_token_for(int vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

// Writes a shard under a temporary name; finish() completes it. Destroyed unfinished, it leaves no file.
class ShardWriter {
 public:
  // format: quaver or llmc.
  ShardWriter(const std::filesystem::path& path, ShardFormat format, int vocab_size, std::uint64_t tokenizer_hash);

  void append(std::span<const std::int32_t> ids);  // Error for an id outside the vocabulary
  void finish();
  std::uint64_t tokens() const { return info_.tokens; }

 private:
  void flush();

  ShardInfo info_;
  AtomicFile file_;
  Fnv64 checksum_;
  std::vector<std::uint32_t> block_checksums_;
  std::vector<std::byte> buffer_;
};

}  // namespace quaver
