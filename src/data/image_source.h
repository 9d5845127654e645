// Images with their classes, as a classifier reads them: rows of pixels with zero mean and unit variance. A source has
// no state: a batch is a function of its index, so a run resumes exactly by remembering one number.
#pragma once

#include <cstdint>

namespace quaver {

// Pixels lie row by row, the channels of a pixel side by side.
struct ImageShape {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 1;

  std::int64_t pixels() const { return height * width * channels; }
  bool operator==(const ImageShape&) const = default;
};

class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Batch `batch_index` of a run with this batch size: [batch × pixels], row by row, and a label each. A label below 0
  // says that there is no image in the row. Safe to call from several threads.
  virtual void fill(std::uint64_t batch_index, std::int64_t batch, float* images, std::int32_t* labels) const = 0;

  virtual ImageShape shape() const = 0;
  std::int64_t pixels() const { return shape().pixels(); }  // of one image, over all channels
  virtual int classes() const = 0;
  virtual std::uint64_t images() const = 0;  // 0: endless

  // Equal for sources of equal images and labels, wherever they are stored.
  virtual std::uint64_t content_hash() const = 0;
};

}  // namespace quaver
