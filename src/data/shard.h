// Token shards: files of token ids behind a short header. Reads our own format, llm.c's, LLM.Q's and nanoGPT's bare
// ids; writes our own and llm.c's. All are little-endian.
//
// Our format, 256 bytes of header and then the ids:
//    0  "QVSHARD1"            24  u64 hash of the tokenizer
//    8  u32 version, 1        32  u32 vocabulary size
//   12  u32 bytes per id      40  u64 FNV-1a checksum of the ids
//   16  u64 number of ids    248  u64 FNV-1a checksum of the 248 bytes before; the rest is zero
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/hash.h"
#include "io/file_io.h"

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

// A shard, mapped into memory.
class Shard {
 public:
  // Error for a file that is truncated, damaged or no shard. Looks at the header only: see verify().
  static Shard open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const ShardInfo& info() const { return info_; }
  std::uint64_t tokens() const { return info_.tokens; }

  // What a careful reader should know, such as an ignored loss mask; empty if nothing.
  const std::string& note() const { return note_; }

  // Ids [first, first + out.size()). Error past the end, and for an id outside [0, vocab_size).
  void read(std::uint64_t first, std::span<std::int32_t> out, int vocab_size) const;

  // A hash of the ids: the checksum that the header records, else computed from all of them.
  std::uint64_t content_hash() const;

  // Reads everything: the checksum where the format has one, and the ids against the shard's vocabulary.
  void verify() const;

 private:
  Shard(std::filesystem::path path, MappedFile file) : path_(std::move(path)), file_(std::move(file)) {}
  void read_header();
  void read_quaver_header();
  void read_llmc_header();
  void read_llmq_header();
  void read_bare();
  void set_layout(std::uint64_t header_bytes, std::uint64_t tokens, int bytes_per_token);
  void expect_end(std::uint64_t trailing_bytes) const;
  [[noreturn]] void fail(const std::string& what) const;
  template <class Value>
  Value field(std::size_t offset) const;

  std::filesystem::path path_;
  MappedFile file_;
  ShardInfo info_;
  std::span<const std::byte> ids_;
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
  std::vector<std::byte> buffer_;
};

}  // namespace quaver
