#include "data/image_file.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <png.h>
#include <string_view>

#include "io/file_reader.h"
#include "quaver/error.h"

namespace quaver {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t largest_file = std::uint64_t{1} << 26U;

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw Error(fmt::format("{}: {}", path.string(), why), "replace the image, or remove it");
}

std::vector<std::byte> bytes_of(const fs::path& path) {
  const FileReader file = FileReader::open(path);
  if (file.size() > largest_file) refuse(path, fmt::format("{} bytes are too many for an image", file.size()));
  if (file.size() == 0) refuse(path, "the file is empty");
  std::vector<std::byte> bytes(file.size());
  file.read(0, bytes);
  return bytes;
}

void check_extents(const fs::path& path, std::uint64_t height, std::uint64_t width, std::uint64_t channels) {
  const auto most = static_cast<std::uint64_t>(most_image_values);
  if (height == 0 || width == 0) refuse(path, "the image is empty");
  if (height > most || width > most || height * width * channels > most) {
    refuse(path, fmt::format("{} × {} pixels in {} channel{} are more than {} values", height, width, channels,
                             channels == 1 ? "" : "s", most));
  }
}

// The chunks that say what is stored: the critical ones, and which color is transparent. By others, of gamma and color
// profiles, libpng would change values, and texts may be of any size. What is behind damage stays for libpng to refuse.
std::vector<std::byte> stored_values(std::span<const std::byte> png) {
  constexpr std::size_t signature = 8;
  constexpr std::size_t frame = 12;  // length, type and checksum of a chunk
  const std::string_view text(reinterpret_cast<const char*>(png.data()), png.size());
  std::size_t at = std::min(signature, png.size());
  std::vector<std::byte> kept(png.begin(), png.begin() + static_cast<std::ptrdiff_t>(at));
  while (at < png.size()) {
    std::size_t size = png.size() - at;
    if (size >= frame) {
      std::size_t length = 0;
      for (std::size_t i = 0; i < 4; ++i) length = length << 8U | static_cast<std::size_t>(png[at + i]);
      size = std::min(size, frame + length);
      const std::string_view type = text.substr(at + 4, 4);
      const bool ancillary = std::islower(static_cast<unsigned char>(type.front())) != 0;
      if (ancillary && type != "tRNS") {
        at += size;
        continue;
      }
    }
    const std::span<const std::byte> chunk = png.subspan(at, size);
    kept.insert(kept.end(), chunk.begin(), chunk.end());
    at += size;
  }
  return kept;
}

// The memory of an image that libpng reads, and its errors.
class Png {
 public:
  Png(const fs::path& path, std::span<const std::byte> bytes) : path_(path), bytes_(stored_values(bytes)) {
    image_.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_memory(&image_, bytes_.data(), bytes_.size()) == 0) refuse(path, image_.message);
    try {
      check_extents(path, image_.height, image_.width, static_cast<std::uint64_t>(shape().channels));
    } catch (...) {
      png_image_free(&image_);
      throw;
    }
  }
  ~Png() { png_image_free(&image_); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  ImageShape shape() const {
    return {image_.height, image_.width, (image_.format & PNG_FORMAT_FLAG_COLOR) != 0 ? 3 : 1};
  }

  void read(std::int64_t channels, std::span<std::uint8_t> pixels) {
    if ((image_.format & PNG_FORMAT_FLAG_LINEAR) != 0) {
      read_16_bits(channels, pixels);
    } else {
      read_8_bits(channels, pixels);
    }
  }

 private:
  // To libpng these are linear values, which it puts on black by itself. What it makes of them in 8 bits is wrong where
  // the image is interlaced.
  void read_16_bits(std::int64_t channels, std::span<std::uint8_t> pixels) {
    std::vector<std::uint16_t> values(pixels.size());
    finish(channels == 3 ? PNG_FORMAT_LINEAR_RGB : PNG_FORMAT_LINEAR_Y, values);
    std::ranges::transform(values, pixels.begin(), [](std::uint32_t value) {
      return static_cast<std::uint8_t>((value * 255 + 32767) / 65535);
    });
  }

  void read_8_bits(std::int64_t channels, std::span<std::uint8_t> pixels) {
    const auto width = static_cast<std::size_t>(channels);
    std::vector<std::uint8_t> values(pixels.size() / width * (width + 1));  // with opacity
    finish(channels == 3 ? PNG_FORMAT_RGBA : PNG_FORMAT_GA, values);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const std::size_t pixel = i / width * (width + 1);
      pixels[i] = static_cast<std::uint8_t>((values[pixel + i % width] * values[pixel + width] + 127) / 255);
    }
  }

  template <class Value>
  void finish(png_uint_32 format, std::vector<Value>& values) {
    image_.format = format;
    if (values.size() * sizeof(Value) != PNG_IMAGE_SIZE(image_)) refuse(path_, "it has another size than the image");
    if (png_image_finish_read(&image_, nullptr, values.data(), 0, nullptr) == 0) refuse(path_, image_.message);
  }

  fs::path path_;
  std::vector<std::byte> bytes_;
  png_image image_{};
};

// Portable pixmaps (P6) and graymaps (P5): a header of numbers in decimal, then the bytes.
class PortableMap {
 public:
  PortableMap(const fs::path& path, std::span<const std::byte> bytes)
      : path_(path), text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()) {
    if (!text_.starts_with("P6") && !text_.starts_with("P5")) refuse(path, "it begins neither with P6 nor with P5");
    shape_.channels = text_[1] == '6' ? 3 : 1;
    at_ = 2;
    const std::uint64_t width = number();
    const std::uint64_t height = number();
    const std::uint64_t largest = number();
    check_extents(path, height, width, static_cast<std::uint64_t>(shape_.channels));
    if (largest != 255) refuse(path, fmt::format("its largest value is {}, not 255", largest));
    shape_.height = static_cast<std::int64_t>(height);
    shape_.width = static_cast<std::int64_t>(width);
    ++at_;  // one white space
    const auto values = static_cast<std::size_t>(shape_.pixels());
    if (at_ > text_.size() || text_.size() - at_ < values) refuse(path, "it ends before its last pixel");
    pixels_ = text_.substr(at_, values);
  }

  const ImageShape& shape() const { return shape_; }

  void read(std::int64_t channels, std::span<std::uint8_t> pixels) const {
    const std::int64_t repeats = channels / shape_.channels;
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(pixels_[i / static_cast<std::size_t>(repeats)]);
    }
  }

 private:
  std::uint64_t number() {
    skip_space();
    std::uint64_t value = 0;
    const char* first = text_.data() + std::min(at_, text_.size());
    const auto [behind, error] = std::from_chars(first, text_.data() + text_.size(), value);
    if (error != std::errc{}) refuse(path_, "its header does not have three numbers");
    at_ = static_cast<std::size_t>(behind - text_.data());
    return value;
  }
  void skip_space() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        ++at_;
      } else {
        return;
      }
    }
  }

  fs::path path_;
  std::string_view text_;
  std::size_t at_ = 0;
  ImageShape shape_;
  std::string_view pixels_;
};

std::string extension_of(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

// Calls use(image) with what reads the file's format.
template <class Use>
auto with_image(const fs::path& path, const Use& use) {
  const std::vector<std::byte> bytes = bytes_of(path);
  if (extension_of(path) == ".png") {
    Png image(path, bytes);
    return use(image);
  }
  PortableMap image(path, bytes);
  return use(image);
}

}  // namespace

bool is_image_file(const fs::path& path) {
  const std::string extension = extension_of(path);
  return extension == ".png" || extension == ".ppm" || extension == ".pgm";
}

ImageShape image_shape_of(const fs::path& path) {
  return with_image(path, [](const auto& image) { return ImageShape(image.shape()); });
}

void read_image(const fs::path& path, const ImageShape& shape, std::span<std::uint8_t> pixels) {
  with_image(path, [&](auto& image) {
    const ImageShape own = image.shape();
    if (own.height != shape.height || own.width != shape.width) {
      refuse(path, fmt::format("{} × {} pixels, where the other images have {} × {}", own.height, own.width,
                               shape.height, shape.width));
    }
    if (own.channels > shape.channels) refuse(path, "it has colors, and the other images are gray");
    if (shape.pixels() > most_image_values) refuse(path, "gray images as large as this have no room for colors");
    image.read(shape.channels, pixels);
  });
}

}  // namespace quaver
