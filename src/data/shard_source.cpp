#include <algorithm>
#include <fmt/format.h>

#include "data/hash.h"
#include "data/loader.h"
#include "data/permutation.h"
#include "quaver/error.h"

namespace quaver {
namespace {

std::uint64_t windows_in(const Shard& shard, std::int64_t context) {
  return shard.tokens() == 0 ? 0 : (shard.tokens() - 1) / static_cast<std::uint64_t>(context);
}

// The vocabulary that all shards share, or the one asked for where it is no smaller.
int agreed_vocab(const std::vector<Shard>& shards, int asked_for) {
  int vocab = asked_for;
  for (const Shard& shard : shards) {
    const int own = shard.info().vocab_size;
    if (own == 0) continue;
    if (asked_for > 0 && own > asked_for) {
      throw Error(fmt::format("shard {} has a vocabulary of {}, more than {}", shard.path().string(), own, asked_for),
                  fmt::format("set the vocabulary to {} or more", own));
    }
    vocab = std::max(vocab, own);
  }
  if (vocab <= 0) {
    throw Error(fmt::format("shard {}: the {} format does not tell its vocabulary", shards.front().path().string(),
                            name_of(shards.front().info().format)),
                "give the tokenizer or the vocabulary size with the data");
  }
  return vocab;
}

void check_same_tokenizer(const std::vector<Shard>& shards) {
  const Shard* known = nullptr;
  for (const Shard& shard : shards) {
    if (shard.info().tokenizer_hash == 0) continue;
    if (known != nullptr && known->info().tokenizer_hash != shard.info().tokenizer_hash) {
      throw Error(fmt::format("shards {} and {} were made with different tokenizers", known->path().string(),
                              shard.path().string()),
                  "prepare all text in one go, or with the same tokenizer.json");
    }
    known = &shard;
  }
}

}  // namespace

ShardSource::ShardSource(std::span<const std::filesystem::path> paths, const ShardSourceOptions& options)
    : order_(options.order), seed_(options.seed), vocab_size_(0) {
  if (paths.empty()) throw Error("no shards to read", "give at least one shard file");
  shards_.reserve(paths.size());
  for (const std::filesystem::path& path : paths) shards_.push_back(Shard::open(path));
  check_same_tokenizer(shards_);
  vocab_size_ = agreed_vocab(shards_, options.vocab_size);
}

std::uint64_t ShardSource::tokens() const {
  std::uint64_t total = 0;
  for (const Shard& shard : shards_) total += shard.tokens();
  return total;
}

std::uint64_t ShardSource::windows(std::int64_t context) const {
  if (context <= 0) throw Error(fmt::format("a context of {} tokens", context), "use a context of at least 1");
  std::uint64_t total = 0;
  for (const Shard& shard : shards_) total += windows_in(shard, context);
  return total;
}

std::string ShardSource::describe() const {
  return fmt::format("{} shard{}, {} tokens, vocabulary {}, {}", shards_.size(), shards_.size() == 1 ? "" : "s",
                     tokens(), vocab_size_, order_ == WindowOrder::shuffled ? "shuffled" : "in order");
}

std::uint64_t ShardSource::content_hash() const {
  Fnv64 hash;
  for (const Shard& shard : shards_) {
    hash.add(shard.tokens());
    hash.add(shard.content_hash());
  }
  return hash.value();
}

void ShardSource::read_window(std::uint64_t window, std::span<std::int32_t> out) const {
  const auto context = static_cast<std::int64_t>(out.size()) - 1;
  auto shard = shards_.begin();
  for (; window >= windows_in(*shard, context); ++shard) window -= windows_in(*shard, context);
  shard->read(window * static_cast<std::uint64_t>(context), out, vocab_size_);
}

void ShardSource::fill(std::uint64_t batch_index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
                       std::int32_t* targets) const {
  const std::uint64_t per_epoch = windows(context);
  if (per_epoch == 0) {
    throw Error(
        fmt::format("no shard has the {} tokens that a context of {} needs ({})", context + 1, context, describe()),
        "use a shorter context or more text");
  }
  std::vector<std::int32_t> tokens_read(static_cast<std::size_t>(context) + 1);
  for (std::int64_t row = 0; row < batch; ++row) {
    const std::uint64_t example = batch_index * static_cast<std::uint64_t>(batch) + static_cast<std::uint64_t>(row);
    const bool shuffled = order_ == WindowOrder::shuffled;
    read_window(shuffled ? shuffled_row(example, per_epoch, seed_) : example % per_epoch, tokens_read);
    std::copy(tokens_read.begin(), tokens_read.end() - 1, inputs + row * context);
    std::copy(tokens_read.begin() + 1, tokens_read.end(), targets + row * context);
  }
}

}  // namespace quaver
