#include "data/byte_images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

#include "data/hash.h"
#include "data/permutation.h"
#include "quaver/error.h"

namespace quaver {
namespace {

using FloatOfByte = std::array<float, 256>;

// What each byte of a channel becomes.
std::vector<FloatOfByte> tables_of(const std::vector<Normalization>& channels) {
  std::vector<FloatOfByte> tables;
  for (const Normalization& channel : channels) {
    FloatOfByte& table = tables.emplace_back();
    for (std::size_t byte = 0; byte < table.size(); ++byte) {
      table[byte] = static_cast<float>((static_cast<double>(byte) - channel.mean) / channel.deviation);
    }
  }
  return tables;
}

// Deviation 0: all bytes are the same.
Normalization normalization_of(const ByteCounts& counts) {
  double total = 0;
  double sum = 0;
  double squares = 0;
  for (std::size_t value = 0; value < counts.size(); ++value) {
    const auto count = static_cast<double>(counts[value]);
    total += count;
    sum += static_cast<double>(value) * count;
    squares += static_cast<double>(value * value) * count;
  }
  const double mean = sum / total;
  const bool varies = std::ranges::count_if(counts, [](std::uint64_t count) { return count > 0; }) > 1;
  return {mean, varies ? std::sqrt(squares / total - mean * mean) : 0};
}

}  // namespace

std::vector<Normalization> normalization_of(std::span<const ByteCounts> channels, const std::filesystem::path& path) {
  std::vector<Normalization> found;
  double largest = 0;
  for (const ByteCounts& counts : channels) {
    found.push_back(normalization_of(counts));
    largest = std::max(largest, found.back().deviation);
  }
  if (largest == 0) {
    throw Error(path.string() + ": all pixels are the same: there is nothing to learn from", "use other images");
  }
  for (Normalization& channel : found) channel.deviation = channel.deviation == 0 ? largest : channel.deviation;
  return found;
}

void ByteImages::set_images(const ImageShape& shape, std::vector<std::uint16_t> labels,
                            const std::filesystem::path& path) {
  shape_ = shape;
  labels_ = std::move(labels);
  const auto largest = std::max_element(labels_.begin(), labels_.end());
  if (largest == labels_.end()) throw Error(path.string() + " has no images", "put images there");
  if (classes_ == 0) classes_ = *largest + 1;
  if (classes_ < 2) {
    throw Error(path.string() + ": all labels are 0: there is nothing to tell apart", "use images of several classes");
  }
  if (*largest < classes_) return;
  throw Error(fmt::format("{}: label {} of image {} is none of the {} classes", path.string(), *largest,
                          largest - labels_.begin(), classes_),
              "use the labels that belong to these images");
}

void ByteImages::measure(const std::filesystem::path& path) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(shape_.pixels()));
  const auto channels = static_cast<std::size_t>(shape_.channels);
  std::vector<ByteCounts> counts(channels);
  Fnv64 hash;
  for (const std::int64_t extent : {shape_.height, shape_.width, shape_.channels}) {
    hash.add(static_cast<std::uint64_t>(extent));
  }
  hash.add(std::as_bytes(std::span(labels_)));
  for (std::uint64_t image = 0; image < labels_.size(); ++image) {
    read(image, pixels);
    WordHash content;
    content.add(std::as_bytes(std::span(pixels)));
    hash.add(content.value());
    for (std::size_t i = 0; i < pixels.size(); ++i) ++counts[i % channels][pixels[i]];
  }
  hash_ = hash.value();
  if (normalization_.empty()) normalization_ = normalization_of(counts, path);
}

void ByteImages::fill(std::uint64_t batch_index, std::int64_t batch, float* images, std::int32_t* labels) const {
  const std::int64_t values = shape_.pixels();
  const std::size_t channels = normalization_.size();
  const std::vector<FloatOfByte> normalized = tables_of(normalization_);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(values));
  for (std::int64_t row = 0; row < batch; ++row) {
    std::uint64_t image = batch_index * static_cast<std::uint64_t>(batch) + static_cast<std::uint64_t>(row);
    float* out = images + row * values;
    if (order_ == ImageOrder::shuffled) {
      image = shuffled_row(image, labels_.size(), seed_);
    } else if (image >= labels_.size()) {
      std::fill_n(out, values, 0.0F);
      labels[row] = -1;
      continue;
    }
    read(image, bytes);
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const FloatOfByte& value = normalized[channel];
      for (std::size_t i = channel; i < bytes.size(); i += channels) out[i] = value[bytes[i]];
    }
    labels[row] = labels_[image];
  }
}

}  // namespace quaver
