#include "study/bench_layers.h"

#include <algorithm>
#include <fmt/format.h>

#include "precision/recipe.h"
#include "study/bench_matrices.h"
#include "study/bench_race.h"
#include "train/engine_choice.h"
#include "train/resolved_config.h"

namespace quaver {

namespace {

constexpr Size widest_norm = 8192;  // producers of wider operands are casts

// What the recipes of a layer have in common on one engine: the values that are cast, and where results go.
struct LayerMatrices {
  LayerMatrices(Engine& on, const BenchLayer& layer, Size tokens) : engine(on), memory(on) {
    const Size rows = layer.rows(tokens);
    const Size wider = std::max(layer.in, layer.out);
    const Format high = on.high_precision();
    weight = memory.normal(layer.out, layer.in, Format::f32, 1);
    input = memory.normal(rows, wider, high, 2);
    y = memory.make(rows, wider, high);
    stats = memory.make(rows, 2, Format::f32);
    gain = memory.normal(1, wider, Format::f32, 3);
    gradient = memory.make(layer.out, layer.in, Format::f32);
    window = layer.window;
    window.batch = tokens;
    if (window.channels > 0) pixels = memory.normal(window.pixels(), window.channels, high, 4);
  }

  Engine& engine;
  BenchMatrices memory;
  PatchWindow window;
  View weight, input, pixels, y, stats, gain, gradient;
};

// The operands of a layer under a recipe, on its engine, and the runs over them.
class LayerBench {
 public:
  LayerBench(std::shared_ptr<LayerMatrices> matrices, const BenchLayer& layer, const Recipe& recipe, Size tokens)
      : matrices_(std::move(matrices)),
        engine_(matrices_->engine),
        memory_(engine_),
        layer_(layer),
        rows_(layer.rows(tokens)),
        high_(engine_.high_precision()),
        accumulators_(accumulators_for({}, engine_)) {
    x_ = add_site(Role::x, recipe.x, rows_, layer.in);
    w_ = add_site(Role::w, recipe.w, layer.out, layer.in);
    dy_ = add_site(Role::dy, recipe.dy, rows_, layer.out);
    cast(x_, first_columns(matrices_->input, layer.in));
    cast(dy_, first_columns(matrices_->input, layer.out));
    cast(w_, matrices_->weight);
    engine_.device().synchronize();
    const Support support = engine_.support(x_.site().spec.rows, w_.site().spec.rows);
    support_ = support.level == SupportLevel::native ? "native" : support.how;
  }

  const std::string& support() const { return support_; }
  double flops() const { return 2.0 * static_cast<double>(rows_ * layer_.in) * static_cast<double>(layer_.out); }
  double bytes(const std::string& part) const { return static_cast<double>(moved_bytes(part)); }

  void run(const std::string& part) {
    if (part == "fprop") {
      engine_.run(Gemm{.a = x_.rows(),
                       .b = w_.rows(),
                       .out = first_columns(matrices_->y, layer_.out),
                       .accumulator = accumulators_.fprop});
    } else if (part == "dgrad") {
      engine_.run(Gemm{.pass = GemmPass::dgrad,
                       .a = dy_.rows(),
                       .b = w_.columns(),
                       .out = first_columns(matrices_->y, layer_.in),
                       .accumulator = accumulators_.dgrad});
    } else if (part == "wgrad") {
      engine_.run(Gemm{.pass = GemmPass::wgrad,
                       .a = dy_.columns(),
                       .b = x_.columns(),
                       .out = matrices_->gradient,
                       .accumulate = true,
                       .accumulator = accumulators_.wgrad});
    } else if (part == "x") {
      produce_x();
    } else if (part == "dy") {
      produce(dy_, layer_.out);
    } else {
      cast(w_, matrices_->weight);
    }
  }

 private:
  // Of the codes that one GEMM reads.
  static Size side_bytes(const QuantizedTensor& tensor) {
    const bool both = tensor.has_rows() && tensor.has_own_columns();
    return both ? tensor.bytes() / 2 : tensor.bytes();
  }

  Size moved_bytes(const std::string& part) const {
    const Size element = info(high_).storage_bits / 8;
    const Size in = rows_ * layer_.in;
    const Size out = rows_ * layer_.out;
    if (part == "fprop") return side_bytes(x_) + side_bytes(w_) + element * out;
    if (part == "dgrad") return side_bytes(dy_) + side_bytes(w_) + element * in;
    if (part == "wgrad") return side_bytes(dy_) + side_bytes(x_) + 8 * layer_.in * layer_.out;
    const PatchWindow& window = matrices_->window;
    if (part == "x") return element * (has_patches() ? window.pixels() * window.channels : in) + x_.bytes();
    if (part == "dy") return element * out + dy_.bytes();
    return 4 * layer_.in * layer_.out + w_.bytes();
  }

  QuantizedTensor add_site(Role role, const SiteSpec& spec, Size rows, Size cols) {
    sites_.push_back(std::make_unique<Site>());
    Site& site = *sites_.back();
    site.name = "bench/" + std::string(name_of(role));
    site.role = role;
    site.spec = spec;
    if (has_given_scale(spec.rows)) site.scale = tensor_scale_for(spec.rows, typical_amax);
    return {
        site, rows, cols, Copies::both, engine_.sharing(), [this](std::size_t bytes) { return memory_.take(bytes); }};
  }

  // As a matrix of its own: the same memory, other rows.
  static View first_columns(const View& matrix, Size cols) { return {matrix.data, matrix.format, matrix.rows, cols}; }

  void cast(QuantizedTensor& out, const View& values) { engine_.run(Quantize{values, out, casting_}); }

  bool has_patches() const { return matrices_->window.channels > 0; }

  void produce_x() {
    if (!has_patches()) return produce(x_, layer_.in);
    engine_.run(Patches{.window = matrices_->window, .x = matrices_->pixels, .out = x_, .casting = casting_});
  }

  // What a model does: the norm before the layer writes the operand.
  void produce(QuantizedTensor& out, Size width) {
    const View values = first_columns(matrices_->input, width);
    if (width > widest_norm) return cast(out, values);
    engine_.run(AddNorm{.norm = {.kind = NormKind::rms, .gain = first_columns(matrices_->gain, width)},
                        .residual = values,
                        .sum = values,
                        .stats = matrices_->stats,
                        .out = out,
                        .casting = casting_});
  }

  std::shared_ptr<LayerMatrices> matrices_;
  Engine& engine_;
  BenchMatrices memory_;  // of the operands
  BenchLayer layer_;
  Size rows_;
  Format high_;
  Accumulators accumulators_;
  Casting casting_;
  std::vector<std::unique_ptr<Site>> sites_;
  QuantizedTensor x_, w_, dy_;
  std::string support_;
};

// Under each of the recipes.
std::vector<std::shared_ptr<LayerBench>> benches_of(BenchEngines& engines, const BenchLayer& layer, Size tokens,
                                                    const std::vector<std::string>& recipes) {
  std::map<Engine*, std::shared_ptr<LayerMatrices>> matrices;
  std::vector<std::shared_ptr<LayerBench>> benches;
  for (const std::string& recipe : recipes) {
    Engine& engine = engines.of(recipe);
    std::shared_ptr<LayerMatrices>& shared = matrices[&engine];
    if (shared == nullptr) shared = std::make_shared<LayerMatrices>(engine, layer, tokens);
    benches.push_back(std::make_shared<LayerBench>(shared, layer, engines.recipe(recipe), tokens));
  }
  return benches;
}

const std::vector<std::string>& parts_of(Size rows) {
  static const std::vector<std::string> all{"fprop", "dgrad", "wgrad", "x", "dy", "w"};
  static const std::vector<std::string> vector{"fprop"};
  return rows == 1 ? vector : all;
}

bool is_product(const std::string& part) { return part == "fprop" || part == "dgrad" || part == "wgrad"; }

}  // namespace

Engine& BenchEngines::of(const std::string& recipe) {
  Config config = config_;
  config.precision.recipe = recipe;
  std::unique_ptr<Engine>& engine = engines_[gpu_high_precision(config.precision)];
  if (engine == nullptr) engine = make_engine(config, [](const std::string&) {});
  return *engine;
}

Recipe BenchEngines::recipe(const std::string& name) const {
  return make_recipe(name, {.recipes = config_.precision.recipes});
}

std::vector<Measurement> measure_layer(BenchEngines& engines, const LayerRace& race) {
  const auto benches = benches_of(engines, race.layer, race.tokens, race.recipes);
  std::vector<Measurement> measured;
  const bool one_row = race.layer.rows(race.tokens) == 1;
  const std::vector<std::string>& parts = parts_of(race.layer.rows(race.tokens));
  for (const std::string& part : parts) {
    Race turns;
    for (std::size_t i = 0; i < benches.size(); ++i) {
      turns.add(engines.of(race.recipes[i]), [bench = benches[i].get(), &part] { bench->run(part); });
    }
    turns.run(race.seconds / static_cast<double>(parts.size()));
    for (std::size_t i = 0; i < benches.size(); ++i) {
      const LayerBench& bench = *benches[i];
      measured.push_back({.workload = one_row ? Workload::vector : Workload::layer,
                          .subject = race.layer.subject(race.tokens),
                          .part = part,
                          .recipe = race.recipes[i],
                          .support = is_product(part) ? bench.support() : "",
                          .time = turns.timing(i),
                          .flops = is_product(part) ? bench.flops() : 0,
                          .bytes = bench.bytes(part),
                          .units = static_cast<double>(race.tokens)});
    }
  }
  return measured;
}

std::function<void()> square_product(BenchEngines& engines, const std::string& recipe, Size extent) {
  const BenchLayer square{"square", extent, extent, 1, extent};
  return [bench = benches_of(engines, square, extent, {recipe}).front()] { bench->run("fprop"); };
}

std::vector<Measurement> measure_peaks(BenchEngines& engines, double seconds) {
  const std::vector<std::string> recipes{"fp32", "tf32", "fp16", "bf16", "fp8-current"};
  Engine& engine = engines.of("bf16");
  const bool gpu = engine.device().hardware().kind == HardwareKind::gpu;
  const Size extent = gpu ? 8192 : 1024;
  const BenchLayer square{"square", extent, extent, 1, extent};
  const auto benches = benches_of(engines, square, extent, recipes);
  Race turns;
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    turns.add(engines.of(recipes[i]), [bench = benches[i].get()] { bench->run("fprop"); });
  }
  BenchMatrices memory(engine);
  const Size rows = gpu ? 65536 : 4096;
  const View from = memory.normal(rows, 4096, engine.high_precision(), 5);
  const View to = memory.make(rows, 4096, engine.high_precision());
  turns.add(engine, [&] { engine.run(Combine{.x = from, .y = from, .keep = 1, .add = 0, .out = to}); });
  turns.run(seconds);
  std::vector<Measurement> measured;
  for (std::size_t i = 0; i < benches.size(); ++i) {
    measured.push_back({.subject = fmt::format("{0} × {0} × {0}", extent),
                        .part = "GEMM",
                        .recipe = recipes[i],
                        .support = benches[i]->support(),
                        .time = turns.timing(i),
                        .flops = benches[i]->flops(),
                        .bytes = benches[i]->bytes("fprop")});
  }
  measured.push_back({.subject = "memory",
                      .part = "copy",
                      .recipe = std::string(info(engine.high_precision()).name),
                      .support = "native",
                      .time = turns.timing(benches.size()),
                      .bytes = 2 * static_cast<double>(from.bytes())});
  return measured;
}

}  // namespace quaver
