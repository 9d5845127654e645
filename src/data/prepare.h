// Text to a data set: reads documents, leaves out what would harm, trains or loads a tokenizer, and writes shards for
// training and validation with a report of what is in them. Equal input and options give equal files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/documents.h"
#include "data/shard.h"

namespace quaver {

enum class InvalidText : std::uint8_t { skip, keep };
enum class Duplicates : std::uint8_t { skip, keep };
enum class ExistingDataset : std::uint8_t { refuse, overwrite };

struct PrepareOptions {
  std::vector<std::filesystem::path> inputs;  // files (.jsonl, .ndjson or plain text) and folders
  std::vector<std::string> include;           // globs for what a folder holds; empty: everything
  std::vector<std::string> exclude;
  TextReading reading;

  std::filesystem::path output;              // a folder; made if need be
  std::string tokenizer = "bytes";           // "bytes", "bpe:4096" to train one of that size, or a tokenizer.json
  ShardFormat format = ShardFormat::quaver;  // or llmc
  std::uint64_t shard_tokens = 100'000'000;
  double valid_fraction = 0.01;  // of the documents, chosen by hash; where they are few, of the text: see splitter.h
  std::uint64_t min_bytes = 1;   // of a document
  std::uint64_t max_bytes = 1 << 30;
  InvalidText invalid_text = InvalidText::skip;
  Duplicates duplicates = Duplicates::skip;
  ExistingDataset existing = ExistingDataset::refuse;
  std::uint64_t bpe_sample_bytes = 64 << 20;  // how much text, chosen by hash, a BPE tokenizer learns from
};

// Why a document was left out.
enum class SkipReason : std::uint8_t { empty, too_short, too_long, binary, invalid_utf8, duplicate, malformed };
inline constexpr int skip_reason_count = 7;
std::string_view name_of(SkipReason reason);

struct SkippedDocuments {
  std::uint64_t count = 0;
  std::string example;  // "path:line" of the first
};

struct LengthDistribution {  // of documents, in tokens with end-of-text
  std::uint64_t min = 0;
  std::uint64_t median = 0;
  std::uint64_t p90 = 0;
  std::uint64_t max = 0;
  double mean = 0;
  std::vector<std::uint64_t> histogram;  // [i]: lengths from 2^i to 2^(i+1) − 1
};

struct WrittenShard {
  std::string file;  // in the output folder
  std::uint64_t tokens;
};

struct TokenFrequency {
  std::int32_t id;
  std::string text;  // readable: unprintable bytes as \xNN
  std::uint64_t count;
};

struct PrepareReport {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;  // of the documents taken
  std::uint64_t train_documents = 0;
  std::uint64_t valid_documents = 0;
  std::uint64_t train_tokens = 0;
  std::uint64_t valid_tokens = 0;
  SkippedDocuments skipped[skip_reason_count];  // by SkipReason
  LengthDistribution lengths;
  std::vector<WrittenShard> train_shards;
  std::vector<WrittenShard> valid_shards;
  std::vector<TokenFrequency> frequent;  // the twenty most frequent tokens
  int tokens_used = 0;                   // how many of the vocabulary occur
  std::string tokenizer;
  int vocab_size = 0;
  std::uint64_t tokenizer_hash = 0;
  std::vector<std::string> notes;  // what to know before training on this

  std::uint64_t documents() const { return train_documents + valid_documents; }
  std::uint64_t tokens() const { return train_tokens + valid_tokens; }
  double bytes_per_token() const;
  double shard_balance() const;  // the smallest training shard over the largest
};

std::string to_text(const PrepareReport& report);
std::string to_json(const PrepareReport& report);

struct PrepareProgress {
  std::string_view stage;  // "scan", "learn", "write"
  std::uint64_t done;
  std::uint64_t total;
};
using PrepareCallback = std::function<void(const PrepareProgress&)>;

// Writes train-00000.qv …, valid-00000.qv …, tokenizer.json where the tokenizer needs one, and dataset.json last: a
// folder with a dataset.json is complete. On an Error the files already written are removed. A data set that is
// overwritten stays whole until the new one is, so there must be room for both; see dataset_folder.h.
PrepareReport prepare(const PrepareOptions& options, const PrepareCallback& progress = {});

}  // namespace quaver
