#include "data/folder_images.h"

#include <algorithm>
#include <fmt/format.h>

#include "data/image_file.h"
#include "quaver/error.h"

namespace quaver {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t most_classes = 65535;

// Those that are not hidden, in the order of their names, which is the same on every machine.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; entry != end && !error; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with('.')) entries.push_back(entry->path());
  }
  if (error) throw Error(fmt::format("{} cannot be read: {}", folder.string(), error.message()), "set data.path");
  std::ranges::sort(entries);
  return entries;
}

std::vector<std::string> class_names_of(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& entry : entries_of(folder)) {
    if (fs::is_directory(entry)) names.push_back(entry.filename().string());
  }
  if (names.size() >= 2 && names.size() <= most_classes) return names;
  throw Error(fmt::format("{} has {} folders of images", folder.string(), names.size()),
              "put the images of each class into a folder of its own there, at least two of them");
}

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files = entries_of(folder);
  const auto other = std::ranges::find_if_not(files, is_image_file);
  if (other == files.end()) return files;
  throw Error(fmt::format("{} is neither a PNG nor a PPM or PGM file", other->string()),
              "leave only images in the folder, and convert those of other formats");
}

}  // namespace

ImageFolders find_image_folders(const fs::path& folder) {
  if (!fs::is_directory(folder / "train")) return {folder, std::nullopt};
  for (const char* name : {"valid", "val", "test"}) {
    if (fs::is_directory(folder / name)) return {folder / "train", folder / name};
  }
  return {folder / "train", std::nullopt};
}

FolderImages::FolderImages(const fs::path& folder, const ImageOptions& options, const FolderImages* like)
    : ByteImages(options), class_names_(like != nullptr ? like->class_names_ : class_names_of(folder)) {
  std::vector<std::uint16_t> labels;
  ImageShape shape = like != nullptr ? like->shape() : ImageShape{};
  for (const std::string& name : class_names_of(folder)) {
    const auto found = std::ranges::find(class_names_, name);
    if (found == class_names_.end()) {
      throw Error(fmt::format("{} is no class of the training images", (folder / name).string()),
                  "validate on the classes that are trained on");
    }
    for (const fs::path& file : files_of(folder / name)) {
      if (like == nullptr) {
        const ImageShape own = image_shape_of(file);
        shape = {files_.empty() ? own.height : shape.height, files_.empty() ? own.width : shape.width,
                 files_.empty() ? own.channels : std::max(shape.channels, own.channels)};
      }
      files_.push_back(file);
      labels.push_back(static_cast<std::uint16_t>(found - class_names_.begin()));
    }
  }
  classes_ = static_cast<int>(class_names_.size());
  set_images(shape, std::move(labels), folder);
  measure(folder);
}

void FolderImages::read(std::uint64_t image, std::span<std::uint8_t> pixels) const {
  read_image(files_[image], shape_, pixels);
}

}  // namespace quaver
