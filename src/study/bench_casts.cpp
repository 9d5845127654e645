#include "study/bench_casts.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "precision/recipe.h"
#include "study/bench_matrices.h"
#include "study/bench_race.h"

namespace quaver {

namespace {

struct CastKind {
  const char* part;
  Role role;
  Copies copies;
};

constexpr std::array<CastKind, 4> cast_kinds{{{"x, rowwise", Role::x, Copies::rows_only},
                                              {"x, both sides", Role::x, Copies::both},
                                              {"dy, rowwise", Role::dy, Copies::rows_only},
                                              {"dy, both sides", Role::dy, Copies::both}}};

// What is cast, once in the memory of each engine.
class CastInputs {
 public:
  explicit CastInputs(const CastRace& race) : race_(race) {}
  const View& of(Engine& engine) {
    auto [at, added] = made_.try_emplace(&engine, Input{BenchMatrices(engine), {}});
    if (added) at->second.values = at->second.memory.normal(race_.rows, race_.cols, engine.high_precision(), 2);
    return at->second.values;
  }

 private:
  struct Input {
    BenchMatrices memory;
    View values;
  };
  const CastRace& race_;
  std::map<Engine*, Input> made_;
};

// One cast under one recipe, on its engine.
class CastBench {
 public:
  CastBench(Engine& engine, const View& values, const Recipe& recipe, const CastKind& kind)
      : engine_(engine), memory_(engine), values_(values) {
    site_.name = "bench/" + std::string(name_of(kind.role));
    site_.role = kind.role;
    site_.spec = recipe.of(kind.role);
    if (has_given_scale(site_.spec.rows)) site_.scale = tensor_scale_for(site_.spec.rows, typical_amax);
    out_ = QuantizedTensor(site_, values.rows, values.cols, kind.copies, engine.sharing(),
                           [this](std::size_t bytes) { return memory_.take(bytes); });
  }

  void run() { engine_.run(Quantize{values_, out_, casting_}); }
  double bytes() const { return static_cast<double>(values_.bytes() + out_.bytes()); }
  bool has_one_copy() const { return !out_.has_own_columns(); }

 private:
  Engine& engine_;
  BenchMatrices memory_;
  View values_;
  Site site_;
  QuantizedTensor out_;
  Casting casting_;
};

}  // namespace

CastRace cast_race_of(const std::vector<BenchLayer>& layers) {
  CastRace race;
  for (const BenchLayer& layer : layers) {
    const Size rows = layer.rows(layer.tokens);
    if (rows * layer.in <= race.rows * race.cols) continue;
    race = {.rows = rows, .cols = layer.in, .recipes = {}, .units = static_cast<double>(layer.tokens)};
  }
  return race;
}

std::vector<Measurement> measure_casts(BenchEngines& engines, const CastRace& race) {
  std::vector<std::string> recipes = race.recipes;
  std::erase_if(recipes, [&](const std::string& recipe) { return is_high_precision(engines.recipe(recipe)); });
  std::vector<Measurement> measured;
  CastInputs inputs(race);
  for (const CastKind& kind : cast_kinds) {
    std::vector<std::unique_ptr<CastBench>> benches;
    Race turns;
    for (const std::string& recipe : recipes) {
      Engine& engine = engines.of(recipe);
      benches.push_back(std::make_unique<CastBench>(engine, inputs.of(engine), engines.recipe(recipe), kind));
      turns.add(engine, [bench = benches.back().get()] { bench->run(); });
    }
    turns.run(race.seconds / static_cast<double>(cast_kinds.size()));
    for (std::size_t i = 0; i < benches.size(); ++i) {
      const bool shared = kind.copies == Copies::both && benches[i]->has_one_copy();
      measured.push_back({.workload = Workload::cast,
                          .subject = fmt::format("{} × {}", race.rows, race.cols),
                          .part = kind.part,
                          .recipe = recipes[i],
                          .support = shared ? "one copy is both" : "",
                          .time = turns.timing(i),
                          .flops = static_cast<double>(race.rows * race.cols),  // each times its scale
                          .bytes = benches[i]->bytes(),
                          .units = race.units});
    }
  }
  return measured;
}

}  // namespace quaver
