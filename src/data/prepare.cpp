#include "data/prepare.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <unordered_set>

#include "data/bpe.h"
#include "data/dataset_folder.h"
#include "data/hash.h"
#include "data/prepare_output.h"
#include "data/splitter.h"
#include "data/tokenizer.h"
#include "io/utf8.h"
#include "quaver/error.h"

namespace quaver {
namespace {

constexpr std::uint64_t progress_every_bytes = 1 << 20;

class DocumentFilter {
 public:
  explicit DocumentFilter(const PrepareOptions& options) : options_(options) {}

  std::optional<SkipReason> reason_to_skip(std::string_view text, std::uint64_t hash) {
    if (text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos) return SkipReason::empty;
    if (text.size() < options_.min_bytes) return SkipReason::too_short;
    if (text.size() > options_.max_bytes) return SkipReason::too_long;
    if (text.find('\0') != std::string_view::npos) return SkipReason::binary;
    if (options_.invalid_text == InvalidText::skip && find_invalid_utf8(text) != std::string_view::npos) {
      return SkipReason::invalid_utf8;
    }
    if (options_.duplicates == Duplicates::skip && !seen_.insert(hash).second) return SkipReason::duplicate;
    return std::nullopt;
  }

 private:
  const PrepareOptions& options_;
  std::unordered_set<std::uint64_t> seen_;
};

// One walk over all documents. The same for the scan and for the writing, so both see the same ones.
class Walk {
 public:
  Walk(const PrepareOptions& options, const std::vector<InputFile>& files, std::string_view stage,
       const PrepareCallback& progress)
      : options_(options), files_(files), stage_(stage), progress_(progress), filter_(options) {
    for (const InputFile& file : files) total_bytes_ += file.bytes;
  }

  template <class Take, class Skip>
  void run(const Take& take, const Skip& skip) {
    for (const InputFile& file : files_) {
      const bool has_pieces = options_.reading.separator.empty() && !is_json_lines(file.path);
      std::optional<std::uint64_t> file_hash;  // that of its first piece
      const auto visit = [&](const Document& document) {
        const std::uint64_t hash = mix_bits(hash_of(document.text));
        if (const std::optional<SkipReason> reason = filter_.reason_to_skip(document.text, hash)) {
          skip(*reason, std::uint64_t{1}, fmt::format("{}:{}", document.source, document.line));
        } else {
          if (!file_hash || !has_pieces) file_hash = hash;
          take(Splitter::Document{document.text, hash, *file_hash});
        }
        report(finished_bytes_ + document.end_offset);
      };
      const SkippedLines malformed = read_documents(file.path, options_.reading, visit);
      if (malformed.count > 0) {
        skip(SkipReason::malformed, malformed.count, fmt::format("{}:{}", file.path.string(), malformed.first));
      }
      finished_bytes_ += file.bytes;
    }
    if (progress_) progress_({stage_, total_bytes_, total_bytes_});
  }

 private:
  void report(std::uint64_t done) {
    if (!progress_ || done < reported_ + progress_every_bytes) return;
    reported_ = done;
    progress_({stage_, std::min(done, total_bytes_), total_bytes_});
  }

  const PrepareOptions& options_;
  const std::vector<InputFile>& files_;
  std::string_view stage_;
  const PrepareCallback& progress_;
  DocumentFilter filter_;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t finished_bytes_ = 0;
  std::uint64_t reported_ = 0;
};

// The size in "bpe:<size>", or none where the tokenizer is not to be trained.
std::optional<int> trained_vocab(const std::string& spec) {
  constexpr std::string_view prefix = "bpe:";
  if (!spec.starts_with(prefix)) return std::nullopt;
  int size = 0;
  const char* const end = spec.data() + spec.size();
  const auto [stopped, error] = std::from_chars(spec.data() + prefix.size(), end, size);
  if (error != std::errc() || stopped != end) {
    throw Error(fmt::format("the tokenizer \"{}\" has no size", spec), "write it as bpe:4096");
  }
  return size;
}

void check(const PrepareOptions& options) {
  if (options.output.empty()) throw Error("no output folder", "name one");
  if (options.shard_tokens < 2) {
    throw Error(fmt::format("shards of {} tokens", options.shard_tokens), "use shards of a million tokens or more");
  }
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1)) {
    throw Error(fmt::format("a validation fraction of {}", options.valid_fraction), "choose from 0 to below 1");
  }
  if (options.min_bytes > options.max_bytes) {
    throw Error(fmt::format("documents of at least {} and at most {} bytes", options.min_bytes, options.max_bytes),
                "make the least smaller than the most");
  }
}

Splitter scan_documents(const PrepareOptions& options, const std::vector<InputFile>& files, BpeTrainer* trainer,
                        const PrepareCallback& progress) {
  std::uint64_t total_bytes = 0;
  for (const InputFile& file : files) total_bytes += file.bytes;
  const double sampled =
      static_cast<double>(options.bpe_sample_bytes) / static_cast<double>(std::max<std::uint64_t>(total_bytes, 1));
  Splitter splitter(options.valid_fraction);
  const auto take = [&](const Splitter::Document& document) {
    splitter.count(document);
    // Mixed once more: the sample must not lean on the documents that the split sets apart.
    if (trainer != nullptr && unit_interval(mix_bits(document.hash)) < sampled) trainer->add(document.text);
  };
  Walk(options, files, "scan", progress).run(take, [](SkipReason, std::uint64_t, const std::string&) {});
  splitter.decide();
  return splitter;
}

std::unique_ptr<Tokenizer> learn_tokenizer(const BpeTrainer& trainer, int vocab_size, const PrepareCallback& progress) {
  return trainer.train(vocab_size, [&](int done, int total) {
    if (progress && (done % 64 == 0 || done == total)) {
      progress({"learn", static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total)});
    }
  });
}

void add_notes(const PrepareOptions& options, const std::vector<InputFile>& files, const Tokenizer& tokenizer,
               const Splitter& splitter, PrepareReport& report) {
  if (const std::optional<int> wanted = trained_vocab(options.tokenizer); wanted && *wanted > tokenizer.vocab_size()) {
    report.notes.push_back(fmt::format("the text has enough repeated pairs for a vocabulary of {}, not {}",
                                       tokenizer.vocab_size(), *wanted));
  }
  if (options.valid_fraction > 0 && report.valid_documents == 0) {
    report.notes.emplace_back("too little text: nothing is left for validation");
  } else if (splitter.splits_files()) {
    const double percent = 100 * static_cast<double>(report.valid_tokens) / static_cast<double>(report.tokens());
    report.notes.push_back(
        files.size() == 1 && !is_json_lines(files.front().path)
            ? fmt::format("one file: its last {:.1f}% are for validation", percent)
            : fmt::format("few documents: {:.1f}% of the text are for validation, one document in parts", percent));
  }
  std::uint64_t skipped = 0;
  for (const SkippedDocuments& reason : report.skipped) skipped += reason.count;
  if (skipped > report.documents()) {
    report.notes.push_back(
        fmt::format("more documents were left out ({}) than taken ({})", skipped, report.documents()));
  }
}

}  // namespace

PrepareReport prepare(const PrepareOptions& options, const PrepareCallback& progress) {
  check(options);
  const std::optional<int> vocab_to_train = trained_vocab(options.tokenizer);
  Inputs inputs = list_inputs({options.inputs, options.include, options.exclude, options.output});
  const std::vector<InputFile>& files = inputs.files;
  if (options.existing == ExistingDataset::refuse) refuse_existing_dataset(options.output);
  std::unique_ptr<Tokenizer> tokenizer;
  if (!vocab_to_train) tokenizer = load_tokenizer(options.tokenizer);  // before hours of reading, if it is not there

  BpeTrainer trainer;
  Splitter splitter(options.valid_fraction);
  if (vocab_to_train || options.valid_fraction > 0) {
    splitter = scan_documents(options, files, vocab_to_train ? &trainer : nullptr, progress);
  }
  if (vocab_to_train) tokenizer = learn_tokenizer(trainer, *vocab_to_train, progress);

  PrepareReport report;
  report.files = files.size();
  report.notes = std::move(inputs.notes);
  DatasetWriter writer(options, *tokenizer);
  const auto take = [&](const Splitter::Document& document) {
    const std::size_t place = splitter.training_bytes(document);
    if (place > 0) writer.add(document.text.substr(0, place), Split::train);
    if (place < document.text.size()) writer.add(document.text.substr(place), Split::valid);
  };
  const auto skip = [&](SkipReason reason, std::uint64_t count, const std::string& where) {
    SkippedDocuments& skipped = report.skipped[static_cast<std::size_t>(reason)];
    if (skipped.count == 0) skipped.example = where;
    skipped.count += count;
  };
  Walk(options, files, "write", progress).run(take, skip);
  writer.summarize(report);
  if (report.documents() == 0) {
    throw Error(fmt::format("no document left of {} files: {}", files.size(), skipped_in_words(report)),
                "check that the input is text");
  }
  add_notes(options, files, *tokenizer, splitter, report);
  writer.finish(report);
  return report;
}

}  // namespace quaver
