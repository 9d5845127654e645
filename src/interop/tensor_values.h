// Values between the types and layouts of safetensors files and those of parameters, widened exactly and rounded to
// nearest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "interop/hf_layout.h"
#include "io/safetensors.h"
#include "quaver/format.h"

namespace quaver {

// F32, F16 and BF16; nothing for the others.
std::optional<Format> format_of_dtype(std::string_view dtype);

enum class Finite : std::uint8_t { no, yes };

// One parameter as it is stored, filled from the tensors that it consists of.
class ParameterCodes {
 public:
  ParameterCodes(Format format, Size count);

  // Puts a tensor of a file, whose type and shape have been checked, in its place. no: a value was not finite.
  Finite take(const HfTensor& place, const TensorEntry& tensor);

  Size filled() const { return filled_; }
  std::span<const std::byte> bytes() const { return codes_; }

 private:
  Format format_;
  Size filled_ = 0;
  std::vector<std::byte> codes_;
};

// A parameter's codes, as a checkpoint holds them.
struct StoredParameter {
  Format format = Format::f32;
  std::span<const std::byte> bytes;
};

// The bytes of one tensor of a file, in the file's layout and this format: its part of the parameter.
std::vector<std::byte> tensor_bytes(const HfTensor& tensor, const StoredParameter& parameter, Format format);

}  // namespace quaver
