#include "data/idx_images.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "data/hash.h"
#include "quaver/error.h"

namespace quaver {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t most_pixels = std::uint64_t{1} << 18U;
constexpr const char* get_files = "copy it again from where it was published, and decompress it with gunzip";

struct IdxHeader {
  std::uint64_t count = 0;
  std::uint64_t size = 1;                     // bytes of one item
  std::array<std::uint64_t, 4> extents = {};  // the number of items, and theirs
  int dimensions = 0;
  std::uint64_t bytes = 0;
};

std::uint32_t big_endian(std::span<const std::byte, 4> bytes) {
  std::uint32_t value = 0;
  for (const std::byte byte : bytes) value = value << 8U | static_cast<std::uint32_t>(byte);
  return value;
}

// The header of a file of unsigned bytes, whose sizes the file's length bears out.
IdxHeader read_header(const FileReader& file, int fewest_dimensions, int most_dimensions) {
  const auto fail = [&](const std::string& why) -> IdxHeader {
    throw Error(fmt::format("{}: {}", file.path().string(), why), get_files);
  };
  std::array<std::byte, 20> bytes{};
  if (file.size() < 8) return fail(fmt::format("{} bytes are too few for an IDX header", file.size()));
  file.read(0, std::span(bytes).first(4));
  if (bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B}) return fail("the file is compressed");
  if (bytes[0] != std::byte{0} || bytes[1] != std::byte{0}) return fail("it does not begin as an IDX file does");
  if (bytes[2] != std::byte{0x08}) {
    return fail(fmt::format("its values have type 0x{:02x}, not unsigned bytes (0x08)", static_cast<int>(bytes[2])));
  }
  const int dimensions = static_cast<int>(bytes[3]);
  if (dimensions < fewest_dimensions || dimensions > most_dimensions) {
    return fail(fmt::format("it has {} dimensions, where {} to {} are expected", dimensions, fewest_dimensions,
                            most_dimensions));
  }
  IdxHeader header{.dimensions = dimensions, .bytes = 4 + 4 * static_cast<std::uint64_t>(dimensions)};
  if (file.size() < header.bytes) return fail("it ends within its header");
  file.read(4, std::span(bytes).subspan(4, header.bytes - 4));
  for (int d = 0; d < dimensions; ++d) {
    const std::uint64_t extent = big_endian(std::span(bytes).subspan(4 + 4 * static_cast<std::size_t>(d)).first<4>());
    if (extent == 0) return fail("one of its dimensions is 0");
    header.extents[static_cast<std::size_t>(d)] = extent;
    if (d == 0) {
      header.count = extent;
      continue;
    }
    if (extent > most_pixels || (header.size *= extent) > most_pixels) {
      return fail(fmt::format("an image has more than {} pixels", most_pixels));
    }
  }
  const std::uint64_t expected = header.bytes + header.count * header.size;  // below 2^51
  if (file.size() != expected) {
    return fail(fmt::format("its header announces {} bytes and it has {}", expected, file.size()));
  }
  return header;
}

// Images of two dimensions have one channel, and those of one dimension are a single row.
ImageShape shape_of(const IdxHeader& header) {
  const auto extent = [&](std::size_t i) { return static_cast<std::int64_t>(header.extents[i]); };
  if (header.dimensions == 2) return {1, extent(1), 1};
  return {extent(1), extent(2), header.dimensions > 3 ? extent(3) : 1};
}

std::optional<fs::path> find_file(const fs::path& folder, const std::string& name, const char* type) {
  for (const char* separator : {"-", "."}) {
    fs::path path = folder / (name + separator + type);
    if (fs::exists(path)) return path;
  }
  return std::nullopt;
}

std::optional<IdxFiles> find_pair(const fs::path& folder, const std::string& split) {
  const auto images = find_file(folder, split + "-images", "idx3-ubyte");
  const auto labels = find_file(folder, split + "-labels", "idx1-ubyte");
  if (!images && !labels) return std::nullopt;
  if (!images || !labels) {
    throw Error(fmt::format("{} has {}-{} and no {}", folder.string(), split, images ? "images" : "labels",
                            images ? "labels" : "images"),
                "put both files there, or neither");
  }
  return IdxFiles{*images, *labels};
}

}  // namespace

IdxFolder find_idx_files(const fs::path& folder) {
  auto train = find_pair(folder, "train");
  if (!train) {
    const bool compressed = fs::exists(folder / "train-images-idx3-ubyte.gz");
    throw Error(fmt::format("{} has no train-images-idx3-ubyte", folder.string()),
                compressed ? "decompress the files there with gunzip"
                           : "set data.path to a folder with the four files of MNIST, or of a data set like it");
  }
  return {std::move(*train), find_pair(folder, "t10k")};
}

IdxImages::IdxImages(const IdxFiles& files, const ImageOptions& options)
    : ByteImages(options), file_(FileReader::open(files.images)) {
  const IdxHeader images = read_header(file_, 2, 4);
  first_byte_ = images.bytes;
  const FileReader label_file = FileReader::open(files.labels);
  const IdxHeader labels = read_header(label_file, 1, 1);
  if (labels.count != images.count) {
    throw Error(fmt::format("{} has {} images and {} has {} labels", files.images.string(), images.count,
                            files.labels.string(), labels.count),
                "use the labels that belong to the images");
  }
  std::vector<std::uint8_t> read(labels.count);
  label_file.read(labels.bytes, std::as_writable_bytes(std::span(read)));
  set_images(shape_of(images), {read.begin(), read.end()}, files.labels);
  measure_bytes();
}

// One pass over the file: its statistics, over all channels, and its hash.
void IdxImages::measure_bytes() {
  constexpr std::uint64_t piece = std::uint64_t{1} << 20U;
  const std::uint64_t total = labels_.size() * static_cast<std::uint64_t>(pixels());
  std::vector<std::byte> bytes;
  WordHash content;
  ByteCounts counts{};
  for (std::uint64_t done = 0; done < total; done += piece) {
    bytes.resize(std::min(piece, total - done));
    file_.read(first_byte_ + done, bytes);
    content.add(bytes);
    for (const std::byte byte : bytes) ++counts[static_cast<std::size_t>(byte)];
  }
  Fnv64 hash;
  hash.add(labels_.size());
  hash.add(static_cast<std::uint64_t>(pixels()));
  hash.add(content.value());
  for (const std::uint16_t label : labels_) hash.add(std::array{static_cast<std::byte>(label)});
  hash_ = hash.value();
  if (normalization_.empty()) normalization_ = normalization_of({&counts, 1}, file_.path());
}

void IdxImages::read(std::uint64_t image, std::span<std::uint8_t> pixels) const {
  file_.read(first_byte_ + image * pixels.size(), std::as_writable_bytes(pixels));
}

}  // namespace quaver
