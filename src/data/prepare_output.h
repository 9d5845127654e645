// The writing half of prepare(): shards of both splits, counts for the report, and the files that make a data set.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare.h"
#include "data/shard.h"
#include "data/tokenizer.h"

namespace quaver {

enum class Split : std::uint8_t { train, valid };

// Error where the output folder holds a data set, or shards of an unfinished one, and may not be overwritten.
void refuse_existing(const PrepareOptions& options);

// "12 empty, 3 binary (a.png:1)", or "none".
std::string skipped_in_words(const PrepareReport& report);

// Unprintable bytes as \xNN, the rest as it is.
std::string readable(std::string_view bytes);

class DatasetWriter {
 public:
  // Clears the output folder of an older data set if the options allow it.
  DatasetWriter(const PrepareOptions& options, const Tokenizer& tokenizer);
  ~DatasetWriter();  // removes what was written, unless finished
  DatasetWriter(const DatasetWriter&) = delete;
  DatasetWriter& operator=(const DatasetWriter&) = delete;

  void add(std::string_view text, Split split);

  // Completes the shards and fills the report's counts.
  void summarize(PrepareReport& report);

  // Writes the tokenizer and dataset.json.
  void finish(const PrepareReport& report);

 private:
  struct SplitState {
    std::string prefix;
    std::unique_ptr<ShardWriter> writer;
    std::vector<WrittenShard> shards;
    std::uint64_t documents = 0;
    std::uint64_t tokens = 0;
  };

  void append(SplitState& split, std::span<const std::int32_t> ids);
  void open_shard(SplitState& split);
  void close_shard(SplitState& split);

  const PrepareOptions& options_;
  const Tokenizer& tokenizer_;
  std::array<SplitState, 2> splits_;
  std::vector<std::filesystem::path> written_;
  std::vector<std::int32_t> ids_;
  std::vector<std::uint64_t> token_counts_;
  std::vector<std::uint32_t> lengths_;
  std::uint64_t bytes_ = 0;
  bool finished_ = false;
};

// The contents of dataset.json.
std::string dataset_json(const PrepareOptions& options, const PrepareReport& report, const Tokenizer& tokenizer);

}  // namespace quaver
