// Images of bytes with a label each, however they are stored: their order, their normalization, what they are known by.
// A source reads single images; the rest is here.
#pragma once

#include <array>
#include <filesystem>
#include <span>
#include <vector>

#include "data/image_source.h"

namespace quaver {

// Pixels become (byte − mean) / deviation.
struct Normalization {
  double mean = 0;
  double deviation = 1;
};

// How often each value of a byte occurs.
using ByteCounts = std::array<std::uint64_t, 256>;
// Of each channel. One whose bytes are all the same tells nothing, and has the largest deviation of the others. Throws
// Error, which names the path, where that is so of all channels.
std::vector<Normalization> normalization_of(std::span<const ByteCounts> channels, const std::filesystem::path& path);

// once: in order, and behind the last image there is none. shuffled: endless, every epoch in an order of its own that
// depends only on seed and epoch.
enum class ImageOrder : std::uint8_t { once, shuffled };

struct ImageOptions {
  ImageOrder order = ImageOrder::shuffled;
  std::uint64_t seed = 0;
  std::vector<Normalization> normalization = {};  // of each channel; empty: to zero mean and unit variance over all
  int classes = 0;                                // 0: one more than the largest label
};

class ByteImages : public ImageSource {
 public:
  void fill(std::uint64_t batch_index, std::int64_t batch, float* images, std::int32_t* labels) const final;
  ImageShape shape() const final { return shape_; }
  int classes() const final { return classes_; }
  std::uint64_t images() const final { return labels_.size(); }
  std::uint64_t content_hash() const final { return hash_; }
  const std::vector<Normalization>& normalization() const { return normalization_; }

 protected:
  explicit ByteImages(const ImageOptions& options)
      : classes_(options.classes), normalization_(options.normalization), order_(options.order), seed_(options.seed) {}

  // The pixels of one image, row by row, channels side by side. Safe to call from several threads.
  virtual void read(std::uint64_t image, std::span<std::uint8_t> pixels) const = 0;

  // What a source knows when it has been opened. Throws Error where a label, the first of which `path` has, is none of
  // the classes, and where there is nothing to tell apart.
  void set_images(const ImageShape& shape, std::vector<std::uint16_t> labels, const std::filesystem::path& path);
  // Reads everything once: hash, and each channel's normalization unless it is given.
  void measure(const std::filesystem::path& path);

  ImageShape shape_;
  std::vector<std::uint16_t> labels_;
  int classes_;
  std::vector<Normalization> normalization_;
  std::uint64_t hash_ = 0;

 private:
  ImageOrder order_;
  std::uint64_t seed_;
};

}  // namespace quaver
