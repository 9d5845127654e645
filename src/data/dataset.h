// A prepared data set: a folder with dataset.json, shards, and a tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace quaver {

inline constexpr const char* dataset_file_name = "dataset.json";
inline constexpr const char* tokenizer_file_name = "tokenizer.json";
inline constexpr const char* dataset_format_name = "quaver dataset";
inline constexpr int dataset_version = 1;
inline constexpr std::uint64_t max_dataset_file_bytes = 64 << 20;

struct Dataset {
  std::filesystem::path folder;
  std::vector<std::filesystem::path> train;  // shards, in order
  std::vector<std::filesystem::path> valid;  // may be empty
  std::uint64_t train_tokens = 0;
  std::uint64_t valid_tokens = 0;
  std::shared_ptr<const Tokenizer> tokenizer;
  int vocab_size = 0;
};

// Error where a shard is missing, has another number of tokens than recorded, or was made with another tokenizer.
Dataset open_dataset(const std::filesystem::path& folder);

}  // namespace quaver
