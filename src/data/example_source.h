// Batches of examples (examples.h). Rows are laid out once: packed, each example is put into the first row with room
// for it, and no example sees another; else each has a row of its own. What is left of a row is padding without loss.
// Shuffled, every epoch visits each row once, in an order of its own that depends only on seed and epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/examples.h"
#include "data/loader.h"

namespace quaver {

enum class RowLayout : std::uint8_t { packed, one_example };

struct ExampleSourceOptions {
  std::int64_t context = 0;  // tokens per row
  RowLayout layout = RowLayout::packed;
  WindowOrder order = WindowOrder::shuffled;  // sequential: once, and nothing but padding behind the last row
  std::uint64_t seed = 0;
  int vocab_size = 0;
};

class ExampleSource final : public TokenSource {
 public:
  // Examples longer than a row are cut. Error where none has a loss within the context.
  ExampleSource(Examples examples, const ExampleSourceOptions& options);

  // The context is the options'.
  void fill(std::uint64_t batch_index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
            std::int32_t* targets) const override;
  std::int64_t targets_with_loss(std::uint64_t batch_index, std::int64_t batch, std::int64_t context) const override;
  bool packs_documents() const override { return options_.layout == RowLayout::packed; }
  void fill_document_starts(std::uint64_t batch_index, std::int64_t batch, std::int64_t context,
                            std::int32_t* starts) const override;

  int vocab_size() const override { return options_.vocab_size; }
  std::uint64_t tokens() const override { return examples_.tokens.size(); }
  std::uint64_t windows(std::int64_t) const override { return rows_.size(); }
  std::string describe() const override;
  std::uint64_t content_hash() const override;

  std::uint64_t cut() const { return cut_; }            // examples that were too long
  std::uint64_t left_out() const { return left_out_; }  // … of which nothing with a loss was left

 private:
  struct Row {
    std::vector<std::uint32_t> examples;
    std::int64_t losses = 0;
  };

  std::span<const std::int32_t> fitting(std::size_t example) const;
  const Row* row_of(std::uint64_t batch_index, std::int64_t batch, std::int64_t row) const;
  void check_context(std::int64_t context) const;

  Examples examples_;
  ExampleSourceOptions options_;
  std::vector<Row> rows_;
  std::uint64_t cut_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace quaver
