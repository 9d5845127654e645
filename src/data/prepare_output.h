// The writing half of prepare(): shards of both splits, counts for the report, and the files that make a data set.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset_folder.h"
#include "data/prepare.h"
#include "data/shard.h"
#include "data/splitter.h"
#include "data/tokenizer.h"

namespace quaver {

// "12 empty, 3 binary (a.png:1)", or "none".
std::string skipped_in_words(const PrepareReport& report);

// Unprintable bytes as \xNN, the rest as it is.
std::string readable(std::string_view bytes);

class DatasetWriter {
 public:
  // What is written is removed again, unless finished.
  DatasetWriter(const PrepareOptions& options, const Tokenizer& tokenizer);

  void add(std::string_view text, Split split);

  // Completes the shards and fills the report's counts.
  void summarize(PrepareReport& report);

  // Writes the tokenizer and dataset.json, and with it replaces the data set that was there. The report gets the
  // names that the shards have in the end.
  void finish(PrepareReport& report);

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
  DatasetFolder folder_;  // before the shards' writers, which write into it
  std::array<SplitState, 2> splits_;
  std::vector<std::int32_t> ids_;
  std::vector<std::uint64_t> token_counts_;
  std::vector<std::uint32_t> lengths_;
  std::uint64_t bytes_ = 0;
};

// The contents of dataset.json. tokenizer_file: empty for a tokenizer that needs none; replaced: files of the data set
// before, while they may still be there.
std::string dataset_json(const PrepareOptions& options, const PrepareReport& report, const Tokenizer& tokenizer,
                         const std::string& tokenizer_file, const std::set<std::string>& replaced);

}  // namespace quaver
