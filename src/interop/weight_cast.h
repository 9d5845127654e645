// A weight on its way into a file: cast band by band into the codes of a format, and the scales that go with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "formats/quantize.h"
#include "interop/bands.h"
#include "interop/weight_files.h"
#include "interop/weight_format.h"

namespace quaver {

// Whether the format has a scale of the whole tensor, so that the amax is needed before the first band.
constexpr bool needs_amax(WeightFormat format) {
  return format == WeightFormat::fp8_tensor || format == WeightFormat::nvfp4;
}

// Layers that serving programs fuse (q, k and v; gate and up) must have one global scale in NVFP4: an equal key says
// which, by the name of a weight; it is the name itself for all others.
std::string fused_key(const std::string& name);

// NVFP4's global scale of a layer's inputs with this amax, which other programs cast at run time: by the rule of 6
// alone.
float nvfp4_input_scale(float amax);

struct ScaleRange {
  float smallest = 0;  // that is not 0
  float largest = 0;   // 0: there are none
};

// The name of a weight, its format in the file and its shape.
struct WeightTarget {
  std::string name;
  WeightFormat format = WeightFormat::bf16;
  std::vector<std::int64_t> shape;

  Size cols() const { return shape.empty() ? 1 : shape.back(); }
  Size rows() const;  // all dimensions but the last
};

// The tensors that hold the weight in a file: its codes first.
std::vector<TensorSpec> stored_tensors(const WeightTarget& target);

class WeightCast {
 public:
  // amax: of the weight, and of those it is fused with; read where needs_amax().
  WeightCast(WeightTarget target, float amax, Detail detail = Detail::counts);

  // Fills a band of values. Called by several threads at a time, for different bands.
  using Read = std::function<void(const Band& band, float* values)>;

  // Casts all values and writes codes and scales to the tensors that stored_tensors() gives.
  CastStatistics write(const Read& read, WeightFiles& files);

  // Once it is written: of the factors that codes are multiplied by.
  ScaleRange scale_range() const;

 private:
  Size row_bytes() const { return (target_.cols() * info(spec_.format).storage_bits + 7) / 8; }
  void cast(const Band& band, const float* x, std::byte* codes, CastStatistics& statistics);
  std::vector<std::vector<std::byte>> scales() const;

  WeightTarget target_;
  QuantSpec spec_;
  Detail detail_;
  float tensor_s_ = 1;      // as values are multiplied before the cast
  float tensor_scale_ = 1;  // its inverse
  std::vector<float> block_scales_;
};

}  // namespace quaver
