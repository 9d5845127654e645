#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <fmt/core.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

namespace quaver {
namespace fs = std::filesystem;
namespace {

static_assert(std::endian::native == std::endian::little, "tensor bytes are written as they lie in memory");

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t max_header_bytes = 100'000'000;
constexpr std::string_view metadata_key = "__metadata__";

struct Type {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<Type, 16> types{{{"F64", 8},
                                      {"F32", 4},
                                      {"F16", 2},
                                      {"BF16", 2},
                                      {"F8_E4M3", 1},
                                      {"F8_E5M2", 1},
                                      {"F8_E8M0", 1},
                                      {"I64", 8},
                                      {"I32", 4},
                                      {"I16", 2},
                                      {"I8", 1},
                                      {"U64", 8},
                                      {"U32", 4},
                                      {"U16", 2},
                                      {"U8", 1},
                                      {"BOOL", 1}}};

// A name from a file, fit for a message: bounded, and without control characters.
std::string printable(std::string_view name) {
  constexpr std::size_t longest = 120;
  std::string text;
  for (const char c : name.substr(0, longest)) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  if (name.size() > longest) text += "...";
  return text;
}

// Elements × element size, or nothing where it overflows or a dimension is negative.
std::optional<std::uint64_t> byte_count(std::span<const std::int64_t> shape, std::size_t element_bytes) {
  std::uint64_t bytes = element_bytes;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dimension), &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::uint64_t> offsets;
};

[[noreturn]] void not_safetensors(std::string_view source, const std::string& what) {
  throw Error(fmt::format("{}: {}", source, what), "the file is damaged or not safetensors: copy or export it again");
}

// Builds the header from parse events, so that a hostile 100 MB header costs no document tree and duplicate keys,
// which a tree would swallow, are seen. Throws Error from within the events.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string_view source) : source_(source) {}

  std::vector<HeaderEntry> entries;
  Metadata metadata;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        fail(fmt::format("tensor '{}' has a dimension beyond 63 bits", tensor()));
      }
      entries.back().shape.push_back(static_cast<std::int64_t>(value));
    } else if (place_ == Place::offsets) {
      if (entries.back().offsets.size() == 2) fail(fmt::format("tensor '{}' has more than two offsets", tensor()));
      entries.back().offsets.push_back(value);
    } else {
      return unexpected("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata_value) {
      metadata[metadata_name_] = value;
      place_ = Place::metadata;
    } else if (place_ == Place::dtype) {
      entries.back().dtype = value;
      place_ = Place::tensor;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::start) {
      place_ = Place::top;
    } else if (place_ == Place::metadata_start) {
      place_ = Place::metadata;
    } else if (place_ == Place::tensor_start) {
      place_ = Place::tensor;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      if (seen_ != all_fields) {
        fail(fmt::format("tensor '{}' lacks one of dtype, shape and data_offsets", tensor()));
      }
      place_ = Place::top;
    } else if (place_ == Place::metadata) {
      place_ = Place::top;
    } else {
      place_ = Place::end;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::shape_start) {
      place_ = Place::shape;
    } else if (place_ == Place::offsets_start) {
      place_ = Place::offsets;
    } else {
      return unexpected("a list");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && entries.back().offsets.size() != 2) {
      fail(fmt::format("tensor '{}' needs two offsets", tensor()));
    }
    place_ = Place::tensor;
    return true;
  }

  bool key(string_t& value) override {
    switch (place_) {
      case Place::top:
        return top_key(value);
      case Place::metadata:
        return metadata_entry(value);
      case Place::tensor:
        return tensor_field(value);
      default:
        return unexpected("a key");
    }
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail(fmt::format("the header is not valid JSON at byte {}", position));
  }

 private:
  enum class Place {
    start,
    top,
    metadata_start,
    metadata,
    metadata_value,
    tensor_start,
    tensor,
    dtype,
    shape_start,
    shape,
    offsets_start,
    offsets,
    end
  };
  static constexpr unsigned dtype_field = 1, shape_field = 2, offsets_field = 4, all_fields = 7;

  bool top_key(const std::string& name) {
    if (!names_.insert(name).second) fail(fmt::format("the name '{}' appears twice", printable(name)));
    if (name == metadata_key) {
      place_ = Place::metadata_start;
    } else {
      place_ = Place::tensor_start;
      entries.push_back({name, {}, {}, {}});
      seen_ = 0;
    }
    return true;
  }

  bool metadata_entry(const std::string& name) {
    if (metadata.contains(name)) fail(fmt::format("the metadata key '{}' appears twice", printable(name)));
    metadata_name_ = name;
    place_ = Place::metadata_value;
    return true;
  }

  bool tensor_field(const std::string& name) {
    unsigned field = 0;
    if (name == "dtype") {
      field = dtype_field;
      place_ = Place::dtype;
    } else if (name == "shape") {
      field = shape_field;
      place_ = Place::shape_start;
    } else if (name == "data_offsets") {
      field = offsets_field;
      place_ = Place::offsets_start;
    } else {
      fail(fmt::format("tensor '{}' has an unknown field '{}'", tensor(), printable(name)));
    }
    if ((seen_ & field) != 0) fail(fmt::format("tensor '{}' has the field '{}' twice", tensor(), name));
    seen_ |= field;
    return true;
  }

  std::string tensor() const { return printable(entries.back().name); }

  bool unexpected(std::string_view what) const {
    const std::string where = place_ == Place::start || entries.empty() ? "" : fmt::format(" (after '{}')", tensor());
    fail(fmt::format("the header has {} where the format does not allow it{}", what, where));
  }

  [[noreturn]] void fail(const std::string& what) const { not_safetensors(source_, what); }

  std::string_view source_;
  Place place_ = Place::start;
  unsigned seen_ = 0;
  std::string metadata_name_;
  std::set<std::string> names_;
};

// Checks one tensor's place against its type and shape; its bytes must start where the previous tensor's ended.
TensorEntry place_tensor(HeaderEntry&& entry, std::uint64_t expected_begin, std::span<const std::byte> data,
                         std::string_view source) {
  const std::string shown = printable(entry.name);
  const auto element_bytes = safetensors_element_bytes(entry.dtype);
  if (!element_bytes) {
    throw Error(fmt::format("{}: tensor '{}' has the unknown type '{}'", source, shown, printable(entry.dtype)),
                "convert the tensor to a type this version reads, such as F32 or BF16");
  }
  const std::uint64_t begin = entry.offsets[0];
  const std::uint64_t end = entry.offsets[1];
  if (begin > end || end > data.size()) {
    not_safetensors(source, fmt::format("tensor '{}' spans bytes {} to {} of {}", shown, begin, end, data.size()));
  }
  if (begin != expected_begin) {
    not_safetensors(source, fmt::format("tensor '{}' starts at byte {} where the tensor before it ends at {}", shown,
                                        begin, expected_begin));
  }
  const auto bytes = byte_count(entry.shape, *element_bytes);
  if (!bytes) not_safetensors(source, fmt::format("the shape of tensor '{}' overflows 64 bits", shown));
  if (*bytes != end - begin) {
    not_safetensors(source,
                    fmt::format("tensor '{}' needs {} bytes by type and shape but has {}", shown, *bytes, end - begin));
  }
  return {std::move(entry.name), std::move(entry.dtype), std::move(entry.shape), data.subspan(begin, end - begin)};
}

// The bytes of each tensor.
std::vector<std::uint64_t> check_for_writing(const fs::path& path, std::span<const TensorSpec> tensors) {
  std::set<std::string_view> names;
  std::vector<std::uint64_t> sizes;
  for (const TensorSpec& tensor : tensors) {
    const std::string where = fmt::format("{}: tensor '{}'", path.string(), printable(tensor.name));
    if (tensor.name == metadata_key) throw Error(where + " has a reserved name", "rename the tensor");
    if (!names.insert(tensor.name).second) throw Error(where + " is given twice", "give every tensor its own name");
    const auto element_bytes = safetensors_element_bytes(tensor.dtype);
    if (!element_bytes) {
      throw Error(fmt::format("{} has the unknown type '{}'", where, printable(tensor.dtype)),
                  "use a type of the format, such as F32, BF16 or U8");
    }
    const auto bytes = byte_count(tensor.shape, *element_bytes);
    if (!bytes) throw Error(where + " has a shape that overflows 64 bits", "pass the tensor's own shape");
    sizes.push_back(*bytes);
  }
  return sizes;
}

struct PlacedTensor {
  const TensorSpec& spec;
  std::uint64_t bytes;
};

std::string render_header(const fs::path& path, std::span<const PlacedTensor> ordered, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  auto& pairs = header[std::string(metadata_key)];
  pairs["format"] = "pt";
  for (const auto& [key, value] : metadata) pairs[key] = value;
  std::uint64_t offset = 0;
  for (const auto& [spec, bytes] : ordered) {
    const std::uint64_t end = offset + bytes;
    // push_back, not operator[]: an ordered object looks a key up by walking it, and the names are known to differ.
    header.get_ref<nlohmann::ordered_json::object_t&>().push_back(
        {spec.name, {{"dtype", spec.dtype}, {"shape", spec.shape}, {"data_offsets", {offset, end}}}});
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(fmt::format("{}: a tensor name or metadata value is not UTF-8", path.string()), "use UTF-8 text");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > max_header_bytes) {
    throw Error(fmt::format("{}: the header would take {} bytes, above the format's {}", path.string(), text.size(),
                            max_header_bytes),
                "split the tensors over several files");
  }
  return text;
}

// What comes before the tensors: the header's length, and the header.
std::string head_of(const fs::path& path, std::span<const PlacedTensor> ordered, const Metadata& metadata) {
  const std::string header = render_header(path, ordered, metadata);
  const auto length = std::uint64_t{header.size()};
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header;
}

}  // namespace

std::optional<std::size_t> safetensors_element_bytes(std::string_view dtype) {
  const auto* const found = std::find_if(types.begin(), types.end(), [&](const Type& t) { return t.name == dtype; });
  if (found == types.end()) return std::nullopt;
  return found->bytes;
}

SafetensorsContent parse_safetensors(std::span<const std::byte> file, std::string_view source) {
  if (file.size() < length_bytes)
    not_safetensors(source, fmt::format("{} bytes are too few for a header", file.size()));
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) header_bytes |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  if (header_bytes > max_header_bytes) {
    not_safetensors(source,
                    fmt::format("the header claims {} bytes, above the format's {}", header_bytes, max_header_bytes));
  }
  if (header_bytes > file.size() - length_bytes) {
    not_safetensors(source, fmt::format("the header claims {} bytes of a file of {}", header_bytes, file.size()));
  }
  const auto header = file.subspan(length_bytes, header_bytes);
  if (header.empty() || header.front() != std::byte{'{'}) not_safetensors(source, "the header does not start with '{'");

  HeaderReader reader(source);
  const auto* const text = reinterpret_cast<const char*>(header.data());
  nlohmann::json::sax_parse(text, text + header.size(), &reader);

  const auto data = file.subspan(length_bytes + header_bytes);
  std::sort(reader.entries.begin(), reader.entries.end(),
            [](const HeaderEntry& a, const HeaderEntry& b) { return a.offsets < b.offsets; });
  SafetensorsContent content;
  content.metadata = std::move(reader.metadata);
  content.tensors.reserve(reader.entries.size());
  std::uint64_t end = 0;
  for (HeaderEntry& entry : reader.entries) {
    content.tensors.push_back(place_tensor(std::move(entry), end, data, source));
    end += content.tensors.back().data.size();
  }
  if (end != data.size()) {
    not_safetensors(source, fmt::format("the tensors end at byte {} but the data has {} bytes", end, data.size()));
  }
  return content;
}

SafetensorsFile::SafetensorsFile(fs::path path, MappedFile file)
    : path_(std::move(path)), file_(std::move(file)), content_(parse_safetensors(file_.bytes(), path_.string())) {
  by_name_.resize(content_.tensors.size());
  for (std::size_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
  std::sort(by_name_.begin(), by_name_.end(),
            [&](std::size_t a, std::size_t b) { return content_.tensors[a].name < content_.tensors[b].name; });
}

SafetensorsFile SafetensorsFile::open(const fs::path& path) { return {path, MappedFile::open(path)}; }

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](std::size_t i, std::string_view wanted) { return content_.tensors[i].name < wanted; });
  if (found == by_name_.end() || content_.tensors[*found].name != name) return nullptr;
  return &content_.tensors[*found];
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  if (const TensorEntry* tensor = find(name)) return *tensor;
  throw Error(fmt::format("{}: there is no tensor '{}'", path_.string(), printable(name)),
              "check that the file belongs to this model");
}

std::uint64_t tensor_bytes(const TensorEntry& tensor) {
  return *byte_count(tensor.shape, *safetensors_element_bytes(tensor.dtype));
}

SafetensorsLayout safetensors_layout(const fs::path& path, std::span<const TensorEntry> tensors,
                                     const Metadata& metadata) {
  std::vector<TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const TensorEntry& tensor : tensors) specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  const std::vector<std::uint64_t> sizes = check_for_writing(path, specs);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool has_data = tensors[i].data.data() != nullptr;  // else another writer has it
    if (!has_data || tensors[i].data.size() == sizes[i]) continue;
    throw Error(fmt::format("{}: tensor '{}' has {} bytes, which its type and shape do not give", path.string(),
                            printable(tensors[i].name), tensors[i].data.size()),
                "pass the whole tensor, with its own type and shape");
  }
  SafetensorsLayout layout;
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  std::stable_sort(layout.order.begin(), layout.order.end(), [&](std::size_t a, std::size_t b) {
    return safetensors_element_bytes(tensors[a].dtype) > safetensors_element_bytes(tensors[b].dtype);
  });
  std::vector<PlacedTensor> placed;
  placed.reserve(tensors.size());
  for (const std::size_t i : layout.order) placed.push_back({specs[i], sizes[i]});
  layout.head = head_of(path, placed, metadata);
  layout.size = layout.head.size();
  layout.offsets.resize(tensors.size());
  for (const std::size_t i : layout.order) {
    layout.offsets[i] = layout.size;
    layout.size += sizes[i];
  }
  return layout;
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::span<const TensorSpec> tensors,
                                     const Metadata& metadata)
    : file_(path) {
  const std::vector<std::uint64_t> sizes = check_for_writing(path, tensors);
  std::vector<PlacedTensor> placed;
  placed.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) placed.push_back({tensors[i], sizes[i]});
  file_.write(head_of(path, placed, metadata));
  for (const std::uint64_t size : sizes) left_ += size;
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > left_) {
    throw Error(fmt::format("{}: {} bytes are given where {} are left", file_.path().string(), bytes.size(), left_),
                "pass each tensor with its own type and shape");
  }
  left_ -= bytes.size();
  file_.write(bytes);
}

FileDigest SafetensorsWriter::commit() {
  if (left_ > 0) {
    throw Error(fmt::format("{}: {} bytes of its tensors were not given", file_.path().string(), left_),
                "pass every tensor");
  }
  return file_.commit();
}

FileDigest write_safetensors(const fs::path& path, std::span<const TensorEntry> tensors, const Metadata& metadata) {
  const SafetensorsLayout layout = safetensors_layout(path, tensors, metadata);
  std::vector<TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const std::size_t i : layout.order) specs.push_back({tensors[i].name, tensors[i].dtype, tensors[i].shape});
  SafetensorsWriter file(path, specs, metadata);
  for (const std::size_t i : layout.order) file.write(tensors[i].data);
  return file.commit();
}

}  // namespace quaver
