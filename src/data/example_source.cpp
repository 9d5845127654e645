#include "data/example_source.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

#include "data/hash.h"
#include "data/permutation.h"
#include "quaver/error.h"

namespace quaver {
namespace {

// The first of some rows with room for a given length. A tree of maxima: each node has the most room below it.
class FirstFit {
 public:
  FirstFit(std::size_t rows, std::int64_t room) : leaves_(std::bit_ceil(std::max<std::size_t>(1, rows))) {
    room_.assign(2 * leaves_, room);
  }

  std::size_t place(std::int64_t length) {
    std::size_t node = 1;
    while (node < leaves_) node = room_[2 * node] >= length ? 2 * node : 2 * node + 1;
    const std::size_t row = node - leaves_;
    room_[node] -= length;
    while (node > 1) {
      node /= 2;
      room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
    }
    return row;
  }

 private:
  std::size_t leaves_;
  std::vector<std::int64_t> room_;
};

// Each token but the last is an input, each but the first a target.
std::int64_t positions_of(std::span<const std::int32_t> example) { return std::ssize(example) - 1; }

std::int64_t losses_of(std::span<const std::int32_t> example) {
  return std::count_if(example.begin() + 1, example.end(), [](std::int32_t token) { return token >= 0; });
}

}  // namespace

ExampleSource::ExampleSource(Examples examples, const ExampleSourceOptions& options)
    : examples_(std::move(examples)), options_(options) {
  if (options.context < 1) throw Error(fmt::format("a context of {} tokens", options.context), "use at least 1");
  const std::size_t count = examples_.count();
  FirstFit fit(count, options.context);
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<const std::int32_t> example = fitting(i);
    if (example.size() < examples_.at(i).size()) ++cut_;
    const std::int64_t losses = example.size() < 2 ? 0 : losses_of(example);
    if (losses == 0) {
      ++left_out_;
      continue;
    }
    const bool packed = options.layout == RowLayout::packed;
    const std::size_t row = packed ? fit.place(positions_of(example)) : rows_.size();
    if (row == rows_.size()) rows_.emplace_back();
    rows_[row].examples.push_back(static_cast<std::uint32_t>(i));
    rows_[row].losses += losses;
  }
  if (rows_.empty()) {
    throw Error(fmt::format("no example has a loss within {} tokens", options.context), "raise train.context");
  }
}

std::span<const std::int32_t> ExampleSource::fitting(std::size_t example) const {
  const std::span<const std::int32_t> all = examples_.at(example);
  return all.first(std::min(all.size(), static_cast<std::size_t>(options_.context) + 1));
}

void ExampleSource::check_context(std::int64_t context) const {
  if (context == options_.context) return;
  throw Error(fmt::format("examples laid out in rows of {} tokens, and a batch of {}", options_.context, context),
              "open the data with the context of the run");
}

const ExampleSource::Row* ExampleSource::row_of(std::uint64_t batch_index, std::int64_t batch, std::int64_t row) const {
  const std::uint64_t index = batch_index * static_cast<std::uint64_t>(batch) + static_cast<std::uint64_t>(row);
  if (options_.order == WindowOrder::shuffled) return &rows_[shuffled_row(index, rows_.size(), options_.seed)];
  return index < rows_.size() ? &rows_[index] : nullptr;
}

void ExampleSource::fill(std::uint64_t batch_index, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
                         std::int32_t* targets) const {
  check_context(context);
  std::fill_n(inputs, batch * context, 0);
  std::fill_n(targets, batch * context, -1);
  for (std::int64_t r = 0; r < batch; ++r) {
    const Row* const row = row_of(batch_index, batch, r);
    if (row == nullptr) continue;
    std::int64_t at = r * context;
    for (const std::uint32_t example : row->examples) {
      const std::span<const std::int32_t> tokens = fitting(example);
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i, ++at) {
        inputs[at] = id_of(tokens[i]);
        targets[at] = std::max(tokens[i + 1], -1);
      }
    }
  }
}

std::int64_t ExampleSource::targets_with_loss(std::uint64_t batch_index, std::int64_t batch,
                                              std::int64_t context) const {
  check_context(context);
  std::int64_t losses = 0;
  for (std::int64_t r = 0; r < batch; ++r) {
    const Row* const row = row_of(batch_index, batch, r);
    losses += row != nullptr ? row->losses : 0;
  }
  return losses;
}

// Padding is a document of its own.
void ExampleSource::fill_document_starts(std::uint64_t batch_index, std::int64_t batch, std::int64_t context,
                                         std::int32_t* starts) const {
  if (!packs_documents()) return;
  check_context(context);
  for (std::int64_t r = 0; r < batch; ++r) {
    const Row* const row = row_of(batch_index, batch, r);
    std::int32_t* const of_row = starts + r * context;
    std::int64_t at = 0;
    for (const std::uint32_t example : row != nullptr ? std::span(row->examples) : std::span<const std::uint32_t>()) {
      const std::int64_t length = positions_of(fitting(example));
      std::fill_n(of_row + at, length, static_cast<std::int32_t>(at));
      at += length;
    }
    std::fill_n(of_row + at, context - at, static_cast<std::int32_t>(at));
  }
}

std::string ExampleSource::describe() const {
  return fmt::format("{} examples, {} tokens, in {} rows of {}", examples_.count(), tokens(), rows_.size(),
                     options_.context);
}

std::uint64_t ExampleSource::content_hash() const {
  WordHash words;
  words.add(std::as_bytes(std::span(examples_.tokens)));
  Fnv64 hash;
  hash.add(words.value());
  for (const std::size_t end : examples_.ends) hash.add(static_cast<std::uint64_t>(end));
  return hash.value();
}

}  // namespace quaver
