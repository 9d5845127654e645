#include "api/linear_passes.h"

#include "api/extent.h"

#include "quaver/error.h"
#include "train/resolved_config.h"

namespace quaver {

namespace {

ScaleRules rules_of(const PrecisionConfig& precision) {
  ScaleRules rules;
  rules.history = precision.history;
  rules.rule = precision.history_rule;
  return rules;
}

auto taking(Arena& arena) {
  return [&arena](std::size_t bytes) { return arena.take_saved(bytes); };
}

Arena over(std::span<std::byte> memory) { return {memory.data(), memory.size()}; }

void require(const void* array, const char* name) {
  if (array == nullptr) throw Error(std::string(name) + " is null", "pass the address of its array");
}

void require_memory(std::span<std::byte> given, std::size_t needed, const char* name) {
  if (given.size() >= needed && (needed == 0 || given.data() != nullptr)) return;
  throw Error(std::string(name) + " has " + std::to_string(given.size()) + " bytes and the pass needs " +
                  std::to_string(needed),
              "ask memory() for the number");
}

// x, y, dy or dx.
void check_extent(Size tokens, Size cols, const char* name) {
  checked_count(tokens, cols, static_cast<std::size_t>(tokens) * static_cast<std::size_t>(cols), name);
}

View bias_view(const float* bias, Size count) {
  return bias == nullptr ? View{} : View{const_cast<float*>(bias), Format::f32, 1, count};
}

}  // namespace

LinearPasses::LinearPasses(const LayerShape& shape, const PrecisionConfig& precision, std::uint64_t seed)
    : registry_(std::make_unique<Registry>(rules_of(precision))) {
  const LayerSites sites = registry_->add(shape);
  sites_ = {&sites.x, &sites.w, &sites.dy};
  book().apply(make_plan(precision, registry_->layers()));
  const double scales[] = {precision.static_activation_scale, precision.static_weight_scale,
                           precision.static_gradient_scale};
  for (Site* site : sites_) {
    if (site->spec.rows.policy == ScalePolicy::fixed) {
      site->scale = static_cast<float>(scales[static_cast<std::size_t>(site->role)]);
    }
  }
  casting_.seed = seed;
}

void LinearPasses::start(Engine& engine, const PrecisionConfig& precision) {
  sharing_ = engine.sharing();
  accumulators_ = accumulators_for(precision.accumulator, engine);
  one_ = engine.device().allocate(4 * sizeof(float));
  const float one = 1;
  engine.device().upload(&one, one_.get(), sizeof(one));
  engine.upload_scales(sites_);
}

bool LinearPasses::is_own_codes(Role role, Format format) const {
  const SiteSpec& spec = site(role).spec;
  return spec.rows.format == format && columns_share_rows(spec.rows, spec.columns) && !is_low_precision(format);
}

QuantizedTensor LinearPasses::place_x(Size tokens, LinearPass pass, Arena& kept, Arena& scratch) const {
  if (pass == LinearPass::evaluate) return place_copy(Role::x, tokens, in(), scratch);
  if (!stores_columns_apart(site(Role::x).spec, sharing_)) {
    return {site(Role::x), tokens, in(), Copies::both, sharing_, taking(kept)};
  }
  return {site(Role::x), tokens, in(), Copies::both, sharing_, MemoryBySide{taking(scratch), taking(kept)}};
}

QuantizedTensor LinearPasses::place_dy(Size tokens, Arena& scratch) const {
  return {site(Role::dy), tokens, out(), Copies::both, sharing_, taking(scratch)};
}

QuantizedTensor LinearPasses::place_copy(Role role, Size rows, Size cols, Arena& scratch) const {
  return {site(role), rows, cols, Copies::rows_only, sharing_, taking(scratch)};
}

LinearMemory LinearPasses::memory(Size tokens, Format format) const {
  check_extent(tokens, in(), "x");
  check_extent(tokens, out(), "dy");
  Arena kept;
  Arena forward;
  Arena backward;
  if (!is_own_codes(Role::x, format)) {
    place_x(tokens, LinearPass::train, kept, forward);
    Arena none;
    Arena evaluated;
    place_x(tokens, LinearPass::evaluate, none, evaluated);
    if (evaluated.peak() > forward.peak()) forward = evaluated;
  } else if (observes_uncast(casting_)) {
    place_copy(Role::x, tokens, in(), forward);
  }
  if (!is_own_codes(Role::dy, format)) {
    place_dy(tokens, backward);
  } else if (observes_uncast(casting_)) {
    place_copy(Role::dy, tokens, out(), backward);
  }
  return {kept.peak(), forward.peak(), backward.peak()};
}

void LinearPasses::set_weight(Engine& engine, const View& weight) {
  Site& w = site(Role::w);
  if (is_own_codes(Role::w, weight.format)) {
    weight_ = QuantizedTensor(w, weight, reinterpret_cast<float*>(one_.get()));
    return;
  }
  const auto place = [&](Arena memory) {
    weight_ = QuantizedTensor(w, out(), in(), Copies::both, sharing_, taking(memory));
    return memory.peak();
  };
  const std::size_t bytes = place(Arena());
  if (weight_codes_ == nullptr) weight_codes_ = engine.device().allocate(bytes);
  place(Arena(weight_codes_.get(), bytes));
  Casting casting = casting_;
  casting.step = casts_.weight++;
  engine.run(Quantize{weight, weight_, casting});
}

QuantizedTensor LinearPasses::own_codes(Engine& engine, Role role, const View& matrix, const Casting& casting,
                                        Arena& scratch) {
  if (observes_uncast(casting)) {
    QuantizedTensor copy = place_copy(role, matrix.rows, matrix.cols, scratch);
    engine.run(Quantize{matrix, copy, casting});
  }
  return {site(role), matrix, reinterpret_cast<float*>(one_.get())};
}

void LinearPasses::forward(Engine& engine, const LinearForward& pass) {
  const LinearMemory needed = memory(pass.tokens, pass.format);
  const bool trains = pass.pass == LinearPass::train;
  require(pass.x, "x");
  require(pass.y, "y");
  require_memory(pass.kept, trains ? needed.kept : 0, "kept");
  require_memory(pass.scratch, needed.forward_scratch, "scratch");
  if (!has_weight()) throw Error("the layer has no weight", "call set_weight before forward");

  Casting casting = casting_;
  casting.step = trains ? casts_.x++ : casts_.x;
  casting.observe = trains;
  const View x{const_cast<void*>(pass.x), pass.format, pass.tokens, in()};
  Arena kept = over(pass.kept);
  Arena scratch = over(pass.scratch);
  QuantizedTensor codes = is_own_codes(Role::x, pass.format) ? own_codes(engine, Role::x, x, casting, scratch)
                                                             : place_x(pass.tokens, pass.pass, kept, scratch);
  engine.run(Quantize{x, codes, casting});
  engine.run(Gemm{.a = codes.rows(),
                  .b = weight_.rows(),
                  .out = {pass.y, pass.format, pass.tokens, out()},
                  .bias = bias_view(pass.bias, out()),
                  .accumulator = accumulators_.fprop});
}

QuantizedTensor LinearPasses::x_for_backward(const LinearBackward& pass) const {
  if (is_own_codes(Role::x, pass.format)) {
    require(pass.x, "x");
    const View x{const_cast<void*>(pass.x), pass.format, pass.tokens, in()};
    return {site(Role::x), x, reinterpret_cast<float*>(one_.get())};
  }
  Arena kept = over(pass.kept);
  return {site(Role::x), pass.tokens, in(), Copies::columns_only, sharing_, taking(kept)};
}

// Its columns are summed on the way: the bias gradient.
QuantizedTensor LinearPasses::cast_dy(Engine& engine, const LinearBackward& pass) {
  Casting casting = casting_;
  casting.step = casts_.dy++;
  const View dy{const_cast<void*>(pass.dy), pass.format, pass.tokens, out()};
  Arena scratch = over(pass.scratch);
  const View sums = bias_view(pass.bias_gradient, out());
  if (is_own_codes(Role::dy, pass.format)) {
    if (!sums.empty()) engine.run(SumColumns{dy, sums});
    return own_codes(engine, Role::dy, dy, casting, scratch);
  }
  QuantizedTensor codes = place_dy(pass.tokens, scratch);
  codes.column_sums = sums;
  engine.run(Quantize{dy, codes, casting});
  return codes;
}

void LinearPasses::backward(Engine& engine, const LinearBackward& pass) {
  const LinearMemory needed = memory(pass.tokens, pass.format);
  require(pass.dy, "dy");
  require_memory(pass.kept, needed.kept, "kept");
  require_memory(pass.scratch, needed.backward_scratch, "scratch");
  if (!has_weight()) throw Error("the layer has no weight", "call set_weight and forward before backward");
  const QuantizedTensor x = x_for_backward(pass);
  const QuantizedTensor dy = cast_dy(engine, pass);
  if (pass.dx != nullptr) {
    engine.run(Gemm{.pass = GemmPass::dgrad,
                    .a = dy.rows(),
                    .b = weight_.columns(),
                    .out = {pass.dx, pass.format, pass.tokens, in()},
                    .accumulator = accumulators_.dgrad});
  }
  if (pass.weight_gradient != nullptr) {
    engine.run(Gemm{.pass = GemmPass::wgrad,
                    .a = dy.columns(),
                    .b = x.columns(),
                    .out = {pass.weight_gradient, pass.weight_format, out(), in()},
                    .accumulate = pass.store == LinearGradient::add,
                    .accumulator = accumulators_.wgrad});
  }
}

}  // namespace quaver
