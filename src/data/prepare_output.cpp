#include "data/prepare_output.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <numeric>

#include "data/dataset.h"
#include "io/file_io.h"

namespace quaver {
namespace {

constexpr std::size_t frequent_tokens_listed = 20;

LengthDistribution distribution_of(std::vector<std::uint32_t> lengths) {
  LengthDistribution result;
  if (lengths.empty()) return result;
  std::sort(lengths.begin(), lengths.end());
  const auto quantile = [&](std::size_t percent) { return lengths[(lengths.size() - 1) * percent / 100]; };
  result.min = lengths.front();
  result.median = quantile(50);
  result.p90 = quantile(90);
  result.max = lengths.back();
  result.mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / static_cast<double>(lengths.size());
  for (const std::uint32_t length : lengths) {
    const auto bucket = static_cast<std::size_t>(std::bit_width(length) - 1);
    if (bucket >= result.histogram.size()) result.histogram.resize(bucket + 1);
    ++result.histogram[bucket];
  }
  return result;
}

std::vector<TokenFrequency> most_frequent(const std::vector<std::uint64_t>& counts, const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids(counts.size());
  std::iota(ids.begin(), ids.end(), 0);
  const std::size_t listed = std::min(frequent_tokens_listed, ids.size());
  const auto count = [&](std::int32_t id) { return counts[static_cast<std::size_t>(id)]; };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(listed), ids.end(),
                    [&](std::int32_t a, std::int32_t b) { return count(a) != count(b) ? count(a) > count(b) : a < b; });
  std::vector<TokenFrequency> result;
  for (std::size_t i = 0; i < listed && count(ids[i]) > 0; ++i) {
    result.push_back({ids[i], readable(tokenizer.text_of(ids[i])), count(ids[i])});
  }
  return result;
}

}  // namespace

DatasetWriter::DatasetWriter(const PrepareOptions& options, const Tokenizer& tokenizer)
    : options_(options), tokenizer_(tokenizer), folder_(options.output, options.existing) {
  splits_[0].prefix = "train";
  splits_[1].prefix = "valid";
  token_counts_.resize(static_cast<std::size_t>(tokenizer.vocab_size()));
}

void DatasetWriter::add(std::string_view text, Split split) {
  ids_.assign(tokenizer_.prefix().begin(), tokenizer_.prefix().end());
  tokenizer_.encode(text, ids_);
  ids_.push_back(tokenizer_.end_of_text());
  for (const std::int32_t id : ids_) ++token_counts_[static_cast<std::size_t>(id)];
  lengths_.push_back(static_cast<std::uint32_t>(ids_.size()));
  bytes_ += text.size();
  SplitState& state = splits_[static_cast<std::size_t>(split)];
  ++state.documents;
  append(state, ids_);
}

// Shards are filled to the brim: a document may go on in the next one, and all but the last are of equal size.
void DatasetWriter::append(SplitState& split, std::span<const std::int32_t> ids) {
  while (!ids.empty()) {
    if (!split.writer) open_shard(split);
    const std::uint64_t room = options_.shard_tokens - split.writer->tokens();
    const std::size_t count = std::min<std::uint64_t>(room, ids.size());
    split.writer->append(ids.first(count));
    split.tokens += count;
    ids = ids.subspan(count);
    if (split.writer->tokens() == options_.shard_tokens) close_shard(split);
  }
}

void DatasetWriter::open_shard(SplitState& split) {
  const char* const extension = options_.format == ShardFormat::llmc ? "bin" : "qv";
  const std::string name = fmt::format("{}-{:05}.{}", split.prefix, split.shards.size(), extension);
  split.shards.push_back({name, 0});
  split.writer =
      std::make_unique<ShardWriter>(folder_.stage(name), options_.format, tokenizer_.vocab_size(), tokenizer_.hash());
}

void DatasetWriter::close_shard(SplitState& split) {
  if (!split.writer) return;
  split.writer->finish();
  split.shards.back().tokens = split.writer->tokens();
  split.writer.reset();
}

void DatasetWriter::summarize(PrepareReport& report) {
  for (SplitState& split : splits_) close_shard(split);
  report.bytes = bytes_;
  report.train_documents = splits_[0].documents;
  report.valid_documents = splits_[1].documents;
  report.train_tokens = splits_[0].tokens;
  report.valid_tokens = splits_[1].tokens;
  report.train_shards = splits_[0].shards;
  report.valid_shards = splits_[1].shards;
  report.lengths = distribution_of(std::move(lengths_));
  report.frequent = most_frequent(token_counts_, tokenizer_);
  report.tokens_used = static_cast<int>(
      std::count_if(token_counts_.begin(), token_counts_.end(), [](std::uint64_t count) { return count > 0; }));
  report.tokenizer = tokenizer_.name();
  report.vocab_size = tokenizer_.vocab_size();
  report.tokenizer_hash = tokenizer_.hash();
}

void DatasetWriter::finish(PrepareReport& report) {
  const std::string json = tokenizer_.to_json();
  if (!json.empty()) write_file_atomically(folder_.stage(tokenizer_file_name), json);
  folder_.commit([&](const DatasetFolder::Files& files) {
    report.train_shards = splits_[0].shards;
    report.valid_shards = splits_[1].shards;
    for (auto* shards : {&report.train_shards, &report.valid_shards}) {
      for (WrittenShard& shard : *shards) shard.file = files.name_of(shard.file);
    }
    return dataset_json(options_, report, tokenizer_, json.empty() ? "" : files.name_of(tokenizer_file_name),
                        files.replaced);
  });
}

}  // namespace quaver
