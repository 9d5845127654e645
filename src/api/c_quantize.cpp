// The C interface to formats, quantized matrices and linear layers.
#include <algorithm>

#include "api/c_guard.h"

#include "quaver/format.h"
#include "quaver/linear.h"
#include "quaver/quantize.h"
#include "quaver/recipe.h"

using namespace quaver;
using quaver::c::enumerator;
using quaver::c::guarded;
using quaver::c::Invalid;
using quaver::c::require;

struct quaver_matrix {
  QuantizedMatrix matrix;
};

struct quaver_linear {
  Size in;
  Size out;
  LinearLayer layer;
  std::string state = {};  // that was asked for last
};

namespace {

Format format_of(quaver_format format) { return enumerator<Format>(format, QUAVER_FORMATS, "format"); }
Role role_of(std::int32_t role) { return enumerator<Role>(role, 3, "role"); }

QuantSpec spec_of(const quaver_spec& from) {
  QuantSpec spec;
  spec.format = format_of(from.format);
  spec.block = {from.block_rows, from.block_cols};
  spec.scale = enumerator<ScaleFormat>(from.scale_format, 5, "scale_format");
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

quaver_statistics c_statistics(const CastStatistics& from) {
  quaver_statistics to{};
  to.count = from.count;
  to.nonfinite = from.nonfinite;
  to.saturated = from.saturated;
  to.underflowed = from.underflowed;
  to.amax = from.amax;
  to.full = from.full ? 1 : 0;
  if (!from.full) return to;
  to.min_nonzero = from.min_nonzero;
  to.mean = from.mean();
  to.standard_deviation = from.std();
  to.kurtosis = from.kurtosis();
  to.sqnr_db = from.sqnr_db();
  static_assert(QUAVER_BINADES == binade_count);
  std::ranges::copy(from.binades, to.binades);
  return to;
}

// The number of values of a [rows × cols] array that a caller says is there.
std::size_t extent(std::int64_t rows, std::int64_t cols) {
  if (rows < 1 || cols < 1 || rows > std::numeric_limits<std::int64_t>::max() / 64 / cols) {
    throw Invalid("a matrix of " + std::to_string(rows) + " × " + std::to_string(cols),
                  "give it at least one row and column");
  }
  return static_cast<std::size_t>(rows * cols);
}

void require_length(std::size_t count, std::size_t expected, const char* name) {
  if (count != expected) {
    throw Invalid(std::string(name) + " has " + std::to_string(count) + " elements, not " + std::to_string(expected),
                  "pass an array of that length");
  }
}

// Memory that a caller gives for the time of a pass.
std::span<std::byte> bytes_at(void* memory, std::size_t bytes) {
  return {static_cast<std::byte*>(memory), memory == nullptr ? 0 : bytes};
}

LinearForward forward_of(const quaver_linear_forward_pass& from) {
  return {.tokens = from.tokens,
          .format = format_of(from.format),
          .pass = enumerator<LinearPass>(from.pass, 2, "pass"),
          .x = from.x,
          .bias = from.bias,
          .y = from.y,
          .kept = bytes_at(from.kept, from.kept_bytes),
          .scratch = bytes_at(from.scratch, from.scratch_bytes),
          .stream = from.stream};
}

LinearBackward backward_of(const quaver_linear_backward_pass& from) {
  return {.tokens = from.tokens,
          .format = format_of(from.format),
          .weight_format = format_of(from.weight_format),
          .x = from.x,
          .dy = from.dy,
          .dx = from.dx,
          .weight_gradient = from.weight_gradient,
          .store = from.add != 0 ? LinearGradient::add : LinearGradient::replace,
          .bias_gradient = from.bias_gradient,
          .kept = bytes_at(from.kept, from.kept_bytes),
          .scratch = bytes_at(from.scratch, from.scratch_bytes),
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
    const int bits = known == Format::tf32 ? 32 : info(known).storage_bits;
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
    *require(out, "out") = {.format = static_cast<quaver_format>(from.settings().spec.format),
                            .rows = from.rows(),
                            .cols = from.cols(),
                            .row_bytes = from.row_bytes(),
                            .codes = reinterpret_cast<const std::uint8_t*>(from.codes().data()),
                            .scale_rows = from.scale_rows(),
                            .scale_cols = from.scale_cols(),
                            .block_scales = from.block_scales().empty() ? nullptr : from.block_scales().data(),
                            .tensor_scale = from.tensor_scale()};
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

quaver_status quaver_linear_new(const quaver_linear_settings* settings, quaver_linear** out) {
  return guarded([&] {
    require(out, "out");
    const quaver_linear_settings& from = *require(settings, "settings");
    *out = new quaver_linear{from.in, from.out,
                             LinearLayer({.in = from.in,
                                          .out = from.out,
                                          .bias = from.bias != 0,
                                          .recipe = c::text(from.recipe, "recipe"),
                                          .settings = c::texts(from.settings, from.setting_count, "settings"),
                                          .seed = from.seed,
                                          .device = enumerator<LinearDevice>(from.device, 3, "device"),
                                          .threads = from.threads,
                                          .gpu = from.gpu})};
  });
}

void quaver_linear_free(quaver_linear* layer) { delete layer; }

quaver_status quaver_linear_set_weight(quaver_linear* layer, const float* weight, size_t count) {
  return guarded([&] { require(layer, "layer")->layer.set_weight({require(weight, "weight"), count}); });
}

quaver_status quaver_linear_set_bias(quaver_linear* layer, const float* bias, size_t count) {
  return guarded([&] { require(layer, "layer")->layer.set_bias({require(bias, "bias"), count}); });
}

quaver_status quaver_linear_forward(quaver_linear* layer, const float* x, int64_t tokens, int32_t pass, float* y) {
  return guarded([&] {
    require(layer, "layer");
    layer->layer.forward({require(x, "x"), extent(tokens, layer->in)}, {require(y, "y"), extent(tokens, layer->out)},
                         enumerator<LinearPass>(pass, 2, "pass"));
  });
}

quaver_status quaver_linear_backward(quaver_linear* layer, const float* dy, int64_t tokens, float* dx) {
  return guarded([&] {
    require(layer, "layer");
    layer->layer.backward({require(dy, "dy"), extent(tokens, layer->out)},
                          {require(dx, "dx"), extent(tokens, layer->in)});
  });
}

quaver_status quaver_linear_weight_gradient(const quaver_linear* layer, float* out, size_t count) {
  return guarded([&] {
    const std::vector<float> gradient = require(layer, "layer")->layer.weight_gradient();
    require_length(count, gradient.size(), "out");
    std::ranges::copy(gradient, require(out, "out"));
  });
}

quaver_status quaver_linear_bias_gradient(const quaver_linear* layer, float* out, size_t count) {
  return guarded([&] {
    const std::vector<float> gradient = require(layer, "layer")->layer.bias_gradient();
    require_length(count, gradient.size(), "out");
    std::ranges::copy(gradient, require(out, "out"));
  });
}

quaver_status quaver_linear_clear_gradients(quaver_linear* layer) {
  return guarded([&] { require(layer, "layer")->layer.clear_gradients(); });
}

quaver_status quaver_linear_collect(quaver_linear* layer, int32_t detail) {
  return guarded([&] { require(layer, "layer")->layer.collect(enumerator<Detail>(detail, 2, "detail")); });
}

quaver_status quaver_linear_end_step(quaver_linear* layer) {
  return guarded([&] { require(layer, "layer")->layer.end_step(); });
}

quaver_status quaver_linear_end_steps(quaver_linear* const* layers, size_t count) {
  return guarded([&] {
    std::vector<LinearLayer*> list;
    for (std::size_t i = 0; i < count; ++i) list.push_back(&require(require(layers, "layers")[i], "a layer")->layer);
    LinearLayer::end_step(list);
  });
}

quaver_status quaver_linear_statistics(const quaver_linear* layer, int32_t role, quaver_statistics* out) {
  return guarded(
      [&] { *require(out, "out") = c_statistics(require(layer, "layer")->layer.statistics(role_of(role))); });
}

quaver_status quaver_linear_scale(const quaver_linear* layer, int32_t role, float* out) {
  return guarded([&] { *require(out, "out") = require(layer, "layer")->layer.scale(role_of(role)); });
}

quaver_status quaver_linear_pass_memory(const quaver_linear* layer, int64_t tokens, quaver_format format,
                                        quaver_linear_memory* out) {
  return guarded([&] {
    const LinearMemory needed = require(layer, "layer")->layer.memory(tokens, format_of(format));
    *require(out, "out") = {needed.kept, needed.forward_scratch, needed.backward_scratch};
  });
}

quaver_status quaver_linear_set_device_weight(quaver_linear* layer, const void* weight, quaver_format format,
                                              void* stream) {
  return guarded([&] { require(layer, "layer")->layer.set_weight(weight, format_of(format), stream); });
}

quaver_status quaver_linear_run_forward(quaver_linear* layer, const quaver_linear_forward_pass* pass) {
  return guarded([&] { require(layer, "layer")->layer.forward(forward_of(*require(pass, "pass"))); });
}

quaver_status quaver_linear_run_backward(quaver_linear* layer, const quaver_linear_backward_pass* pass) {
  return guarded([&] { require(layer, "layer")->layer.backward(backward_of(*require(pass, "pass"))); });
}

quaver_status quaver_linear_state(quaver_linear* layer, const char** out) {
  return guarded([&] {
    require(out, "out");
    require(layer, "layer")->state = layer->layer.state();
    *out = layer->state.c_str();
  });
}

quaver_status quaver_linear_load_state(quaver_linear* layer, const char* text) {
  return guarded([&] { require(layer, "layer")->layer.load_state(c::text(text, "text")); });
}
