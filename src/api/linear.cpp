#include "quaver/linear.h"

#include <optional>
#include <utility>

#include "api/extent.h"
#include "api/settings.h"

#include "engine/cuda_module.h"
#include "engine/sizing_engine.h"
#include "nn/linear.h"
#include "quaver/error.h"
#include "train/resolved_config.h"

namespace quaver {

namespace {

std::unique_ptr<Engine> engine_of(const LinearSettings& settings) {
  // In FP32, as the caller's arrays are.
  const auto on_gpu = [] { return make_cuda_engine({.high_precision = Format::f32, .notice = [](const auto&) {}}); };
  if (settings.device == LinearDevice::cuda) return on_gpu();
  if (settings.device == LinearDevice::automatic && inspect_cuda().state == CudaState::ready) return on_gpu();
  return make_cpu_engine(settings.threads);
}

LinearShape shape_of(const LinearSettings& settings) {
  constexpr Size largest = Size{1} << 24U;
  if (settings.in < 1 || settings.out < 1 || settings.in > largest || settings.out > largest) {
    throw Error("a linear layer from " + std::to_string(settings.in) + " to " + std::to_string(settings.out),
                "give it from 1 to 16777216 inputs and outputs");
  }
  if (settings.threads < 0) throw Error("a negative number of threads", "0 takes all cores");
  return {.name = "linear", .in = settings.in, .out = settings.out, .bias = settings.bias, .init_std = 0};
}

ScaleRules rules_of(const PrecisionConfig& precision) {
  ScaleRules rules;
  rules.history = precision.history;
  rules.rule = precision.history_rule;
  return rules;
}

}  // namespace

// A pass goes: forward, backward. What backward reads stays in the arena until the next forward.
struct LinearLayer::State {
  explicit State(const LinearSettings& settings)
      : precision(precision_of(settings.recipe, settings.settings)),
        registry(rules_of(precision)),
        layer(registry, shape_of(settings)),
        engine(engine_of(settings)) {
    if (!precision.scales.empty()) {
      throw Error("a layer does not read precision.scales", "give the text of the file to load_scales");
    }
    registry.book().apply(make_plan(precision, registry.layers()));
    for (const auto& entry : registry.book().entries()) sites.push_back(&entry->site);
    set_static_scales();
    casting.seed = settings.seed;
    accumulators = accumulators_for(precision.accumulator, *engine);
    registry.parameters().allocate(*engine, Format::f32);
    engine->upload_scales(sites);
    cast_weight();
  }

  void set_static_scales() {
    const double scales[] = {precision.static_activation_scale, precision.static_weight_scale,
                             precision.static_gradient_scale};
    for (Site* site : sites) {
      if (site->spec.rows.policy == ScalePolicy::fixed) {
        site->scale = static_cast<float>(scales[static_cast<std::size_t>(site->role)]);
      }
    }
  }

  void cast_weight() {
    Casting weights = casting;
    weights.step = weight_casts++;
    registry.parameters().quantize_all(*engine, weights);
    engine->device().synchronize();
  }

  Step step_on(Engine& on, Arena& place) const {
    Step step{on, place, 1, tokens, pass};
    step.memory = Memory::speed;
    step.casting = casting;
    step.casting.observe = pass != Pass::evaluate;
    step.accumulators = accumulators;
    return step;
  }

  // The operations alone: on a sizing engine nothing is computed, and the arena tells what they need.
  View run_forward(Step& step, const float* x) {
    step.begin({.micro_step = passes});
    const View input = step.saved(layer.shape().in);
    if (x != nullptr) step.engine.device().upload(x, input.data, static_cast<std::size_t>(input.bytes()));
    layer.input_from(step, input, 1);
    const View y = step.saved(layer.shape().out);
    layer.forward(step, y);
    return y;
  }
  View run_backward(Step& step, const float* dy) {
    const View gradient = step.saved(layer.shape().out);
    if (dy != nullptr) step.engine.device().upload(dy, gradient.data, static_cast<std::size_t>(gradient.bytes()));
    layer.output_gradient_from(step, gradient, 1);
    const View dx = step.saved(layer.shape().in);
    layer.dgrad(step, dx);
    layer.wgrad(step);
    return dx;
  }

  void reserve() {
    if (tokens <= planned) return;
    const auto sizing = make_sizing_engine(engine->device().hardware(), engine->high_precision());
    Arena measuring;
    const Pass asked = std::exchange(pass, Pass::train);
    Step step = step_on(*sizing, measuring);
    run_forward(step, nullptr);
    run_backward(step, nullptr);
    pass = asked;
    arena_memory.reset();
    arena_memory = engine->device().allocate(measuring.peak());
    arena = Arena(arena_memory.get(), measuring.peak());
    planned = tokens;
  }

  void download(const View& view, std::span<float> out) const {
    engine->device().download(view.data, out.data(), out.size_bytes());
  }

  PrecisionConfig precision;
  Registry registry;
  Linear layer;
  std::unique_ptr<Engine> engine;
  std::vector<Site*> sites;
  Casting casting;
  Accumulators accumulators;
  std::shared_ptr<std::byte> arena_memory;
  Arena arena;
  Size planned = 0;  // tokens that the arena holds
  Size tokens = 0;   // of the latest pass
  Pass pass = Pass::train;
  std::optional<Step> latest;  // the latest pass, which backward continues
  bool awaits_backward = false;
  std::uint32_t passes = 0;
  std::uint32_t weight_casts = 0;
  std::uint64_t steps = 0;
};

LinearLayer::LinearLayer(const LinearSettings& settings) : state_(std::make_unique<State>(settings)) {}
LinearLayer::~LinearLayer() = default;
LinearLayer::LinearLayer(LinearLayer&&) noexcept = default;
LinearLayer& LinearLayer::operator=(LinearLayer&&) noexcept = default;

void LinearLayer::set_weight(std::span<const float> weight) {
  Parameter& parameter = state_->layer.weight();
  checked_count(parameter.rows, parameter.cols, weight.size(), "the weight");
  state_->engine->device().upload(weight.data(), parameter.master.data, weight.size_bytes());
  state_->cast_weight();
}

void LinearLayer::set_bias(std::span<const float> bias) {
  if (!state_->layer.shape().bias) throw Error("the layer has no bias", "make it with bias = true");
  Parameter& parameter = state_->registry.parameters().find("linear.bias");
  checked_count(1, parameter.cols, bias.size(), "the bias");
  state_->engine->device().upload(bias.data(), parameter.master.data, bias.size_bytes());
}

void LinearLayer::forward(std::span<const float> x, std::span<float> y, LinearPass pass) {
  State& state = *state_;
  const LinearShape& shape = state.layer.shape();
  const Size tokens = static_cast<Size>(x.size()) / shape.in;
  checked_count(tokens, shape.in, x.size(), "x");
  checked_count(tokens, shape.out, y.size(), "y");
  state.awaits_backward = false;
  state.tokens = tokens;
  state.pass = pass == LinearPass::train ? Pass::train : Pass::evaluate;
  state.reserve();
  state.arena.reset();
  state.latest.emplace(state.step_on(*state.engine, state.arena));
  state.download(state.run_forward(*state.latest, x.data()), y);
  state.awaits_backward = pass == LinearPass::train;
}

void LinearLayer::backward(std::span<const float> dy, std::span<float> dx) {
  State& state = *state_;
  if (!state.awaits_backward) {
    throw Error("backward without a forward pass in training", "call forward first, and backward once after it");
  }
  checked_count(state.tokens, state.layer.shape().out, dy.size(), "dy");
  checked_count(state.tokens, state.layer.shape().in, dx.size(), "dx");
  state.awaits_backward = false;
  state.download(state.run_backward(*state.latest, dy.data()), dx);
  ++state.passes;
}

std::vector<float> LinearLayer::weight_gradient() const {
  const View& gradient = state_->layer.weight().gradient;
  std::vector<float> out(static_cast<std::size_t>(gradient.count()));
  state_->download(gradient, out);
  return out;
}

std::vector<float> LinearLayer::bias_gradient() const {
  if (!state_->layer.shape().bias) return {};
  const View& gradient = state_->registry.parameters().find("linear.bias").gradient;
  std::vector<float> out(static_cast<std::size_t>(gradient.count()));
  state_->download(gradient, out);
  return out;
}

void LinearLayer::clear_gradients() { state_->registry.parameters().clear_gradients(*state_->engine); }

void LinearLayer::end_step() {
  State& state = *state_;
  state.awaits_backward = false;
  state.engine->wait_for_statistics(state.sites);
  state.registry.book().end_step(++state.steps);
  state.engine->upload_scales(state.sites);
  clear_gradients();
}

CastStatistics LinearLayer::statistics(Role role) const {
  return state_->registry.book().entry(site_name("linear", role)).last_step;
}

void LinearLayer::collect(Detail detail) { state_->casting.detail = detail; }

float LinearLayer::scale(Role role) const {
  return state_->registry.book().entry(site_name("linear", role)).site.scale;
}

std::string LinearLayer::scales_json() const { return state_->registry.book().to_json(); }

std::vector<std::string> LinearLayer::load_scales(const std::string& json) {
  auto missing = state_->registry.book().from_json(json, ScaleBook::Import::scales_only, state_->steps);
  state_->engine->upload_scales(state_->sites);
  state_->cast_weight();
  return missing;
}

}  // namespace quaver
