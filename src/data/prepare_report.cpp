#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "data/dataset.h"
#include "data/prepare.h"
#include "data/prepare_output.h"
#include "io/utf8.h"

namespace quaver {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t bar_width = 40;
constexpr std::size_t shards_listed = 8;

// Paths are bytes and need not be UTF-8, which JSON requires.
std::string dump(const ordered_json& value) {
  return value.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

ordered_json shards_json(const std::vector<WrittenShard>& shards) {
  ordered_json list = ordered_json::array();
  for (const WrittenShard& shard : shards) list.push_back({{"file", shard.file}, {"tokens", shard.tokens}});
  return list;
}

ordered_json skipped_json(const PrepareReport& report) {
  ordered_json skipped = ordered_json::object();
  for (std::size_t i = 0; i < skip_reason_count; ++i) {
    if (report.skipped[i].count == 0) continue;
    skipped[std::string(name_of(static_cast<SkipReason>(i)))] = {{"count", report.skipped[i].count},
                                                                 {"example", report.skipped[i].example}};
  }
  return skipped;
}

ordered_json report_json(const PrepareReport& report) {
  ordered_json frequent = ordered_json::array();
  for (const TokenFrequency& token : report.frequent) {
    frequent.push_back({{"id", token.id}, {"text", token.text}, {"count", token.count}});
  }
  const LengthDistribution& lengths = report.lengths;
  ordered_json json;
  json["files"] = report.files;
  json["documents"] = {{"train", report.train_documents}, {"valid", report.valid_documents}};
  json["skipped"] = skipped_json(report);
  json["bytes"] = report.bytes;
  json["tokens"] = {{"train", report.train_tokens}, {"valid", report.valid_tokens}};
  json["bytes_per_token"] = report.bytes_per_token();
  json["document_tokens"] = {{"min", lengths.min}, {"median", lengths.median}, {"p90", lengths.p90},
                             {"max", lengths.max}, {"mean", lengths.mean},     {"log2_histogram", lengths.histogram}};
  json["shards"] = {{"train", shards_json(report.train_shards)}, {"valid", shards_json(report.valid_shards)}};
  json["shard_balance"] = report.shard_balance();
  json["tokenizer"] = {{"name", report.tokenizer},
                       {"vocab_size", report.vocab_size},
                       {"tokens_used", report.tokens_used},
                       {"hash", fmt::format("{:016x}", report.tokenizer_hash)}};
  json["frequent_tokens"] = std::move(frequent);
  json["notes"] = report.notes;
  return json;
}

ordered_json options_json(const PrepareOptions& options) {
  ordered_json inputs = ordered_json::array();
  for (const auto& input : options.inputs) inputs.push_back(input.string());
  ordered_json json;
  json["inputs"] = std::move(inputs);
  json["include"] = options.include;
  json["exclude"] = options.exclude;
  json["text_field"] = options.reading.text_field;
  json["separator"] = options.reading.separator;
  json["piece_bytes"] = options.reading.piece_bytes;
  json["malformed_lines"] = options.reading.malformed == MalformedLine::stop ? "stop" : "skip";
  json["tokenizer"] = options.tokenizer;
  json["shard_format"] = name_of(options.format);
  json["shard_tokens"] = options.shard_tokens;
  json["valid_fraction"] = options.valid_fraction;
  json["min_bytes"] = options.min_bytes;
  json["max_bytes"] = options.max_bytes;
  json["invalid_text"] = options.invalid_text == InvalidText::skip ? "skip" : "keep";
  json["duplicates"] = options.duplicates == Duplicates::skip ? "skip" : "keep";
  json["bpe_sample_bytes"] = options.bpe_sample_bytes;
  return json;
}

void append_histogram(const LengthDistribution& lengths, std::string& text) {
  const std::uint64_t most =
      lengths.histogram.empty() ? 0 : *std::max_element(lengths.histogram.begin(), lengths.histogram.end());
  for (std::size_t i = 0; i < lengths.histogram.size(); ++i) {
    const std::uint64_t count = lengths.histogram[i];
    if (count == 0) continue;
    const auto width = static_cast<std::size_t>(static_cast<double>(count) / static_cast<double>(most) * bar_width);
    text += fmt::format("  {:>10} – {:<10} {:>9}  {}\n", std::uint64_t{1} << i, (std::uint64_t{2} << i) - 1, count,
                        std::string(std::max<std::size_t>(width, 1), '#'));
  }
}

void append_shards(std::string_view split, const std::vector<WrittenShard>& shards, std::string& text) {
  for (std::size_t i = 0; i < std::min(shards.size(), shards_listed); ++i) {
    text += fmt::format("  {:<16} {:>12} tokens\n", shards[i].file, shards[i].tokens);
  }
  if (shards.size() > shards_listed) text += fmt::format("  … {} {} shards in all\n", shards.size(), split);
}

}  // namespace

std::string_view name_of(SkipReason reason) {
  constexpr std::string_view names[skip_reason_count] = {"empty",         "too short", "too long", "binary",
                                                         "invalid UTF-8", "duplicate", "malformed"};
  return names[static_cast<std::size_t>(reason)];
}

double PrepareReport::bytes_per_token() const {
  return tokens() == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(tokens());
}

double PrepareReport::shard_balance() const {
  if (train_shards.empty()) return 1;
  const auto [least, most] =
      std::minmax_element(train_shards.begin(), train_shards.end(),
                          [](const WrittenShard& a, const WrittenShard& b) { return a.tokens < b.tokens; });
  return static_cast<double>(least->tokens) / static_cast<double>(most->tokens);
}

std::string readable(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size();) {
    const CodePoint point = decode_utf8(bytes, i);
    const auto length = static_cast<std::size_t>(point.bytes);
    const bool control = point.value < 0x20 || (point.value >= 0x7F && point.value < 0xA0);
    if (bytes[i] == '\n') {
      text += "\\n";
    } else if (bytes[i] == '\t') {
      text += "\\t";
    } else if (point.valid && !control) {
      text += bytes.substr(i, length);
    } else {
      for (const char c : bytes.substr(i, length)) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    i += length;
  }
  return text;
}

std::string skipped_in_words(const PrepareReport& report) {
  std::string words;
  for (std::size_t i = 0; i < skip_reason_count; ++i) {
    const SkippedDocuments& skipped = report.skipped[i];
    if (skipped.count == 0) continue;
    words += fmt::format("{}{} {} ({})", words.empty() ? "" : ", ", skipped.count, name_of(static_cast<SkipReason>(i)),
                         skipped.example);
  }
  return words.empty() ? "none" : words;
}

std::string to_text(const PrepareReport& report) {
  std::string text;
  text += fmt::format("documents     {} of {} files: {} train, {} valid\n", report.documents(), report.files,
                      report.train_documents, report.valid_documents);
  text += fmt::format("left out      {}\n", skipped_in_words(report));
  text += fmt::format("bytes         {}\n", report.bytes);
  text += fmt::format("tokens        {}: {} train, {} valid ({:.2f}%)\n", report.tokens(), report.train_tokens,
                      report.valid_tokens, percent(report.valid_tokens, report.tokens()));
  text += fmt::format("tokenizer     {}, hash {:016x}, {} of {} tokens occur\n", report.tokenizer,
                      report.tokenizer_hash, report.tokens_used, report.vocab_size);
  text += fmt::format("compression   {:.3f} bytes a token\n", report.bytes_per_token());
  const LengthDistribution& lengths = report.lengths;
  text += fmt::format("lengths       min {}, median {}, mean {:.1f}, p90 {}, max {} tokens a document\n", lengths.min,
                      lengths.median, lengths.mean, lengths.p90, lengths.max);
  append_histogram(lengths, text);
  text += fmt::format("shards        {} train, {} valid; smallest / largest {:.3f}\n", report.train_shards.size(),
                      report.valid_shards.size(), report.shard_balance());
  append_shards("train", report.train_shards, text);
  append_shards("valid", report.valid_shards, text);
  text += "frequent      ";
  for (const TokenFrequency& token : report.frequent) {
    text += fmt::format("{}\"{}\" {:.2f}%", &token == &report.frequent.front() ? "" : ", ", token.text,
                        percent(token.count, report.tokens()));
  }
  text += '\n';
  for (const std::string& note : report.notes) text += fmt::format("note          {}\n", note);
  return text;
}

std::string to_json(const PrepareReport& report) { return dump(report_json(report)); }

std::string dataset_json(const PrepareOptions& options, const PrepareReport& report, const Tokenizer& tokenizer,
                         const std::string& tokenizer_file, const std::set<std::string>& replaced) {
  ordered_json json;
  json["format"] = dataset_format_name;
  json["version"] = dataset_version;
  json["tokenizer"] = {{"name", tokenizer.name()},
                       {"vocab_size", tokenizer.vocab_size()},
                       {"hash", fmt::format("{:016x}", tokenizer.hash())}};
  if (!tokenizer_file.empty()) json["tokenizer"]["file"] = tokenizer_file;
  json["train"] = shards_json(report.train_shards);
  json["valid"] = shards_json(report.valid_shards);
  if (!replaced.empty()) json["replaces"] = replaced;
  json["options"] = options_json(options);
  json["report"] = report_json(report);
  return dump(json);
}

}  // namespace quaver
