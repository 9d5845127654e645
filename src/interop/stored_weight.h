// A weight as a model folder stores it, in high precision or quantized with scales in tensors of their own: where its
// parts are, and its values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "interop/weight_format.h"
#include "io/safetensors.h"

namespace quaver {

class HfWeights;

// The parts lie in the folder's files, which must outlive it.
struct StoredWeight {
  std::string name;   // "layer.weight", also where the codes are packed under another
  std::string where;  // "<file>: tensor '<name>'", for messages
  WeightFormat format = WeightFormat::f32;
  std::vector<std::int64_t> shape;  // of the values
  Size rows = 0;                    // all dimensions but the last
  Size cols = 0;
  const TensorEntry* codes = nullptr;
  const TensorEntry* scales = nullptr;                // null where there are none
  const TensorEntry* global_scale = nullptr;          // of NVFP4
  std::vector<const TensorEntry*> activation_scales;  // which no weight needs

  Size count() const { return rows * cols; }
};

// The parts of a weight of high precision or of the folder's quantization, checked against each other. Throws Error,
// naming the tensor, where one is missing, is of another type or shape, or is there without a use; nothing where no
// tensor has this name.
std::optional<StoredWeight> find_weight(const HfWeights& folder, const std::string& name);

// Reads the scales at once. Throws Error where one is negative or not finite.
class WeightReader {
 public:
  explicit WeightReader(const StoredWeight& weight);

  // Rows [first, first + count) in FP32: exact where they are stored in high precision, and rounded once from code
  // times scale (for NVFP4, code times scale divided by the global scale). Threads may share it.
  void decode(Size first, Size count, float* out) const;
  std::vector<float> values() const;  // all of them; uses threads

 private:
  const StoredWeight& weight_;
  QuantSpec spec_;
  std::vector<float> scales_;
  float global_scale_ = 1;
};

}  // namespace quaver
