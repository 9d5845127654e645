#include "data/shard.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <limits>

#include "data/shard_layout.h"
#include "quaver/error.h"

namespace quaver {
namespace {

using namespace shard_layout;

// Ids of width Id that stand at the end of out's own bytes, spread over all of them: no buffer is needed. Front to
// back, a value is read before anything is written over it.
template <class Id>
void widen_in_place(std::span<std::int32_t> out) {
  const std::byte* const from = std::as_bytes(out).data() + out.size() * (sizeof(std::int32_t) - sizeof(Id));
  for (std::size_t i = 0; i < out.size(); ++i) {
    Id id;  // memcpy: these bytes are not objects of type Id
    std::memcpy(&id, from + i * sizeof(Id), sizeof(Id));
    out[i] = static_cast<std::int32_t>(id);
  }
}

std::span<std::byte> room_for_ids(std::span<std::int32_t> out, int bytes_per_token) {
  return std::as_writable_bytes(out).last(out.size() * static_cast<unsigned>(bytes_per_token));
}

void widen(std::span<std::int32_t> out, int bytes_per_token) {
  if (bytes_per_token == 2) {
    widen_in_place<std::uint16_t>(out);
  } else {
    widen_in_place<std::uint32_t>(out);
  }
}

}  // namespace

std::string_view name_of(ShardFormat format) {
  switch (format) {
    case ShardFormat::quaver:
      return "quaver";
    case ShardFormat::llmc:
      return "llm.c";
    case ShardFormat::llmq:
      return "LLM.Q";
    case ShardFormat::bare:
      return "bare";
  }
  return "unknown";
}

Shard Shard::open(const std::filesystem::path& path) {
  Shard shard(FileReader::open(path));
  shard.read_header();
  return shard;
}

void Shard::fail(const std::string& what) const {
  throw Error(fmt::format("shard {}: {}", path().string(), what), "write the shard again, or copy it again");
}

template <class Value>
Value Shard::field(std::size_t offset) const {
  if (file_.size() < offset + sizeof(Value)) fail(fmt::format("truncated in the header, at {} bytes", file_.size()));
  Value value;
  file_.read(offset, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

void Shard::read_header() {
  std::array<char, quaver_magic.size()> start{};
  static_assert(quaver_magic.size() == llmq_magic.size());
  const std::size_t length = std::min<std::uint64_t>(start.size(), file_.size());
  file_.read(0, std::as_writable_bytes(std::span(start)).first(length));
  const std::string_view magic(start.data(), start.size());
  std::int32_t number = 0;
  if (length >= sizeof(number)) std::memcpy(&number, start.data(), sizeof(number));

  if (length == 0) fail("the file is empty");
  if (magic == quaver_magic) return read_quaver_header();
  if (magic == llmq_magic) return read_llmq_header();
  if (number == llmc_magic || number == llmc_wide_magic) return read_llmc_header();
  if (path().extension() == ".bin") return read_bare();
  throw Error(fmt::format("{} is no token shard: it starts with none of the known headers", path().string()),
              "make shards with `quaver data`; bare 16-bit ids must be named .bin");
}

void Shard::set_layout(std::uint64_t header_bytes, std::uint64_t tokens, int bytes_per_token) {
  info_.tokens = tokens;
  info_.bytes_per_token = bytes_per_token;
  const std::uint64_t size = file_.size();
  const std::uint64_t room = size < header_bytes ? 0 : (size - header_bytes) / static_cast<unsigned>(bytes_per_token);
  if (size < header_bytes || tokens > room) {
    fail(fmt::format("truncated: the header promises {} tokens, the file has room for {}", tokens, room));
  }
  ids_at_ = header_bytes;
}

void Shard::expect_end(std::uint64_t trailing_bytes) const {
  const std::uint64_t extra = file_.size() - (ids_at_ + id_bytes());
  if (extra != trailing_bytes) {
    fail(fmt::format("{} bytes follow the {} tokens, where {} are expected", extra, info_.tokens, trailing_bytes));
  }
}

void Shard::read_quaver_header() {
  info_.format = ShardFormat::quaver;
  version_ = field<std::uint32_t>(version_at);
  if (version_ != quaver_version && version_ != version_without_blocks) {
    throw Error(fmt::format("shard {}: version {}, this program reads versions {} to {}", path().string(), version_,
                            version_without_blocks, quaver_version),
                "use a newer quaver, or write the shard again");
  }
  const auto stored = field<std::uint64_t>(header_checksum_at);
  std::array<std::byte, header_checksum_at> header{};
  file_.read(0, header);
  Fnv64 hash;
  hash.add(header);
  if (hash.value() != stored) fail("the header is damaged (checksum)");
  const auto width = field<std::uint32_t>(width_at);
  const auto vocab = field<std::uint32_t>(vocab_at);
  if (width != 2 && width != 4) fail(fmt::format("{} bytes per token", width));
  if (vocab == 0 || vocab > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) {
    fail(fmt::format("a vocabulary of {} tokens", vocab));
  }
  info_.vocab_size = static_cast<int>(vocab);
  info_.tokenizer_hash = field<std::uint64_t>(tokenizer_at);
  checksum_ = field<std::uint64_t>(checksum_at);
  set_layout(quaver_header_bytes, field<std::uint64_t>(tokens_at), static_cast<int>(width));
  if (version_ == version_without_blocks) return expect_end(0);
  if (const auto bytes = field<std::uint32_t>(block_bytes_at); bytes != block_bytes) {
    fail(fmt::format("blocks of {} bytes, where {} are expected", bytes, block_bytes));
  }
  table_checksum_ = field<std::uint32_t>(table_checksum_at);
  expect_end(block_count(id_bytes()) * sizeof(std::uint32_t));
}

void Shard::read_llmc_header() {
  info_.format = ShardFormat::llmc;
  const bool wide = field<std::int32_t>(0) == llmc_wide_magic;
  const std::int32_t expected = wide ? llmc_wide_version : llmc_version;
  if (const auto version = field<std::int32_t>(4); version != expected) {
    fail(fmt::format("llm.c version {}, where {} is expected", version, expected));
  }
  const auto tokens = field<std::int32_t>(8);
  if (tokens < 0) fail(fmt::format("a header of {} tokens", tokens));
  set_layout(int_header_bytes, static_cast<std::uint64_t>(tokens), wide ? 4 : 2);
  expect_end(0);
}

void Shard::read_llmq_header() {
  info_.format = ShardFormat::llmq;
  const auto width = field<std::int32_t>(12);
  const auto tokens = field<std::int32_t>(16);
  const auto vocab = field<std::int32_t>(20);
  const auto mask = field<std::int32_t>(24);
  if (width != 4) fail(fmt::format("{} bytes per token, where 4 are expected", width));
  if (tokens < 0) fail(fmt::format("a header of {} tokens", tokens));
  if (vocab < 0) fail(fmt::format("a vocabulary of {} tokens", vocab));
  if (mask != 0 && mask != 1) fail(fmt::format("a mask flag of {}", mask));
  info_.vocab_size = vocab;
  const auto count = static_cast<std::uint64_t>(tokens);
  set_layout(int_header_bytes, count, width);
  expect_end(mask == 1 ? (count + 7) / 8 : 0);
  if (mask == 1) note_ = fmt::format("{}: its loss mask is ignored, every token counts", path().string());
}

void Shard::read_bare() {
  info_.format = ShardFormat::bare;
  if (file_.size() % 2 != 0) fail("no known header, and an odd size: not 16-bit ids either");
  set_layout(0, file_.size() / 2, 2);
  note_ = fmt::format("{}: no known header, read as bare 16-bit ids", path().string());
}

void Shard::read(std::uint64_t first, std::span<std::int32_t> out, int vocab_size) const {
  if (first > info_.tokens || out.size() > info_.tokens - first) {
    throw Error(fmt::format("shard {}: tokens {} to {} asked for, it has {}", path().string(), first,
                            first + out.size(), info_.tokens),
                "read within the shard");
  }
  file_.read(ids_at_ + first * static_cast<unsigned>(info_.bytes_per_token), room_for_ids(out, info_.bytes_per_token));
  widen(out, info_.bytes_per_token);
  check_vocabulary(first, out, vocab_size);
}

void Shard::check_vocabulary(std::uint64_t first, std::span<const std::int32_t> ids, int vocab_size) const {
  // Unsigned, so that ids beyond 2^31 fail too; the position is looked for only once something is wrong.
  const auto outside = [&](std::int32_t id) {
    return static_cast<std::uint32_t>(id) >= static_cast<std::uint32_t>(vocab_size);
  };
  std::uint32_t largest = 0;
  for (const std::int32_t id : ids) largest = std::max(largest, static_cast<std::uint32_t>(id));
  if (ids.empty() || !outside(static_cast<std::int32_t>(largest))) return;
  const auto bad = std::find_if(ids.begin(), ids.end(), outside);
  const std::uint64_t position = first + static_cast<std::uint64_t>(bad - ids.begin());
  throw Error(fmt::format("shard {}: token {} at position {} (byte {}) is outside the vocabulary of {}",
                          path().string(), static_cast<std::uint32_t>(*bad), position,
                          ids_at_ + position * static_cast<unsigned>(info_.bytes_per_token), vocab_size),
              "use the tokenizer and vocabulary that the shard was made with");
}

std::uint64_t Shard::content_hash() const {
  if (info_.format == ShardFormat::quaver) return checksum_;
  WordHash hash;
  std::vector<std::byte> block(block_bytes);
  for (std::uint64_t done = 0; done < id_bytes(); done += block.size()) {
    const auto bytes = std::span(block).first(std::min<std::uint64_t>(block.size(), id_bytes() - done));
    file_.read(ids_at_ + done, bytes);
    hash.add(bytes);
  }
  return hash.value();
}

std::vector<std::uint32_t> Shard::read_block_checksums() const {
  if (version_ != quaver_version) return {};
  std::vector<std::uint32_t> table(block_count(id_bytes()));
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(table));
  const std::uint64_t at = ids_at_ + id_bytes();
  file_.read(at, bytes);
  if (crc32c(bytes) != table_checksum_) {
    fail(fmt::format("the table of checksums, bytes {} to {}, is damaged", at, at + bytes.size()));
  }
  return table;
}

void Shard::verify(int vocab_size, const VerifyStep& step) const {
  if (vocab_size == 0) vocab_size = info_.vocab_size;
  const std::vector<std::uint32_t> checksums = read_block_checksums();
  const auto width = static_cast<unsigned>(info_.bytes_per_token);
  const std::uint64_t per_block = block_bytes / width;
  std::vector<std::int32_t> buffer(per_block);
  Fnv64 hash;
  for (std::uint64_t first = 0; first < info_.tokens; first += per_block) {
    const std::span ids = std::span(buffer).first(std::min(per_block, info_.tokens - first));
    const std::span<std::byte> bytes = room_for_ids(ids, info_.bytes_per_token);
    const std::uint64_t at = ids_at_ + first * width;
    file_.read(at, bytes);
    if (!checksums.empty() && crc32c(bytes) != checksums[first / per_block]) {
      fail(fmt::format("damaged between bytes {} and {} (checksum)", at, at + bytes.size()));
    }
    if (info_.format == ShardFormat::quaver) hash.add(bytes);
    widen(ids, info_.bytes_per_token);
    if (vocab_size != 0) check_vocabulary(first, ids, vocab_size);
    if (step && !step(first * width + bytes.size())) return;
  }
  if (info_.format != ShardFormat::quaver || hash.value() == checksum_) return;
  fail(fmt::format("damaged somewhere between bytes {} and {} (checksum{})", ids_at_, ids_at_ + id_bytes(),
                   version_ == version_without_blocks ? "; version 1 of the format does not tell where" : ""));
}

}  // namespace quaver
