#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <limits>

#include "data/shard.h"
#include "data/shard_layout.h"
#include "quaver/error.h"

namespace quaver {
namespace {

using namespace shard_layout;

constexpr std::size_t buffer_bytes = 1 << 20;
static_assert(buffer_bytes % block_bytes == 0, "a block is checksummed in one piece");

template <std::size_t size, class Value>
void put(std::array<std::byte, size>& header, std::size_t offset, Value value) {
  std::memcpy(header.data() + offset, &value, sizeof(value));
}

std::array<std::byte, quaver_header_bytes> quaver_header(const ShardInfo& info, std::uint64_t checksum,
                                                         std::uint32_t table_checksum) {
  std::array<std::byte, quaver_header_bytes> header{};
  std::memcpy(header.data(), quaver_magic.data(), quaver_magic.size());
  put(header, version_at, quaver_version);
  put(header, width_at, static_cast<std::uint32_t>(info.bytes_per_token));
  put(header, tokens_at, info.tokens);
  put(header, tokenizer_at, info.tokenizer_hash);
  put(header, vocab_at, static_cast<std::uint32_t>(info.vocab_size));
  put(header, checksum_at, checksum);
  put(header, block_bytes_at, static_cast<std::uint32_t>(block_bytes));
  put(header, table_checksum_at, table_checksum);
  Fnv64 hash;
  hash.add(std::span(header).first(header_checksum_at));
  put(header, header_checksum_at, hash.value());
  return header;
}

std::array<std::byte, int_header_bytes> llmc_header(const ShardInfo& info) {
  std::array<std::byte, int_header_bytes> header{};
  const bool wide = info.bytes_per_token == 4;
  put(header, 0, wide ? llmc_wide_magic : llmc_magic);
  put(header, 4, wide ? llmc_wide_version : llmc_version);
  put(header, 8, static_cast<std::int32_t>(info.tokens));
  return header;
}

}  // namespace

ShardWriter::ShardWriter(const std::filesystem::path& path, ShardFormat format, int vocab_size,
                         std::uint64_t tokenizer_hash)
    : info_{format, 0, bytes_per_token_for(vocab_size), vocab_size, tokenizer_hash}, file_(path) {
  if (format != ShardFormat::quaver && format != ShardFormat::llmc) {
    throw Error(fmt::format("{}: shards are not written in {} format", path.string(), name_of(format)),
                "write quaver's or llm.c's");
  }
  if (vocab_size <= 0) throw Error(fmt::format("{}: a vocabulary of {} tokens", path.string(), vocab_size));
  const std::vector<std::byte> room(format == ShardFormat::quaver ? quaver_header_bytes : int_header_bytes);
  file_.write(room);
  buffer_.reserve(buffer_bytes);
}

void ShardWriter::append(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= info_.vocab_size) {
      throw Error(
          fmt::format("{}: token {} is outside the vocabulary of {}", file_.path().string(), id, info_.vocab_size),
          "write the ids of the tokenizer the shard is for");
    }
    const auto value = static_cast<std::uint32_t>(id);  // its low bytes come first
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    buffer_.insert(buffer_.end(), bytes, bytes + info_.bytes_per_token);
    if (buffer_.size() >= buffer_bytes) flush();
  }
  info_.tokens += ids.size();
}

void ShardWriter::flush() {
  checksum_.add(buffer_);
  for (std::size_t at = 0; at < buffer_.size(); at += block_bytes) {
    const std::size_t length = std::min(block_bytes, buffer_.size() - at);
    block_checksums_.push_back(crc32c(std::span(buffer_).subspan(at, length)));
  }
  file_.write(buffer_);
  buffer_.clear();
}

void ShardWriter::finish() {
  flush();
  if (info_.format == ShardFormat::quaver) {
    const std::span<const std::byte> table = std::as_bytes(std::span(block_checksums_));
    file_.write(table);
    file_.write_at(0, quaver_header(info_, checksum_.value(), crc32c(table)));
  } else {
    if (info_.tokens > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
      throw Error(fmt::format("{}: {} tokens are too many for llm.c's header", file_.path().string(), info_.tokens),
                  "write smaller shards");
    }
    file_.write_at(0, llmc_header(info_));
  }
  file_.commit();
}

}  // namespace quaver
