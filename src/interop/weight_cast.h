// A weight on its way into a file: cast band by band into the codes of a format, and the scales that go with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/quantize.h"
#include "interop/bands.h"
#include "interop/weight_format.h"
#include "io/safetensors.h"

namespace quaver {

// Whether the format has a scale of the whole tensor, so that the amax is needed before the first band.
constexpr bool needs_amax(WeightFormat format) {
  return format == WeightFormat::fp8_tensor || format == WeightFormat::nvfp4;
}

// The tensors that hold a weight of this name and shape in a file: its codes first.
std::vector<TensorSpec> stored_tensors(const std::string& name, WeightFormat format,
                                       const std::vector<std::int64_t>& shape);

// Layers that serving programs fuse (q, k and v; gate and up) must have one global scale in NVFP4: an equal key says
// which, by the name of a weight; it is the name itself for all others.
std::string fused_key(const std::string& name);

struct ScaleRange {
  float smallest = 0;  // that is not 0
  float largest = 0;   // 0: there are none
};

class WeightCast {
 public:
  // amax: of the weight, and of those it is fused with; read where needs_amax().
  WeightCast(WeightFormat format, Size rows, Size cols, float amax, Detail detail = Detail::counts);

  Size row_bytes() const { return (cols_ * info(spec_.format).storage_bits + 7) / 8; }

  // Codes of a band. Threads may cast different bands at a time.
  void cast(const Band& band, const float* x, std::byte* codes, CastStatistics& statistics);

  // Once all bands are cast: the bytes of stored_tensors() behind the codes, and the range of the factors that values
  // are multiplied by.
  std::vector<std::vector<std::byte>> scales() const;
  ScaleRange scale_range() const;

 private:
  WeightFormat format_;
  QuantSpec spec_;
  Size cols_;
  Detail detail_;
  float tensor_s_ = 1;      // as values are multiplied before the cast
  float tensor_scale_ = 1;  // its inverse
  std::vector<float> block_scales_;
};

}  // namespace quaver
