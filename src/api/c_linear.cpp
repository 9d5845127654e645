// The C interface to linear layers.
#include <algorithm>

#include "api/c_guard.h"
#include "api/c_values.h"

#include "quaver/linear.h"

using namespace quaver;
using quaver::c::bytes_at;
using quaver::c::c_statistics;
using quaver::c::enumerator;
using quaver::c::extent;
using quaver::c::format_of;
using quaver::c::guarded;
using quaver::c::require;
using quaver::c::require_length;
using quaver::c::role_of;

struct quaver_linear {
  Size in;
  Size out;
  LinearLayer layer;
  std::string state = {};  // that was asked for last
};

namespace {

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
