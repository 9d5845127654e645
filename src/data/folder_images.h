// Images in folders, one per class, whose name is the class's: PNG, PPM or PGM files of one size.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/byte_images.h"

namespace quaver {

// A folder that has the folders of the classes, or has such folders under train and, to validate on, valid, val or
// test.
struct ImageFolders {
  std::filesystem::path train;
  std::optional<std::filesystem::path> valid;
};
ImageFolders find_image_folders(const std::filesystem::path& folder);

class FolderImages final : public ByteImages {
 public:
  // The classes are those of `like`, where it is given, and the images must have its size; else the names in order.
  // Reads everything once. Throws Error for a file that is no image, or one of another size.
  FolderImages(const std::filesystem::path& folder, const ImageOptions& options, const FolderImages* like = nullptr);

  const std::vector<std::string>& class_names() const { return class_names_; }

 private:
  void read(std::uint64_t image, std::span<std::uint8_t> pixels) const override;

  std::vector<std::string> class_names_;
  std::vector<std::filesystem::path> files_;
};

}  // namespace quaver
