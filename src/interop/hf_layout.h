// How the tensors of a Hugging Face model lie in this library's parameters: q, k and v are one matrix here, gate and up
// another, and GPT-2's matrices are stored transposed there. Import and export both follow this list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model_config.h"

namespace quaver {

// vector: [cols]; matrix: [rows, cols]; transposed: [cols, rows].
enum class HfLayout : std::uint8_t { vector, matrix, transposed };

struct HfTensor {
  std::string name;       // as Hugging Face calls it
  std::string parameter;  // that it is a part of, or all of
  Size offset = 0;        // of its first element within the parameter
  Size rows = 1;          // as the parameter has them
  Size cols = 0;
  HfLayout layout = HfLayout::vector;

  Size count() const { return rows * cols; }
  std::vector<std::int64_t> shape() const;  // in the file
};

// Every tensor of a resolved model, in the order of its layers; together they are all of its parameters.
std::vector<HfTensor> hf_tensors(const ModelConfig& model);

}  // namespace quaver
