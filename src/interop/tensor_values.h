// Values between the types and layouts of safetensors files and those of parameters, widened exactly and rounded to
// nearest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "interop/hf_layout.h"
#include "interop/stored_weight.h"
#include "quaver/format.h"

namespace quaver {

enum class Finite : std::uint8_t { no, yes };

// One parameter as it is stored, filled from the tensors that it consists of.
class ParameterCodes {
 public:
  ParameterCodes(Format format, Size count);

  // Puts a weight of a folder, whose shape has been checked, in its place. no: a value was not finite.
  Finite take(const HfTensor& place, const WeightReader& weight);

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

// The values of one tensor of a file, in the file's layout: its part of the parameter.
std::vector<float> tensor_values(const HfTensor& tensor, const StoredParameter& parameter);

}  // namespace quaver
