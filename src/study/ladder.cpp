#include "study/ladder.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <optional>

#include "numerics/what_if.h"

namespace quaver {

namespace {

constexpr std::array<RungKind, 6> rung_kinds{RungKind::fp4_blocks, RungKind::tensor, RungKind::range,
                                             RungKind::rows,       RungKind::blocks, RungKind::mx};

// The recipe whose operands a rung has, and the word for a mixture of it and the layer's own.
struct RungSource {
  std::string_view recipe;
  std::string_view suffix;
};

RungSource source_of(RungKind kind) {
  switch (kind) {
    case RungKind::fp4_blocks:
      return {"nvfp4", "16"};
    case RungKind::tensor:
    case RungKind::range:
      return {"fp8-current", kind == RungKind::range ? "e5m2" : "tensor"};
    case RungKind::rows:
      return {"fp8-row", "row"};
    case RungKind::blocks:
      return {"fp8-block", "block"};
    case RungKind::mx:
      break;
  }
  return {"mxfp8", "mx"};
}

// How many elements share a scale, as steps from many to few.
enum class Grain : std::uint8_t { unscaled, tensor, row, block128, block32, block16 };

Grain grain_of(const QuantSpec& spec) {
  if (spec.block == block::tensor) return spec.policy == ScalePolicy::none ? Grain::unscaled : Grain::tensor;
  if (spec.block == block::row) return Grain::row;
  if (spec.block.cols == 128) return Grain::block128;
  return spec.block.cols == 32 ? Grain::block32 : Grain::block16;
}

// The coarsest scale and the smallest width among a recipe's operands in low precision.
struct Coarseness {
  Grain grain = Grain::block16;
  int bits = 8;
};

Coarseness coarseness_of(const Recipe& recipe) {
  Coarseness coarsest;
  for (const SiteSpec* site : {&recipe.x, &recipe.w, &recipe.dy}) {
    for (const QuantSpec* spec : {&site->rows, &site->columns}) {
      if (!is_low_precision(spec->format)) continue;
      coarsest.grain = std::min(coarsest.grain, grain_of(*spec));
      coarsest.bits = std::min(coarsest.bits, info(spec->format).storage_bits);
    }
  }
  return coarsest;
}

bool is_finer(RungKind kind, const Coarseness& own) {
  const bool is_fp4 = own.bits < 8;
  switch (kind) {
    case RungKind::fp4_blocks:
      return is_fp4 && own.grain < Grain::block16;
    case RungKind::tensor:
      return is_fp4 || own.grain < Grain::tensor;
    case RungKind::range:
      return true;
    case RungKind::rows:
      return is_fp4 || own.grain < Grain::row;
    case RungKind::blocks:
      return is_fp4 || own.grain < Grain::block128;
    case RungKind::mx:
      break;
  }
  return is_fp4 || own.grain < Grain::block32;
}

// A format of 8 bits that is none of FP8's stays; its scales become the rung's.
QuantSpec in_place_of(const QuantSpec& own, QuantSpec rung) {
  if (!is_low_precision(own.format)) return own;
  const bool other_8bit = !is_fp8(own.format) && info(own.format).storage_bits == 8;
  if (other_8bit && is_fp8(rung.format)) rung.format = own.format;
  return rung;
}

SiteSpec in_place_of(const SiteSpec& own, const SiteSpec& rung) {
  return {in_place_of(own.rows, rung.rows), in_place_of(own.columns, rung.columns)};
}

void replace_format(SiteSpec& site, Format from, Format to) {
  for (QuantSpec* spec : {&site.rows, &site.columns}) {
    if (spec->format == from) spec->format = to;
  }
}

class LadderMaker {
 public:
  LadderMaker(const Plan& plan, const std::vector<LayerShape>& layers, const PrecisionConfig& options,
              const std::set<std::size_t>& wide)
      : plan_(plan), layers_(layers), options_(options), wide_(wide) {}

  Ladder make() {
    for (const RungKind kind : rung_kinds) {
      Rung rung = make_rung(kind);
      if (!rung.layers.empty()) ladder_.rungs.push_back(std::move(rung));
    }
    return std::move(ladder_);
  }

 private:
  Recipe own_recipe(std::size_t layer) const {
    const auto row = [&](Role role) -> const PlanRow& { return plan_.rows[site_index(layer, role)]; };
    Recipe recipe{
        .name = row(Role::x).recipe, .x = row(Role::x).spec, .w = row(Role::w).spec, .dy = row(Role::dy).spec};
    for (const Role role : roles) {
      if (!is_high_precision(all_of_role(recipe, role))) recipe.name = row(role).recipe;
    }
    return recipe;
  }

  static Recipe all_of_role(const Recipe& recipe, Role role) {
    return {.x = recipe.of(role), .w = recipe.of(role), .dy = recipe.of(role)};
  }

  std::optional<Recipe> on_rung(RungKind kind, const Recipe& own, bool is_wide) const {
    const Coarseness coarseness = coarseness_of(own);
    if (is_high_precision(own) || !is_finer(kind, coarseness)) return std::nullopt;
    if (kind == RungKind::range) return is_wide ? with_range(own, coarseness) : std::nullopt;
    return in_recipe(kind, own);
  }

  Recipe in_recipe(RungKind kind, const Recipe& own) const {
    const RungSource source = source_of(kind);
    Recipe target = make_recipe(source.recipe, options_);
    Recipe mixed{
        .x = in_place_of(own.x, target.x), .w = in_place_of(own.w, target.w), .dy = in_place_of(own.dy, target.dy)};
    agree_on_rotation(mixed.x, mixed.w, mixed.dy);
    if (have_same_operands(mixed, target)) return target;
    mixed.name = fmt::format("{}-{}", own.name, source.suffix);
    mixed.summary = fmt::format("{} with the scales of {}", own.name, source.recipe);
    return mixed;
  }

  // FP4 and what has no scale changes place by place with FP8 as it is on the rung before.
  std::optional<Recipe> with_range(const Recipe& own, const Coarseness& coarseness) const {
    Recipe recipe = is_finer(RungKind::tensor, coarseness) ? in_recipe(RungKind::tensor, own) : own;
    const std::string base = recipe.name;
    if (recipe.x.rows.format != Format::e4m3 && recipe.x.columns.format != Format::e4m3) return std::nullopt;
    replace_format(recipe.x, Format::e4m3, Format::e5m2);
    replace_format(recipe.dy, Format::e5m2, Format::e4m3);
    recipe.name = fmt::format("{}-{}", base, source_of(RungKind::range).suffix);
    recipe.summary = fmt::format("{} with x in E5M2 and dy in E4M3", base);
    return recipe;
  }

  // By the name under which a config can have it: that of a recipe which is there with other operands gets a number.
  std::string enter(Recipe recipe) {
    if (is_built_in_recipe(recipe.name)) return recipe.name;
    constexpr std::size_t longest_base = 60;
    const std::string base = recipe.name.substr(0, longest_base);
    recipe.name = base;
    for (int number = 2;; ++number) {
      const auto own = options_.recipes.find(recipe.name);
      if (own != options_.recipes.end() && have_same_operands(own->second, recipe)) return recipe.name;
      const auto made = ladder_.recipes.find(recipe.name);
      const bool is_ours = made != ladder_.recipes.end() && have_same_operands(made->second, recipe);
      if (is_ours || (own == options_.recipes.end() && made == ladder_.recipes.end())) break;
      recipe.name = fmt::format("{}-{}", base, number);
    }
    ladder_.recipes.insert_or_assign(recipe.name, recipe);
    return recipe.name;
  }

  // The options have the last word (precision.gradient_format), and so may bring E5M2 to E5M2.
  static bool exists_on_tensor_cores(const Plan& plan, std::size_t layer) {
    const auto spec = [&](Role role) -> const SiteSpec& { return plan.rows[site_index(layer, role)].spec; };
    const auto meets = [](const QuantSpec& a, const QuantSpec& b) {
      return a.format != Format::e5m2 || b.format != Format::e5m2;
    };
    return meets(spec(Role::x).rows, spec(Role::w).rows) && meets(spec(Role::dy).rows, spec(Role::w).columns) &&
           meets(spec(Role::dy).columns, spec(Role::x).columns);
  }

  Rung make_rung(RungKind kind) {
    PrecisionConfig options = options_;
    options.layers.clear();
    options.only_where_faster.clear();
    Rung rung{.kind = kind, .plan = plan_, .layers = {}};
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      if (layers_[layer].adaptation == Adaptation::adapter) continue;
      std::optional<Recipe> recipe = on_rung(kind, own_recipe(layer), wide_.contains(layer));
      if (!recipe) continue;
      options.layers[layers_[layer].name] = enter(std::move(*recipe));
      rung.layers.insert(layer);
    }
    for (const auto& [name, recipe] : ladder_.recipes) options.recipes.insert_or_assign(name, recipe);
    const Plan made = make_plan(options, layers_);
    std::erase_if(rung.layers, [&](std::size_t layer) { return !exists_on_tensor_cores(made, layer); });
    for (const std::size_t layer : rung.layers) {
      for (const Role role : roles) rung.plan.rows[site_index(layer, role)] = made.rows[site_index(layer, role)];
    }
    return rung;
  }

  const Plan& plan_;
  const std::vector<LayerShape>& layers_;
  const PrecisionConfig& options_;
  const std::set<std::size_t>& wide_;
  Ladder ladder_;
};

}  // namespace

std::string_view name_of(RungKind kind) {
  switch (kind) {
    case RungKind::fp4_blocks:
      return "FP4 in smaller blocks";
    case RungKind::tensor:
      return "FP8, a scale per tensor";
    case RungKind::range:
      return "x in E5M2";
    case RungKind::rows:
      return "a scale per row";
    case RungKind::blocks:
      return "a scale per 1x128";
    case RungKind::mx:
      break;
  }
  return "a scale per 1x32";
}

Ladder make_ladder(const Plan& plan, const std::vector<LayerShape>& layers, const PrecisionConfig& options,
                   const std::set<std::size_t>& wide) {
  return LadderMaker(plan, layers, options, wide).make();
}

bool has_wide_range(const CastStatistics& seen) {
  constexpr double worth_a_look = 1;  // percent
  const Distribution distribution = distribution_of(seen);
  const double e4m3 = what_if(distribution, Format::e4m3).underflow_percent;
  const double e5m2 = what_if(distribution, Format::e5m2).underflow_percent;
  return e4m3 >= worth_a_look && e5m2 <= e4m3 / 2;  // false for NaN: nothing was seen
}

}  // namespace quaver
