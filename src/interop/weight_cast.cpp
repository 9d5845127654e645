#include "interop/weight_cast.h"

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

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

Size WeightTarget::rows() const {
  Size all = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) all *= shape[i];
  return all;
}

std::vector<TensorSpec> stored_tensors(const WeightTarget& target) {
  const auto& [name, format, shape] = target;
  const std::string type(safetensors_type(format));
  if (!is_quantized(format)) return {{name, type, shape}};
  const std::vector<std::int64_t> scales = scale_shape(format, target.rows(), target.cols());
  if (format == WeightFormat::nvfp4) {
    return {{name + std::string(suffix::packed), type, {target.rows(), target.cols() / 2}},
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

float nvfp4_input_scale(float amax) {
  QuantSpec spec = spec_of(WeightFormat::nvfp4);
  spec.scale = ScaleFormat::e4m3;
  return tensor_scale_for(spec, amax);
}

WeightCast::WeightCast(WeightTarget target, float amax, Detail detail)
    : target_(std::move(target)), spec_(spec_of(target_.format)), detail_(detail) {
  if (needs_amax(target_.format)) tensor_s_ = tensor_scale_for(spec_, amax);
  tensor_scale_ = 1.0F / tensor_s_;
  const CodeMatrix matrix = matrix_of(spec_, target_.rows(), target_.cols());
  if (matrix.has_block_scales()) {
    block_scales_.resize(static_cast<std::size_t>(matrix.scale_rows() * matrix.scale_cols()));
  }
}

CastStatistics WeightCast::write(const Read& read, WeightFiles& files) {
  const Size rows = target_.rows();
  const Size cols = target_.cols();
  const std::vector<TensorSpec> parts = stored_tensors(target_);
  std::vector<CastStatistics> bands(static_cast<std::size_t>(band_count(rows, cols)));
  in_bands(rows, cols, [&](const Band& band) {
    const auto values = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(band.count * cols));
    const auto bytes = static_cast<std::size_t>(band.count * row_bytes());
    const auto codes = std::make_unique_for_overwrite<std::byte[]>(bytes);
    read(band, values.get());
    cast(band, values.get(), codes.get(), bands[static_cast<std::size_t>(band.index)]);
    files.write(parts[0].name, static_cast<std::uint64_t>(band.first * row_bytes()), {codes.get(), bytes});
  });
  const auto all_scales = scales();
  for (std::size_t i = 0; i < all_scales.size(); ++i) files.write(parts[i + 1].name, 0, all_scales[i]);
  CastStatistics statistics;  // merged in order, so that the sums do not depend on which thread was first
  for (const CastStatistics& band : bands) statistics.merge(band);
  return statistics;
}

void WeightCast::cast(const Band& band, const float* x, std::byte* codes, CastStatistics& statistics) {
  const Size cols = target_.cols();
  CodeMatrix out = matrix_of(spec_, band.count, cols);
  out.codes = codes;
  out.tensor_scale = &tensor_scale_;
  if (out.has_block_scales()) {
    out.block_scales = block_scales_.data() + band.first / spec_.block.rows * out.scale_cols();
  }
  const CastOptions options{.detail = detail_};
  for (Size first = 0; first < band.count; first += tile_rows) {
    const SourceTile tile{x + first * cols, cols, first, std::min(tile_rows, band.count - first)};
    quantize_tile(tile, options, out, statistics);
  }
}

std::vector<std::vector<std::byte>> WeightCast::scales() const {
  if (!is_quantized(target_.format)) return {};
  if (target_.format == WeightFormat::fp8_tensor) return {raw_bytes({&tensor_scale_, 1})};
  if (target_.format != WeightFormat::nvfp4) return {raw_bytes(block_scales_)};
  std::vector<std::byte> codes(block_scales_.size());  // they are values of E4M3: nothing is rounded
  encode_array(Format::e4m3, block_scales_.data(), 1.0F, static_cast<Size>(block_scales_.size()), codes.data());
  return {std::move(codes), raw_bytes({&tensor_s_, 1})};
}

ScaleRange WeightCast::scale_range() const {
  if (!is_quantized(target_.format)) return {};
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
