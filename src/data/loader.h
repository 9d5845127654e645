// From shards to batches. A source has no state: a batch is a function of its index, so a run resumes exactly by
// remembering one number. PrefetchLoader fills batches ahead of time on a thread of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/prefetcher.h"
#include "data/shard.h"

namespace quaver {

class TokenSource {
 public:
  virtual ~TokenSource() = default;

  // Batch `batch_index` of a run with this batch size and context: [batch, context] ids, row by row, and for each the
  // id that follows it, or a negative number where it has no loss. Safe to call from several threads.
  virtual void fill(std::uint64_t batch_index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
                    std::int32_t* targets) const = 0;

  // How many of that batch's targets are not negative, which have a loss.
  virtual std::int64_t targets_with_loss(std::uint64_t /*batch_index*/, std::int64_t batch,
                                         std::int64_t context) const {
    return batch * context;
  }

  // Whether rows hold several documents, and then for each id of the batch where in its row its document begins.
  virtual bool packs_documents() const { return false; }
  virtual void fill_document_starts(std::uint64_t /*batch_index*/, std::int64_t /*batch*/, std::int64_t /*context*/,
                                    std::int32_t* /*starts*/) const {}

  virtual int vocab_size() const = 0;
  virtual std::uint64_t tokens() const = 0;                       // 0: endless
  virtual std::uint64_t windows(std::int64_t context) const = 0;  // rows in an epoch; 0: endless
  virtual std::string describe() const = 0;

  // Equal for sources of equal ids, wherever they are stored; reads every id where the files carry no checksum.
  virtual std::uint64_t content_hash() const = 0;

  // The files it reads; none for generated text. They live as long as the source.
  virtual std::span<const Shard> shards() const { return {}; }
};

enum class WindowOrder : std::uint8_t { sequential, shuffled };

struct ShardSourceOptions {
  WindowOrder order = WindowOrder::shuffled;
  std::uint64_t seed = 0;
  int vocab_size = 0;  // 0: as the shards say; needed where their format does not say
};

// Windows of context + 1 tokens, each beginning with the last token of the one before, so that every token but the
// first of a shard is predicted once per epoch. What is left at a shard's end is too short for a window and unused.
// Shuffled, every epoch visits each window once, in an order of its own that depends only on seed and epoch.
class ShardSource final : public TokenSource {
 public:
  // Error for no shards, and for shards that disagree about the tokenizer or do not tell their vocabulary.
  ShardSource(std::span<const std::filesystem::path> paths, const ShardSourceOptions& options);

  void fill(std::uint64_t batch_index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
            std::int32_t* targets) const override;
  int vocab_size() const override { return vocab_size_; }
  std::uint64_t tokens() const override;
  std::uint64_t windows(std::int64_t context) const override;
  std::string describe() const override;
  std::uint64_t content_hash() const override;  // of the ids, shard by shard: windows do not reach across shards

  std::span<const Shard> shards() const override { return shards_; }

 private:
  void read_window(std::uint64_t window, std::span<std::int32_t> out) const;

  std::vector<Shard> shards_;
  WindowOrder order_;
  std::uint64_t seed_;
  int vocab_size_;
};

// Which batches, in which order: `run` neighbors from `first` on, then as many from `stride` behind that, and so on.
struct BatchOrder {
  std::uint64_t first = 0;
  std::uint64_t run = 1;
  std::uint64_t stride = 1;

  std::uint64_t index(std::uint64_t n) const { return first + n / run * stride + n % run; }
};

// Batches of a source in such an order, filled up to `depth` ahead. The source must outlive the loader.
class PrefetchLoader {
 public:
  PrefetchLoader(const TokenSource& source, const BatchOrder& order, std::int64_t batch, std::int64_t context,
                 int depth = 2);
  // Valid until the next call of next().
  struct Batch {
    std::uint64_t index;
    std::span<const std::int32_t> inputs;
    std::span<const std::int32_t> targets;
    std::span<const std::int32_t> document_starts;  // empty where the source packs no documents
  };

  // The next batch in order, waiting for it if need be. Throws what the source threw for that batch, from then on.
  Batch next();

 private:
  struct Slot {
    std::vector<std::int32_t> inputs;
    std::vector<std::int32_t> targets;
    std::vector<std::int32_t> document_starts;
  };

  BatchOrder order_;
  std::unique_ptr<Prefetcher<Slot>> slots_;
};

}  // namespace quaver
