// The safetensors file format, read strictly and written atomically: an 8-byte header length, a JSON header that names
// each tensor's type, shape and place, then the tensors' bytes, little-endian, without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_io.h"

namespace quaver {

// dtype is a name of the format: F64 F32 F16 BF16 F8_E4M3 F8_E5M2 F8_E8M0, I8 to I64, U8 to U64, BOOL.
// FP4 travels as packed U8. The data of a file from elsewhere may be unaligned: copy it out by memcpy.
struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

using Metadata = std::map<std::string, std::string>;

// Bytes of one element, or nothing where the type is unknown.
std::optional<std::size_t> safetensors_element_bytes(std::string_view dtype);

struct SafetensorsContent {
  std::vector<TensorEntry> tensors;  // in the order of their bytes in the file
  Metadata metadata;
};

// Reads a file held in memory; the tensors' data point into it. Throws Error, with the source's name, on anything that
// the format does not allow: a length past the end, a gap, an overlap, a duplicate name, an unknown type or field, a
// shape whose product overflows or disagrees with the bytes.
SafetensorsContent parse_safetensors(std::span<const std::byte> file, std::string_view source);

// An open file. Tensors stay valid while it lives, also when it is moved.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);

  std::span<const TensorEntry> tensors() const { return content_.tensors; }
  const TensorEntry* find(std::string_view name) const;  // nullptr where there is none
  const TensorEntry& at(std::string_view name) const;    // throws Error naming the file and the tensor
  const Metadata& metadata() const { return content_.metadata; }
  const std::filesystem::path& path() const { return path_; }

 private:
  SafetensorsFile(std::filesystem::path path, MappedFile file);
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsContent content_;
  std::vector<std::size_t> by_name_;  // indices of content_.tensors, sorted by name
};

// A tensor whose bytes come later.
struct TensorSpec {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
};

// A file whose tensors are written one after the other, so that only one of them need be in memory. Nothing exists
// under the path before commit(), which throws Error where bytes are missing.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::span<const TensorSpec> tensors,
                    const Metadata& metadata = {});

  void write(std::span<const std::byte> bytes);  // of the next tensor, whole or a part of it
  FileDigest commit();

 private:
  AtomicFile file_;
  std::uint64_t left_ = 0;  // bytes to come
};

std::uint64_t tensor_bytes(const TensorEntry& tensor);  // by its type and shape

// A file as it will be, before its tensors' bytes are there: for those who write it together.
struct SafetensorsLayout {
  std::string head;                    // what comes before the tensors
  std::vector<std::size_t> order;      // of the tensors in the file
  std::vector<std::uint64_t> offsets;  // in the file, of each tensor as given
  std::uint64_t size = 0;
};
SafetensorsLayout safetensors_layout(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                                     const Metadata& metadata = {});

// Writes the tensors, wider types first so that every tensor is aligned to its element, otherwise in the order given.
// "format": "pt" is added to the metadata unless it is given: some loaders refuse a file without it.
FileDigest write_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                             const Metadata& metadata = {});

}  // namespace quaver
