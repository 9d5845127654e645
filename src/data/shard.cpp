#include "data/shard.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>

#include "data/shard_layout.h"
#include "quaver/error.h"

namespace quaver {
namespace {

using namespace shard_layout;

template <class Id>
void widen(const std::byte* from, std::span<std::int32_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Id id;  // memcpy: mapped bytes are not objects of type Id
    std::memcpy(&id, from + i * sizeof(Id), sizeof(Id));
    out[i] = static_cast<std::int32_t>(id);
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
  Shard shard(path, MappedFile::open(path));
  shard.read_header();
  return shard;
}

void Shard::fail(const std::string& what) const {
  throw Error(fmt::format("shard {}: {}", path_.string(), what), "write the shard again, or copy it again");
}

template <class Value>
Value Shard::field(std::size_t offset) const {
  const std::span<const std::byte> bytes = file_.bytes();
  if (bytes.size() < offset + sizeof(Value)) fail(fmt::format("truncated in the header, at {} bytes", bytes.size()));
  Value value;
  std::memcpy(&value, bytes.data() + offset, sizeof(Value));
  return value;
}

void Shard::read_header() {
  const std::span<const std::byte> bytes = file_.bytes();
  const auto starts_with = [&](std::string_view magic) {
    return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  std::int32_t number = 0;
  if (bytes.size() >= sizeof(number)) std::memcpy(&number, bytes.data(), sizeof(number));

  if (bytes.empty()) fail("the file is empty");
  if (starts_with(quaver_magic)) return read_quaver_header();
  if (starts_with(llmq_magic)) return read_llmq_header();
  if (number == llmc_magic || number == llmc_wide_magic) return read_llmc_header();
  if (path_.extension() == ".bin") return read_bare();
  throw Error(fmt::format("{} is no token shard: it starts with none of the known headers", path_.string()),
              "make shards with `quaver data`; bare 16-bit ids must be named .bin");
}

void Shard::set_layout(std::uint64_t header_bytes, std::uint64_t tokens, int bytes_per_token) {
  info_.tokens = tokens;
  info_.bytes_per_token = bytes_per_token;
  const std::uint64_t size = file_.bytes().size();
  const std::uint64_t room = size < header_bytes ? 0 : (size - header_bytes) / static_cast<unsigned>(bytes_per_token);
  if (size < header_bytes || tokens > room) {
    fail(fmt::format("truncated: the header promises {} tokens, the file has room for {}", tokens, room));
  }
  ids_ = file_.bytes().subspan(header_bytes, tokens * static_cast<unsigned>(bytes_per_token));
}

void Shard::expect_end(std::uint64_t trailing_bytes) const {
  const auto end = static_cast<std::uint64_t>(ids_.data() + ids_.size() - file_.bytes().data());
  const std::uint64_t extra = file_.bytes().size() - end;
  if (extra != trailing_bytes) {
    fail(fmt::format("{} bytes follow the {} tokens, where {} are expected", extra, info_.tokens, trailing_bytes));
  }
}

void Shard::read_quaver_header() {
  info_.format = ShardFormat::quaver;
  const auto version = field<std::uint32_t>(version_at);
  if (version != quaver_version) {
    throw Error(
        fmt::format("shard {}: version {}, this program reads version {}", path_.string(), version, quaver_version),
        "use a newer quaver, or write the shard again");
  }
  Fnv64 hash;
  const auto stored = field<std::uint64_t>(header_checksum_at);
  hash.add(file_.bytes().first(header_checksum_at));
  if (hash.value() != stored) fail("the header is damaged (checksum)");
  const auto width = field<std::uint32_t>(width_at);
  const auto vocab = field<std::uint32_t>(vocab_at);
  if (width != 2 && width != 4) fail(fmt::format("{} bytes per token", width));
  if (vocab == 0 || vocab > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) {
    fail(fmt::format("a vocabulary of {} tokens", vocab));
  }
  info_.vocab_size = static_cast<int>(vocab);
  info_.tokenizer_hash = field<std::uint64_t>(tokenizer_at);
  set_layout(quaver_header_bytes, field<std::uint64_t>(tokens_at), static_cast<int>(width));
  expect_end(0);
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
  if (mask == 1) note_ = fmt::format("{}: its loss mask is ignored, every token counts", path_.string());
}

void Shard::read_bare() {
  info_.format = ShardFormat::bare;
  if (file_.bytes().size() % 2 != 0) fail("no known header, and an odd size: not 16-bit ids either");
  set_layout(0, file_.bytes().size() / 2, 2);
  note_ = fmt::format("{}: no known header, read as bare 16-bit ids", path_.string());
}

void Shard::read(std::uint64_t first, std::span<std::int32_t> out, int vocab_size) const {
  if (first > info_.tokens || out.size() > info_.tokens - first) {
    throw Error(fmt::format("shard {}: tokens {} to {} asked for, it has {}", path_.string(), first, first + out.size(),
                            info_.tokens),
                "read within the shard");
  }
  const std::byte* const from = ids_.data() + first * static_cast<unsigned>(info_.bytes_per_token);
  if (info_.bytes_per_token == 2) {
    widen<std::uint16_t>(from, out);
  } else {
    widen<std::uint32_t>(from, out);
  }
  // Unsigned, so that ids beyond 2^31 fail too; the position is looked for only once something is wrong.
  const auto outside = [&](std::int32_t id) {
    return static_cast<std::uint32_t>(id) >= static_cast<std::uint32_t>(vocab_size);
  };
  std::uint32_t largest = 0;
  for (const std::int32_t id : out) largest = std::max(largest, static_cast<std::uint32_t>(id));
  if (out.empty() || !outside(static_cast<std::int32_t>(largest))) return;
  const auto bad = std::find_if(out.begin(), out.end(), outside);
  throw Error(
      fmt::format("shard {}: token {} at position {} is outside the vocabulary of {}", path_.string(),
                  static_cast<std::uint32_t>(*bad), first + static_cast<std::uint64_t>(bad - out.begin()), vocab_size),
      "use the tokenizer and vocabulary that the shard was made with");
}

std::uint64_t Shard::content_hash() const {
  if (info_.format == ShardFormat::quaver) return field<std::uint64_t>(checksum_at);
  WordHash hash;
  hash.add(ids_);
  return hash.value();
}

void Shard::verify() const {
  if (info_.format == ShardFormat::quaver) {
    Fnv64 hash;
    hash.add(ids_);
    if (hash.value() != field<std::uint64_t>(checksum_at)) fail("the tokens are damaged (checksum)");
  }
  if (info_.vocab_size == 0) return;
  std::vector<std::int32_t> buffer(1 << 16);
  for (std::uint64_t first = 0; first < info_.tokens; first += buffer.size()) {
    const std::uint64_t count = std::min<std::uint64_t>(buffer.size(), info_.tokens - first);
    read(first, std::span(buffer).first(count), info_.vocab_size);
  }
}

}  // namespace quaver
