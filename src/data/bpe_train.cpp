#include <algorithm>
#include <fmt/format.h>
#include <queue>

#include "data/bpe.h"
#include "quaver/error.h"

namespace quaver {
namespace {

// Longer pieces are base64, separators and the like: they teach nothing and would be rescanned at every merge.
constexpr std::size_t max_training_word_bytes = 128;
constexpr int byte_count = 256;
constexpr int max_vocab_size = 1 << 22;

using PairKey = std::uint64_t;

PairKey key_of(std::int32_t left, std::int32_t right) {
  return static_cast<PairKey>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

struct Word {
  std::vector<std::int32_t> ids;
  std::int64_t count;
};

struct Pair {
  std::int64_t count = 0;
  std::vector<std::uint32_t> words;  // those that held it at some time; a superset of those that do now
};

struct PairCount {
  std::int64_t count;
  PairKey key;
  bool operator<(const PairCount& other) const { return count != other.count ? count < other.count : key > other.key; }
};

// Pair counts over all words, kept up to date while merges are applied. The queue is corrected lazily: counts of old
// pairs only fall, so an entry that is too high is put back with its true count when it comes up.
class PairTable {
 public:
  explicit PairTable(std::vector<Word> words) : words_(std::move(words)) {
    for (std::uint32_t i = 0; i < words_.size(); ++i) count_pairs(i, any_pair);
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
  }

  // The most frequent pair, or count 0 where none is left.
  PairCount most_frequent() {
    while (!queue_.empty()) {
      const PairCount top = queue_.top();
      queue_.pop();
      const std::int64_t count = pairs_[top.key].count;
      if (count == top.count) return top;
      if (count > 0) queue_.push({count, top.key});
    }
    return {0, 0};
  }

  void merge(PairKey key, std::int32_t result) {
    const auto left = static_cast<std::int32_t>(key >> 32);
    const auto right = static_cast<std::int32_t>(key & 0xFFFFFFFF);
    const std::vector<std::uint32_t> affected = std::move(pairs_[key].words);
    for (const std::uint32_t index : affected) {
      std::vector<std::int32_t>& ids = words_[index].ids;
      if (!contains(ids, left, right)) continue;
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        pairs_[key_of(ids[i], ids[i + 1])].count -= words_[index].count;
      }
      replace(ids, left, right, result);
      count_pairs(index, result);
    }
    pairs_.erase(key);
    for (const PairKey fresh : fresh_) queue_.push({pairs_[fresh].count, fresh});
    fresh_.clear();
  }

 private:
  static constexpr std::int32_t any_pair = -1;

  static bool contains(const std::vector<std::int32_t>& ids, std::int32_t left, std::int32_t right) {
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      if (ids[i] == left && ids[i + 1] == right) return true;
    }
    return false;
  }

  static void replace(std::vector<std::int32_t>& ids, std::int32_t left, std::int32_t right, std::int32_t result) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ids.size(); ++kept) {
      const bool match = i + 1 < ids.size() && ids[i] == left && ids[i + 1] == right;
      ids[kept] = match ? result : ids[i];
      i += match ? 2 : 1;
    }
    ids.resize(kept);
  }

  // Adds the word's pairs; those with `fresh_id` in them are new to it and remember the word.
  void count_pairs(std::uint32_t index, std::int32_t fresh_id) {
    const Word& word = words_[index];
    for (std::size_t i = 0; i + 1 < word.ids.size(); ++i) {
      const PairKey key = key_of(word.ids[i], word.ids[i + 1]);
      Pair& pair = pairs_[key];
      const bool first_seen = pair.words.empty();
      pair.count += word.count;
      if (fresh_id != any_pair && word.ids[i] != fresh_id && word.ids[i + 1] != fresh_id) continue;
      if (first_seen || pair.words.back() != index) pair.words.push_back(index);
      if (first_seen && fresh_id != any_pair) fresh_.push_back(key);
    }
  }

  std::vector<Word> words_;
  std::unordered_map<PairKey, Pair> pairs_;
  std::priority_queue<PairCount> queue_;
  std::vector<PairKey> fresh_;  // pairs that the merge in progress created
};

BpeDefinition bytes_only(SplitPattern pattern) {
  BpeDefinition definition;
  definition.splits = {pattern};
  for (int byte = 0; byte < byte_count; ++byte) definition.tokens.emplace_back(1, static_cast<char>(byte));
  return definition;
}

}  // namespace

void BpeTrainer::add(std::string_view text) {
  for_each_piece(pattern_, text, [&](std::string_view piece) {
    if (piece.size() < 2 || piece.size() > max_training_word_bytes) return;
    const auto found = words_.find(piece);
    if (found != words_.end()) {
      ++found->second;
    } else {
      words_.emplace(piece, 1);
    }
  });
}

std::unique_ptr<BpeTokenizer> BpeTrainer::train(int vocab_size, const Progress& progress) const {
  if (vocab_size <= byte_count || vocab_size > max_vocab_size) {
    throw Error(fmt::format("a BPE vocabulary of {} tokens", vocab_size),
                fmt::format("choose from {} (the bytes and end-of-text) to {}", byte_count + 1, max_vocab_size));
  }
  std::vector<Word> words;
  words.reserve(words_.size());
  for (const auto& [text, count] : words_) {
    Word word{{}, count};
    for (const char c : text) word.ids.push_back(static_cast<unsigned char>(c));
    words.push_back(std::move(word));
  }
  PairTable table(std::move(words));
  BpeDefinition definition = bytes_only(pattern_);
  const int wanted = vocab_size - byte_count - 1;
  for (int done = 0; done < wanted; ++done) {
    const PairCount best = table.most_frequent();
    if (best.count < 2) break;
    const auto left = static_cast<std::int32_t>(best.key >> 32);
    const auto right = static_cast<std::int32_t>(best.key & 0xFFFFFFFF);
    const auto result = static_cast<std::int32_t>(definition.tokens.size());
    definition.tokens.push_back(definition.tokens[static_cast<std::size_t>(left)] +
                                definition.tokens[static_cast<std::size_t>(right)]);
    definition.merges.push_back({left, right, result});
    table.merge(best.key, result);
    if (progress) progress(done + 1, wanted);
  }
  definition.end_of_text = static_cast<std::int32_t>(definition.tokens.size());
  definition.in_model.assign(definition.tokens.size(), true);
  definition.tokens.emplace_back(end_of_text_name);
  definition.in_model.push_back(false);
  definition.added.push_back({.id = definition.end_of_text, .content = std::string(end_of_text_name)});
  return std::make_unique<BpeTokenizer>(std::move(definition));
}

std::unique_ptr<BpeTokenizer> train_bpe(std::span<const std::string> samples, int vocab_size,
                                        const BpeTrainer::Progress& progress) {
  BpeTrainer trainer;
  for (const std::string& sample : samples) trainer.add(sample);
  return trainer.train(vocab_size, progress);
}

}  // namespace quaver
