#include "data/cifar_images.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "quaver/error.h"

namespace quaver {
namespace fs = std::filesystem;
namespace {

constexpr ImageShape cifar_shape{.height = 32, .width = 32, .channels = 3};
constexpr std::uint64_t plane = 1024;  // pixels
constexpr std::uint64_t image_bytes = 3 * plane;
constexpr const char* extract_again = "extract it again from the archive of the binary version";

// Of the labels alone, from the records of a file.
std::vector<std::uint16_t> labels_of(const FileReader& file, std::uint64_t label_bytes) {
  const std::uint64_t record = label_bytes + image_bytes;
  const int published = label_bytes == 1 ? 10 : 100;  // classes
  if (file.size() == 0 || file.size() % record != 0) {
    throw Error(
        fmt::format("{}: its {} bytes are no whole number of records of {}", file.path().string(), file.size(), record),
        extract_again);
  }
  std::vector<std::uint16_t> labels(file.size() / record);
  for (std::uint64_t i = 0; i < labels.size(); ++i) {
    std::array<std::byte, 1> label{};
    file.read(i * record + label_bytes - 1, label);
    labels[i] = static_cast<std::uint16_t>(label[0]);
    if (labels[i] < published) continue;
    throw Error(fmt::format("{}: label {} of image {} is none of the {} classes", file.path().string(), labels[i], i,
                            published),
                extract_again);
  }
  return labels;
}

}  // namespace

CifarFiles find_cifar_files(const fs::path& folder) {
  CifarFiles found;
  const auto add = [&](std::vector<fs::path>& to, const std::string& name) {
    if (fs::exists(folder / name)) to.push_back(folder / name);
  };
  for (int i = 1; i <= 5; ++i) add(found.train, fmt::format("data_batch_{}.bin", i));
  add(found.valid, "test_batch.bin");
  if (!found.train.empty()) return found;
  found = {.label_bytes = 2};
  add(found.train, "train.bin");
  add(found.valid, "test.bin");
  if (!found.train.empty()) return found;
  throw Error(fmt::format("{} has neither data_batch_1.bin (CIFAR-10) nor train.bin (CIFAR-100)", folder.string()),
              "set data.path to the folder that the archive of the binary version has");
}

CifarImages::CifarImages(const std::vector<fs::path>& files, int label_bytes, const ImageOptions& options)
    : ByteImages(options), label_bytes_(static_cast<std::uint64_t>(label_bytes)) {
  std::vector<std::uint16_t> labels;
  for (const fs::path& path : files) {
    files_.push_back(FileReader::open(path));
    const std::vector<std::uint16_t> more = labels_of(files_.back(), label_bytes_);
    labels.insert(labels.end(), more.begin(), more.end());
    ends_.push_back(labels.size());
  }
  set_images(cifar_shape, std::move(labels), files.front());
  measure(files.front());
}

void CifarImages::read(std::uint64_t image, std::span<std::uint8_t> pixels) const {
  const auto end = std::ranges::upper_bound(ends_, image);
  const auto number = static_cast<std::size_t>(end - ends_.begin());
  const std::uint64_t first = number > 0 ? ends_[number - 1] : 0;
  std::array<std::byte, image_bytes> planes{};
  files_[number].read((image - first) * (label_bytes_ + image_bytes) + label_bytes_, planes);
  for (std::size_t i = 0; i < plane; ++i) {
    for (std::size_t channel = 0; channel < 3; ++channel) {
      pixels[3 * i + channel] = static_cast<std::uint8_t>(planes[channel * plane + i]);
    }
  }
}

}  // namespace quaver
