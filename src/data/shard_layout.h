// Where things are in the headers of shard files; shared by the reader and the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quaver::shard_layout {

inline constexpr std::string_view quaver_magic = "QVSHARD1";
inline constexpr std::uint32_t quaver_version = 2;
inline constexpr std::uint32_t version_without_blocks = 1;
inline constexpr std::size_t version_at = 8;
inline constexpr std::size_t width_at = 12;
inline constexpr std::size_t tokens_at = 16;
inline constexpr std::size_t tokenizer_at = 24;
inline constexpr std::size_t vocab_at = 32;
inline constexpr std::size_t checksum_at = 40;
inline constexpr std::size_t block_bytes_at = 48;
inline constexpr std::size_t table_checksum_at = 52;
inline constexpr std::size_t header_checksum_at = 248;
inline constexpr std::size_t quaver_header_bytes = 256;
inline constexpr std::size_t block_bytes = 65536;  // small, so that damage is located closely

constexpr std::uint64_t block_count(std::uint64_t id_bytes) { return (id_bytes + block_bytes - 1) / block_bytes; }

// llm.c and LLM.Q: a header of 256 32-bit integers.
inline constexpr std::size_t int_header_bytes = 1024;
inline constexpr std::int32_t llmc_magic = 20240520;  // 16-bit ids
inline constexpr std::int32_t llmc_version = 1;
inline constexpr std::int32_t llmc_wide_magic = 20240801;  // 32-bit ids
inline constexpr std::int32_t llmc_wide_version = 7;
inline constexpr std::string_view llmq_magic = "BIN.TOK\n";

}  // namespace quaver::shard_layout
