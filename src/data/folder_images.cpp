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

// A link that leads nowhere may have been a class.
std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& entry : entries_of(folder)) {
    std::error_code error;
    if (fs::is_directory(entry, error)) names.push_back(entry.filename().string());
    if (!error) continue;
    throw Error(fmt::format("{} cannot be read: {}", entry.string(), error.message()), "put it right, or remove it");
  }
  return names;
}

std::vector<std::string> class_names_of(const fs::path& folder, std::size_t fewest) {
  std::vector<std::string> names = folders_in(folder);
  if (names.size() >= fewest && names.size() <= most_classes) return names;
  throw Error(fmt::format("{} has {} folder{} of images", folder.string(), names.size(), names.size() == 1 ? "" : "s"),
              fmt::format("put the images of each class into a folder of its own there, at least {}", fewest));
}

bool is_folder(const fs::path& path) {
  std::error_code error;  // there is nothing
  return fs::is_directory(path, error);
}

enum class ClassRole : std::uint8_t { trained, validated };  // of which some may have no images

std::vector<fs::path> files_of(const fs::path& folder, ClassRole role) {
  std::vector<fs::path> files = entries_of(folder);
  const auto other = std::ranges::find_if_not(files, is_image_file);
  if (files.empty() && role == ClassRole::trained) {
    throw Error(folder.string() + " has no images", "put the images of the class there, or remove the folder");
  }
  if (other == files.end()) return files;
  throw Error(fmt::format("{} is neither a PNG nor a PPM or PGM file", other->string()),
              "leave only images in the folder, and convert those of other formats");
}

}  // namespace

// A folder train without folders, beside none to validate on, is a class of vehicles.
ImageFolders find_image_folders(const fs::path& folder) {
  const fs::path train = folder / "train";
  if (!is_folder(train)) return {folder, std::nullopt};
  for (const char* name : {"valid", "val", "test"}) {
    if (is_folder(folder / name)) return {train, folder / name};
  }
  return {folders_in(train).empty() ? folder : train, std::nullopt};
}

FolderImages::FolderImages(const fs::path& folder, const ImageOptions& options, const FolderImages* like)
    : ByteImages(options), class_names_(like != nullptr ? like->class_names_ : class_names_of(folder, 2)) {
  std::vector<std::uint16_t> labels;
  ImageShape shape = like != nullptr ? like->shape() : ImageShape{};
  const ClassRole role = like != nullptr ? ClassRole::validated : ClassRole::trained;
  for (const std::string& name : class_names_of(folder, 1)) {
    const auto found = std::ranges::find(class_names_, name);
    if (found == class_names_.end()) {
      throw Error(fmt::format("{} is no class of the training images", (folder / name).string()),
                  "validate on the classes that are trained on");
    }
    for (const fs::path& file : files_of(folder / name, role)) {
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
