// Single images in files: PNG, and PPM or PGM of bytes. Everything in a file is hostile until checked: an Error names
// the file and what is wrong with it.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "data/image_source.h"

namespace quaver {

// More values than this in an image are refused.
inline constexpr std::int64_t most_image_values = std::int64_t{1} << 18;

// Whether the name says that it is one of these formats.
bool is_image_file(const std::filesystem::path& path);

// Its height, width and channels: 3, or 1 of a gray image.
ImageShape image_shape_of(const std::filesystem::path& path);

// The pixels, row by row, in 1 or 3 channels: gray ones are repeated, transparent ones lie on black, and of 16 bits 8
// are left. The values are the stored ones, whatever the file says on gamma and color profiles. Throws Error where the
// image has another height or width, or colors where one channel is asked for.
void read_image(const std::filesystem::path& path, const ImageShape& shape, std::span<std::uint8_t> pixels);

}  // namespace quaver
