#include "interop/weight_cast.h"

#include <array>
#include <cstring>
#include <span>

namespace quaver {

namespace {

std::vector<std::byte> raw_bytes(std::span<const float> values) {
  std::vector<std::byte> bytes(values.size_bytes());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

CodeMatrix matrix_of(const QuantSpec& spec, Size rows, Size cols) { return {.spec = spec, .rows = rows, .cols = cols}; }

// [1], [rows, 1] or [rows / 128, cols / 128], both rounded up.
std::vector<std::int64_t> scale_shape(WeightFormat format, Size rows, Size cols) {
  if (format == WeightFormat::fp8_tensor) return {1};
  const CodeMatrix matrix = matrix_of(spec_of(format), rows, cols);
  return {matrix.scale_rows(), matrix.scale_cols()};
}

}  // namespace

std::vector<TensorSpec> stored_tensors(const std::string& name, WeightFormat format,
                                       const std::vector<std::int64_t>& shape) {
  const std::string type(safetensors_type(format));
  if (!is_quantized(format)) return {{name, type, shape}};
  const Size rows = shape[0];
  const Size cols = shape[1];
  const std::vector<std::int64_t> scales = scale_shape(format, rows, cols);
  if (format == WeightFormat::nvfp4) {
    return {{name + std::string(suffix::packed), type, {rows, cols / 2}},
            {name + std::string(suffix::scale), "F8_E4M3", scales},
            {name + std::string(suffix::global_scale), "F32", {1}}};
  }
  const bool deepseek = format == WeightFormat::deepseek_block;
  return {{name, type, shape}, {name + std::string(deepseek ? suffix::scale_inv : suffix::scale), "F32", scales}};
}

std::string fused_key(const std::string& name) {
  constexpr std::array<std::array<std::string_view, 3>, 3> fused{
      {{".q_proj.weight", ".k_proj.weight", ".v_proj.weight"},
       {".gate_proj.weight", ".up_proj.weight", ""},
       {".w1.weight", ".w3.weight", ""}}};
  for (const auto& members : fused) {
    for (const std::string_view end : members) {
      if (end.empty() || !name.ends_with(end)) continue;
      return name.substr(0, name.size() - end.size()) + std::string(members.front());
    }
  }
  return name;
}

WeightCast::WeightCast(WeightFormat format, Size rows, Size cols, float amax, Detail detail)
    : format_(format), spec_(spec_of(format)), cols_(cols), detail_(detail) {
  if (needs_amax(format)) tensor_s_ = tensor_scale_for(spec_, amax);
  tensor_scale_ = 1.0F / tensor_s_;
  const CodeMatrix matrix = matrix_of(spec_, rows, cols);
  if (matrix.has_block_scales()) {
    block_scales_.resize(static_cast<std::size_t>(matrix.scale_rows() * matrix.scale_cols()));
  }
}

void WeightCast::cast(const Band& band, const float* x, std::byte* codes, CastStatistics& statistics) {
  CodeMatrix out = matrix_of(spec_, band.count, cols_);
  out.codes = codes;
  out.tensor_scale = &tensor_scale_;
  if (out.has_block_scales()) {
    out.block_scales = block_scales_.data() + band.first / spec_.block.rows * out.scale_cols();
  }
  const CastOptions options{.detail = detail_};
  for (Size first = 0; first < band.count; first += tile_rows) {
    const SourceTile tile{x + first * cols_, cols_, first, std::min(tile_rows, band.count - first)};
    quantize_tile(tile, options, out, statistics);
  }
}

std::vector<std::vector<std::byte>> WeightCast::scales() const {
  if (!is_quantized(format_)) return {};
  if (format_ == WeightFormat::fp8_tensor) return {raw_bytes({&tensor_scale_, 1})};
  if (format_ != WeightFormat::nvfp4) return {raw_bytes(block_scales_)};
  std::vector<std::byte> codes(block_scales_.size());  // they are values of E4M3: nothing is rounded
  encode_array(Format::e4m3, block_scales_.data(), 1.0F, static_cast<Size>(block_scales_.size()), codes.data());
  return {std::move(codes), raw_bytes({&tensor_s_, 1})};
}

ScaleRange WeightCast::scale_range() const {
  if (!is_quantized(format_)) return {};
  if (block_scales_.empty()) return {tensor_scale_, tensor_scale_};
  ScaleRange range;
  for (const float stored : block_scales_) {
    const float scale = stored * tensor_scale_;
    if (scale > 0 && (range.smallest == 0 || scale < range.smallest)) range.smallest = scale;
    range.largest = std::max(range.largest, scale);
  }
  return range;
}

}  // namespace quaver
