#include "quaver/linear.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/extent.h"
#include "api/layer_engine.h"
#include "api/linear_passes.h"
#include "api/settings.h"

#include "quaver/error.h"

namespace quaver {

namespace {

LayerShape shape_of(const LinearSettings& settings) {
  constexpr Size largest = Size{1} << 24U;
  if (settings.in < 1 || settings.out < 1 || settings.in > largest || settings.out > largest) {
    throw Error("a linear layer from " + std::to_string(settings.in) + " to " + std::to_string(settings.out),
                "give it from 1 to 16777216 inputs and outputs");
  }
  if (settings.threads < 0) throw Error("a negative number of threads", "0 takes all cores");
  return {.name = "linear", .in = settings.in, .out = settings.out};
}

PrecisionConfig checked_precision(const LinearSettings& settings) {
  PrecisionConfig precision = precision_of(settings.recipe, settings.settings);
  if (precision.scales.empty()) return precision;
  throw Error("a layer does not read precision.scales", "give the text of the file to load_scales");
}

void check_format(Format format, const LayerEngine& engine) {
  if (format == Format::f32 || (format == Format::bf16 && engine.is_gpu())) return;
  throw Error("arrays in " + std::string(info(format).name) + (engine.is_gpu() ? " on a GPU" : " on a CPU"),
              engine.is_gpu() ? "pass f32 or bf16" : "pass f32");
}

constexpr const char* state_kind = "quaver linear layer 1";

struct SavedState {
  std::uint64_t steps;
  LinearPasses::Casts casts;
  std::string scales;
};

SavedState parse_state(const std::string& text) {
  try {
    const auto from = nlohmann::json::parse(text);
    if (from.at("kind") != state_kind)
      throw Error("the text is not the state of a linear layer", "take it from state()");
    const auto casts = from.at("casts").get<std::array<std::uint32_t, 3>>();
    return {
        from.at("steps").get<std::uint64_t>(), {casts[0], casts[1], casts[2]}, from.at("scales").get<std::string>()};
  } catch (const nlohmann::json::exception& error) {
    throw Error(std::string("the state of a linear layer is damaged: ") + error.what(), "take it from state()");
  }
}

std::vector<SiteSpec> specs_of(const ScaleBook& book) {
  std::vector<SiteSpec> specs;
  for (const auto& entry : book.entries()) specs.push_back(entry->site.spec);
  return specs;
}

// All of them, or none: what the memory of passes depends on may not change.
void restore_scales(ScaleBook& book, const std::string& scales) {
  const std::string before = book.to_json();
  const std::vector<SiteSpec> specs = specs_of(book);
  try {
    const auto missing = book.from_json(scales, ScaleBook::Import::everything, 0);
    if (missing.empty() && specs_of(book) == specs) return;
    throw Error("the state is that of a layer with another recipe", "make the layer with the recipe it had");
  } catch (const Error&) {
    book.from_json(before, ScaleBook::Import::everything, 0);
    throw;
  }
}

}  // namespace

// What calls with arrays of the host need on the device: copies of them, master weight, bias and gradients.
struct HostArrays {
  std::shared_ptr<std::byte> memory;  // of what follows
  std::size_t bytes = 0;
  View x;
  View y;  // later dy
  View dx;
  std::span<std::byte> kept;
  std::span<std::byte> scratch;
  std::shared_ptr<std::byte> weight;
  std::shared_ptr<std::byte> bias;
  std::shared_ptr<std::byte> weight_gradient;
  std::shared_ptr<std::byte> bias_gradient;
  bool awaits_backward = false;
};

struct LinearLayer::State {
  explicit State(const LinearSettings& settings)
      : precision(checked_precision(settings)),
        passes(shape_of(settings), precision, settings.seed),
        engine(LayerEngine::of(settings.device, settings.gpu, settings.threads)),
        has_bias(settings.bias) {
    engine->run({}, [&](Engine& on) { passes.start(on, precision); });
  }
  ~State() { engine->retire(passes.take_registry()); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Floats on the device, zero when they are made.
  static float* floats(Engine& on, std::shared_ptr<std::byte>& memory, Size count) {
    if (memory == nullptr) memory = on.device().allocate(static_cast<std::size_t>(count) * sizeof(float));
    return reinterpret_cast<float*>(memory.get());
  }
  Size weights() const { return passes.out() * passes.in(); }
  float* weight(Engine& on) { return floats(on, host.weight, weights()); }
  float* bias(Engine& on) { return has_bias ? floats(on, host.bias, passes.out()) : nullptr; }
  float* weight_gradient(Engine& on) { return floats(on, host.weight_gradient, weights()); }
  float* bias_gradient(Engine& on) { return has_bias ? floats(on, host.bias_gradient, passes.out()) : nullptr; }

  void cast_host_weight(Engine& on) {
    passes.set_weight(on, {weight(on), Format::f32, passes.out(), passes.in()});
    on.device().synchronize();
  }

  void place_host_arrays(Engine& on, Size tokens) {
    const LinearMemory needed = passes.memory(tokens, Format::f32);
    const std::size_t scratch = std::max(needed.forward_scratch, needed.backward_scratch);
    const auto place = [&](Arena arena) {
      host.x = arena.saved(tokens, passes.in(), Format::f32);
      host.y = arena.saved(tokens, passes.out(), Format::f32);
      host.dx = arena.saved(tokens, passes.in(), Format::f32);
      host.kept = {arena.take_saved(needed.kept), needed.kept};
      host.scratch = {arena.take_saved(scratch), scratch};
      return arena.peak();
    };
    const std::size_t bytes = place(Arena());
    if (bytes > host.bytes) {
      host.memory.reset();
      host.memory = on.device().allocate(bytes);
      host.bytes = bytes;
    }
    place(Arena(host.memory.get(), host.bytes));
  }

  void clear_gradients(Engine& on) const {
    const auto clear = [&](const std::shared_ptr<std::byte>& memory, Size count) {
      if (memory != nullptr) on.run(FillZero{{memory.get(), Format::f32, 1, count}});
    };
    clear(host.weight_gradient, weights());
    clear(host.bias_gradient, passes.out());
  }

  void end_step(Engine& on) {
    host.awaits_backward = false;
    passes.book().end_step(++steps);
    clear_gradients(on);
  }

  // Those of the book, from now on. The next pass casts the host's weight anew.
  void use_scales() {
    engine->run({}, [&](Engine& on) { on.upload_scales(passes.sites()); });
    passes.forget_weight();
  }

  // Arrays that are not the host's.
  void check(Format format, std::initializer_list<const void*> arrays) const {
    check_format(format, *engine);
    const auto aligned = [](const void* array) { return reinterpret_cast<std::uintptr_t>(array) % 16 == 0; };
    if (!engine->is_gpu() || std::ranges::all_of(arrays, aligned)) return;
    throw Error("an array on the GPU does not begin at a multiple of 16 bytes", "copy it into memory of its own");
  }

  PrecisionConfig precision;
  LinearPasses passes;
  std::shared_ptr<LayerEngine> engine;
  bool has_bias;
  HostArrays host;
  std::uint64_t steps = 0;
};

LinearLayer::LinearLayer(const LinearSettings& settings) : state_(std::make_unique<State>(settings)) {}
LinearLayer::~LinearLayer() = default;
LinearLayer::LinearLayer(LinearLayer&&) noexcept = default;
LinearLayer& LinearLayer::operator=(LinearLayer&&) noexcept = default;

void LinearLayer::set_weight(std::span<const float> weight) {
  State& state = *state_;
  checked_count(state.passes.out(), state.passes.in(), weight.size(), "the weight");
  state.engine->run({}, [&](Engine& on) {
    on.device().upload(weight.data(), state.weight(on), weight.size_bytes());
    state.cast_host_weight(on);
  });
}

void LinearLayer::set_bias(std::span<const float> bias) {
  State& state = *state_;
  if (!state.has_bias) throw Error("the layer has no bias", "make it with bias = true");
  checked_count(1, state.passes.out(), bias.size(), "the bias");
  state.engine->run({}, [&](Engine& on) { on.device().upload(bias.data(), state.bias(on), bias.size_bytes()); });
}

void LinearLayer::forward(std::span<const float> x, std::span<float> y, LinearPass pass) {
  State& state = *state_;
  const Size tokens = static_cast<Size>(x.size()) / state.passes.in();
  checked_count(tokens, state.passes.in(), x.size(), "x");
  checked_count(tokens, state.passes.out(), y.size(), "y");
  state.host.awaits_backward = false;
  state.engine->run({}, [&](Engine& on) {
    state.place_host_arrays(on, tokens);
    if (!state.passes.has_weight()) state.cast_host_weight(on);
    on.device().upload(x.data(), state.host.x.data, x.size_bytes());
    state.passes.forward(on, {.tokens = tokens,
                              .pass = pass,
                              .x = state.host.x.data,
                              .bias = state.bias(on),
                              .y = state.host.y.data,
                              .kept = state.host.kept,
                              .scratch = state.host.scratch});
    on.device().download(state.host.y.data, y.data(), y.size_bytes());
  });
  state.host.awaits_backward = pass == LinearPass::train;
}

void LinearLayer::backward(std::span<const float> dy, std::span<float> dx) {
  State& state = *state_;
  if (!state.host.awaits_backward) {
    throw Error("backward without a forward pass in training", "call forward first, and backward once after it");
  }
  const Size tokens = state.host.x.rows;
  checked_count(tokens, state.passes.out(), dy.size(), "dy");
  checked_count(tokens, state.passes.in(), dx.size(), "dx");
  state.host.awaits_backward = false;
  state.engine->run({}, [&](Engine& on) {
    on.device().upload(dy.data(), state.host.y.data, dy.size_bytes());
    state.passes.backward(on, {.tokens = tokens,
                               .x = state.host.x.data,
                               .dy = state.host.y.data,
                               .dx = state.host.dx.data,
                               .weight_gradient = state.weight_gradient(on),
                               .store = LinearGradient::add,
                               .bias_gradient = state.bias_gradient(on),
                               .kept = state.host.kept,
                               .scratch = state.host.scratch});
    on.device().download(state.host.dx.data, dx.data(), dx.size_bytes());
  });
}

LinearMemory LinearLayer::memory(Size tokens, Format format) const {
  check_format(format, *state_->engine);
  return state_->passes.memory(tokens, format);
}

void LinearLayer::set_weight(const void* weight, Format format, void* stream) {
  State& state = *state_;
  if (weight == nullptr) throw Error("the weight is null", "pass the address of its array");
  state.check(format, {weight});
  state.engine->run(stream, [&](Engine& on) {
    state.passes.set_weight(on, {const_cast<void*>(weight), format, state.passes.out(), state.passes.in()});
  });
}

void LinearLayer::forward(const LinearForward& pass) {
  State& state = *state_;
  state.check(pass.format, {pass.x, pass.y, pass.bias, pass.kept.data(), pass.scratch.data()});
  state.engine->run(pass.stream, [&](Engine& on) { state.passes.forward(on, pass); });
}

void LinearLayer::backward(const LinearBackward& pass) {
  State& state = *state_;
  check_format(pass.weight_format, *state.engine);
  state.check(pass.format, {pass.x, pass.dy, pass.dx, pass.weight_gradient, pass.bias_gradient, pass.kept.data(),
                            pass.scratch.data()});
  state.engine->run(pass.stream, [&](Engine& on) { state.passes.backward(on, pass); });
}

std::vector<float> LinearLayer::weight_gradient() const {
  State& state = *state_;
  std::vector<float> out(static_cast<std::size_t>(state.weights()));
  state.engine->run(
      {}, [&](Engine& on) { on.device().download(state.weight_gradient(on), out.data(), out.size() * sizeof(float)); });
  return out;
}

std::vector<float> LinearLayer::bias_gradient() const {
  State& state = *state_;
  if (!state.has_bias) return {};
  std::vector<float> out(static_cast<std::size_t>(state.passes.out()));
  state.engine->run(
      {}, [&](Engine& on) { on.device().download(state.bias_gradient(on), out.data(), out.size() * sizeof(float)); });
  return out;
}

void LinearLayer::clear_gradients() {
  state_->engine->run({}, [&](Engine& on) { state_->clear_gradients(on); });
}

void LinearLayer::end_step() {
  LinearLayer* const layer = this;
  end_step({&layer, 1});
}

// On a GPU the casts' own stream of work is waited for, and not what the caller enqueued behind it.
void LinearLayer::end_step(std::span<LinearLayer* const> layers) {
  std::map<LayerEngine*, std::vector<State*>> by_engine;
  for (LinearLayer* layer : layers) by_engine[layer->state_->engine.get()].push_back(layer->state_.get());
  for (const auto& group : by_engine) {
    const std::vector<State*>& states = group.second;
    group.first->run({}, [&](Engine& on) {
      std::vector<Site*> sites;
      for (const State* state : states) {
        sites.insert(sites.end(), state->passes.sites().begin(), state->passes.sites().end());
      }
      on.wait_for_statistics(sites);
      for (State* state : states) state->end_step(on);
      on.upload_scales(sites);
    });
  }
}

CastStatistics LinearLayer::statistics(Role role) const {
  return state_->passes.book().entry(site_name("linear", role)).last_step;
}

void LinearLayer::collect(Detail detail) { state_->passes.collect(detail); }

float LinearLayer::scale(Role role) const { return state_->passes.book().entry(site_name("linear", role)).site.scale; }

std::string LinearLayer::scales_json() const { return state_->passes.book().to_json(); }

std::vector<std::string> LinearLayer::load_scales(const std::string& json) {
  auto missing = state_->passes.book().from_json(json, ScaleBook::Import::scales_only, state_->steps);
  state_->use_scales();
  return missing;
}

std::string LinearLayer::state() const {
  const LinearPasses::Casts& casts = state_->passes.casts();
  return nlohmann::json{{"kind", state_kind},
                        {"steps", state_->steps},
                        {"casts", {casts.x, casts.weight, casts.dy}},
                        {"scales", state_->passes.book().to_json()}}
      .dump();
}

void LinearLayer::load_state(const std::string& text) {
  State& state = *state_;
  const SavedState saved = parse_state(text);
  restore_scales(state.passes.book(), saved.scales);
  state.steps = saved.steps;
  state.passes.set_casts(saved.casts);
  state.use_scales();
}

}  // namespace quaver
