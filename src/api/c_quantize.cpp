// The C interface to formats, quantized matrices and recipes.
#include <algorithm>
#include <limits>

#include "api/c_guard.h"
#include "api/c_values.h"

#include "quaver/format.h"
#include "quaver/quantize.h"
#include "quaver/recipe.h"

using namespace quaver;
using quaver::c::bytes_at;
using quaver::c::c_statistics;
using quaver::c::enumerator;
using quaver::c::extent;
using quaver::c::format_of;
using quaver::c::guarded;
using quaver::c::Invalid;
using quaver::c::require;
using quaver::c::require_length;
using quaver::c::role_of;

struct quaver_matrix {
  QuantizedMatrix matrix;
};

namespace {

QuantSpec spec_of(const quaver_spec& from) {
  QuantSpec spec;
  spec.format = format_of(from.format);
  spec.block = {from.block_rows, from.block_cols};
  spec.scale = enumerator<ScaleFormat>(from.scale_format, 6, "scale_format");
  spec.policy = enumerator<ScalePolicy>(from.policy, 4, "policy");
  spec.rounding = enumerator<Rounding>(from.rounding, 2, "rounding");
  spec.rotation = enumerator<Rotation>(from.rotation, 2, "rotation");
  spec.margin = from.margin;
  spec.shrink = from.shrink;
  return spec;
}

quaver_spec c_spec(const QuantSpec& spec) {
  return {.format = static_cast<quaver_format>(spec.format),
          .block_rows = spec.block.rows,
          .block_cols = spec.block.cols,
          .scale_format = static_cast<std::int32_t>(spec.scale),
          .policy = static_cast<std::int32_t>(spec.policy),
          .rounding = static_cast<std::int32_t>(spec.rounding),
          .rotation = static_cast<std::int32_t>(spec.rotation),
          .margin = spec.margin,
          .shrink = spec.shrink};
}

CastSettings settings_of(const quaver_cast_settings& from) {
  CastSettings settings;
  settings.spec = spec_of(from.spec);
  settings.side = enumerator<Side>(from.side, 2, "side");
  settings.detail = enumerator<Detail>(from.detail, 2, "detail");
  settings.scale = from.scale;
  settings.seed = from.seed;
  settings.step = from.step;
  settings.stream = from.stream;
  return settings;
}

DeviceMatrix matrix_of(const quaver_device_matrix& from) {
  return {.values = from.values,
          .format = format_of(from.format),
          .rows = from.rows,
          .cols = from.cols,
          .device = enumerator<DeviceKind>(from.device, 3, "device"),
          .gpu = from.gpu,
          .stream = from.stream};
}

}  // namespace

quaver_status quaver_format_by_name(const char* name, quaver_format* out) {
  return guarded([&] { *require(out, "out") = static_cast<quaver_format>(parse_format(c::text(name, "name"))); });
}

quaver_status quaver_describe_format(quaver_format format, quaver_format_info* out) {
  return guarded([&] {
    const FormatInfo& from = info(format_of(format));
    *require(out, "out") = {.name = from.name.data(),
                            .storage_bits = from.storage_bits,
                            .exponent_bits = from.exponent_bits,
                            .mantissa_bits = from.mantissa_bits,
                            .bias = from.bias,
                            .max = from.max,
                            .min_normal = from.min_normal,
                            .min_subnormal = from.min_subnormal,
                            .has_infinity = from.has_infinity ? 1 : 0,
                            .has_nan = from.has_nan ? 1 : 0};
  });
}

quaver_status quaver_cast(quaver_format format, const float* x, float* out, size_t count) {
  return guarded([&] {
    const Format known = format_of(format);
    if (count == 0) return;
    std::transform(require(x, "x"), x + count, require(out, "out"),
                   [known](float value) { return decode(known, encode(known, value)); });
  });
}

quaver_status quaver_encode(quaver_format format, const float* x, uint32_t* codes, size_t count) {
  return guarded([&] {
    const Format known = format_of(format);
    if (count == 0) return;
    std::transform(require(x, "x"), x + count, require(codes, "codes"),
                   [known](float value) { return encode(known, value); });
  });
}

quaver_status quaver_decode(quaver_format format, const uint32_t* codes, float* out, size_t count) {
  return guarded([&] {
    const Format known = format_of(format);
    if (count == 0) return;
    const int bits = code_bits(info(known));
    const auto is_code = [bits](std::uint32_t code) { return bits == 32 || code >> bits == 0; };
    if (!std::all_of(require(codes, "codes"), codes + count, is_code)) {
      throw Invalid("a code has more than " + std::to_string(bits) + " bits", "pass codes of the format");
    }
    std::transform(codes, codes + count, require(out, "out"),
                   [known](std::uint32_t code) { return decode(known, code); });
  });
}

void quaver_default_cast(quaver_cast_settings* settings) {
  if (settings == nullptr) return;
  *settings = {};
  settings->spec = c_spec({.format = Format::e4m3, .policy = ScalePolicy::current});
}

quaver_status quaver_quantize(const float* x, int64_t rows, int64_t cols, const quaver_cast_settings* settings,
                              quaver_matrix** out) {
  return guarded([&] {
    require(out, "out");
    const std::size_t count = extent(rows, cols);
    const CastSettings cast = settings_of(*require(settings, "settings"));
    *out = new quaver_matrix{QuantizedMatrix({{require(x, "x"), count}, rows, cols}, cast)};
  });
}

void quaver_matrix_free(quaver_matrix* matrix) { delete matrix; }

quaver_status quaver_matrix_get(const quaver_matrix* matrix, quaver_matrix_view* out) {
  return guarded([&] {
    const QuantizedMatrix& from = require(matrix, "matrix")->matrix;
    *require(out, "out") = {
        .format = static_cast<quaver_format>(from.settings().spec.format),
        .rows = from.rows(),
        .cols = from.cols(),
        .row_bytes = from.row_bytes(),
        .codes = reinterpret_cast<const std::uint8_t*>(from.codes().data()),
        .scale_rows = from.scale_rows(),
        .scale_cols = from.scale_cols(),
        .block_scales = from.block_scales().empty() ? nullptr : from.block_scales().data(),
        .tensor_scale = from.on_gpu() ? std::numeric_limits<float>::quiet_NaN() : from.tensor_scale(),
        .tensor_scale_address = from.tensor_scale_address(),
        .on_gpu = from.on_gpu() ? 1 : 0};
  });
}

quaver_status quaver_matrix_statistics(const quaver_matrix* matrix, quaver_statistics* out) {
  return guarded([&] { *require(out, "out") = c_statistics(require(matrix, "matrix")->matrix.statistics()); });
}

quaver_status quaver_dequantize(const quaver_matrix* matrix, float* out, size_t count) {
  return guarded([&] {
    const QuantizedMatrix& from = require(matrix, "matrix")->matrix;
    require_length(count, extent(from.rows(), from.cols()), "out");
    from.dequantize({require(out, "out"), count});
  });
}

quaver_status quaver_gemm(const quaver_matrix* a, const quaver_matrix* b, float* out, size_t count) {
  return guarded([&] { gemm(require(a, "a")->matrix, require(b, "b")->matrix, {require(out, "out"), count}); });
}

quaver_status quaver_cast_memory(const quaver_device_matrix* x, const quaver_cast_settings* settings,
                                 quaver_device_memory* out) {
  return guarded([&] {
    const CastMemory needed =
        QuantizedMatrix::memory(matrix_of(*require(x, "x")), settings_of(*require(settings, "settings")));
    require(out, "out")->kept_bytes = needed.kept;
    out->scratch_bytes = needed.scratch;
  });
}

quaver_status quaver_quantize_on_device(const quaver_device_matrix* x, const quaver_cast_settings* settings,
                                        const quaver_device_memory* memory, quaver_matrix** out) {
  return guarded([&] {
    require(out, "out");
    const quaver_device_memory& given = *require(memory, "memory");
    *out = new quaver_matrix{
        QuantizedMatrix(matrix_of(*require(x, "x")), settings_of(*require(settings, "settings")),
                        {bytes_at(given.kept, given.kept_bytes), bytes_at(given.scratch, given.scratch_bytes)})};
  });
}

quaver_status quaver_dequantize_on_device(const quaver_matrix* matrix, const quaver_device_matrix* out) {
  return guarded([&] { require(matrix, "matrix")->matrix.dequantize(matrix_of(*require(out, "out"))); });
}

quaver_status quaver_gemm_on_device(const quaver_matrix* a, const quaver_matrix* b, const quaver_device_matrix* out) {
  return guarded([&] { gemm(require(a, "a")->matrix, require(b, "b")->matrix, matrix_of(*require(out, "out"))); });
}

size_t quaver_recipe_count(void) { return recipes().size(); }

quaver_status quaver_recipe_at(size_t index, const char** name, const char** summary) {
  return guarded([&] {
    if (index >= recipes().size()) throw Invalid("there is no recipe " + std::to_string(index), "count them first");
    *require(name, "name") = recipes()[index].name.data();
    if (summary != nullptr) *summary = recipes()[index].summary.data();
  });
}

quaver_status quaver_recipe_spec(const char* recipe, int32_t role, int32_t side, quaver_spec* out) {
  return guarded([&] {
    const Recipe found = find_recipe(c::text(recipe, "recipe"));
    const SiteSpec& spec = found.of(role_of(role));
    const bool rows = enumerator<Side>(side, 2, "side") == Side::rows;
    *require(out, "out") = c_spec(rows ? spec.rows : spec.columns);
  });
}
