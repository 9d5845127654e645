#include "precision/recipe.h"

#include <algorithm>
#include <array>

#include "quaver/error.h"

namespace quaver {

namespace {

constexpr std::array<RecipeInfo, 13> table{{
    {"fp32", "everything in FP32"},
    {"tf32", "operands rounded to 10 mantissa bits"},
    {"bf16", "operands in BF16"},
    {"fp16", "operands in FP16, with loss scaling"},
    {"fp8-current", "E4M3 forward, E5M2 gradients; one scale per tensor, from the tensor itself (current scaling)"},
    {"fp8-delayed", "E4M3 forward, E5M2 gradients; one scale per tensor, from the amax history (delayed scaling)"},
    {"fp8-static", "E4M3 forward, E5M2 gradients; static scales from calibration or the config"},
    {"fp8-row", "E4M3; rowwise: one scale per row along the summed dimension"},
    {"fp8-block", "E4M3; blockwise: 1×128, weights 128×128"},
    {"fp8-unit", "E4M3 forward, E5M2 gradients; no scales at all, for unit-scaled models"},
    {"mxfp8", "E4M3; 1×32 blocks with power-of-two scales"},
    {"mxfp4",
     "E2M1; 1×32 blocks with power-of-two scales, random Hadamard transform and stochastic rounding in the backward "
     "pass"},
    {"nvfp4",
     "E2M1; 1×16 blocks with E4M3 scales, weights 16×16, stochastic rounding of gradients; last 15% of blocks in bf16"},
}};

SiteSpec both(const QuantSpec& spec) { return {spec, spec}; }

QuantSpec high_precision(Format format) { return {.format = format}; }

ScaleFormat tensor_scale_format(const PrecisionConfig& options) {
  return options.power_of_two_scales ? ScaleFormat::f32_power_of_two : ScaleFormat::f32;
}

// One scale per tensor: E4M3 forward, E5M2 gradients.
Recipe per_tensor(ScalePolicy policy, const PrecisionConfig& options) {
  const ScaleFormat scale = policy == ScalePolicy::none ? ScaleFormat::f32 : tensor_scale_format(options);
  const int margin = policy == ScalePolicy::none || policy == ScalePolicy::fixed ? 0 : options.margin;
  const QuantSpec forward{.format = Format::e4m3, .scale = scale, .policy = policy, .margin = margin};
  QuantSpec gradient = forward;
  gradient.format = Format::e5m2;
  return {.x = both(forward), .w = both(forward), .dy = both(gradient)};
}

Recipe per_row(const PrecisionConfig& options) {
  const QuantSpec spec{.format = Format::e4m3,
                       .block = block::row,
                       .scale = tensor_scale_format(options),
                       .policy = ScalePolicy::current,
                       .margin = options.margin};
  Recipe recipe{.x = both(spec), .w = both(spec), .dy = both(spec)};
  if (options.wide_weight_gradient) recipe.x.columns = recipe.dy.columns = high_precision(Format::bf16);
  return recipe;
}

Recipe per_block(const PrecisionConfig& options) {
  const QuantSpec rows{.format = Format::e4m3,
                       .block = block::b1x128,
                       .scale = tensor_scale_format(options),
                       .policy = ScalePolicy::current,
                       .margin = options.margin};
  QuantSpec weight = rows;
  weight.block = block::b128x128;
  return {.x = both(rows), .w = both(weight), .dy = both(rows)};
}

QuantSpec mx(Format format, const PrecisionConfig& options) {
  return {.format = format,
          .block = block::b1x32,
          .scale = options.mx_floor ? ScaleFormat::e8m0_floor : ScaleFormat::e8m0,
          .policy = ScalePolicy::current};
}

Recipe mxfp8(const PrecisionConfig& options) {
  const SiteSpec spec = both(mx(Format::e4m3, options));
  return {.x = spec, .w = spec, .dy = spec};
}

// fprop as it is; both operands of dgrad and wgrad rotated, shrunk to ¾ so that stochastic rounding never clips, and
// rounded stochastically. The GEMM makes up for it with 4/3 · 4/3 = 16/9.
Recipe mxfp4(const PrecisionConfig& options) {
  const QuantSpec forward = mx(Format::e2m1, options);
  QuantSpec backward = forward;
  backward.rounding = Rounding::stochastic;
  backward.rotation = Rotation::hadamard;
  backward.shrink = 0.75F;
  return {.x = {forward, backward}, .w = {forward, backward}, .dy = both(backward)};
}

// Rotation of the two operands of wgrad only; weights in 2-D blocks, so that rowwise and columnwise codes agree.
Recipe nvfp4() {
  const QuantSpec rows{
      .format = Format::e2m1, .block = block::b1x16, .scale = ScaleFormat::e4m3, .policy = ScalePolicy::current};
  QuantSpec weight = rows;
  weight.block = block::b16x16;
  QuantSpec rotated = rows;
  rotated.rotation = Rotation::hadamard;
  QuantSpec gradient = rows;
  gradient.rounding = Rounding::stochastic;
  QuantSpec rotated_gradient = gradient;
  rotated_gradient.rotation = Rotation::hadamard;
  return {.x = {rows, rotated}, .w = both(weight), .dy = {gradient, rotated_gradient}, .wide_tail = 0.15};
}

Recipe by_name(std::string_view name, const PrecisionConfig& options) {
  if (name == "fp32") return all_in(Format::f32);
  if (name == "tf32") return all_in(Format::tf32);
  if (name == "bf16") return all_in(Format::bf16);
  if (name == "fp16") return all_in(Format::f16);
  if (name == "fp8-current") return per_tensor(ScalePolicy::current, options);
  if (name == "fp8-delayed") return per_tensor(ScalePolicy::delayed, options);
  if (name == "fp8-static") return per_tensor(ScalePolicy::fixed, options);
  if (name == "fp8-unit") return per_tensor(ScalePolicy::none, options);
  if (name == "fp8-row") return per_row(options);
  if (name == "fp8-block") return per_block(options);
  if (name == "mxfp8") return mxfp8(options);
  if (name == "mxfp4") return mxfp4(options);
  if (name == "nvfp4") return nvfp4();
  std::string known;
  for (const RecipeInfo& recipe : table) known += (known.empty() ? "" : ", ") + std::string(recipe.name);
  for (const auto& own : options.recipes) known += ", " + own.first;
  throw Error("there is no recipe '" + std::string(name) + "'", "choose one of " + known);
}

// No GPU multiplies E5M2 with E5M2, and FP4 recipes have their own gradients, so only E4M3 ↔ E5M2 change.
void replace_gradient_format(SiteSpec& dy, GradientFormat choice) {
  if (choice == GradientFormat::recipe) return;
  const Format format = choice == GradientFormat::e4m3 ? Format::e4m3 : Format::e5m2;
  for (QuantSpec* spec : {&dy.rows, &dy.columns}) {
    if (is_fp8(spec->format)) spec->format = format;
  }
}

const RecipeInfo* find_built_in(std::string_view name) {
  return std::find_if(table.begin(), table.end(), [&](const RecipeInfo& recipe) { return recipe.name == name; });
}

Recipe built_in(std::string_view name, const PrecisionConfig& options) {
  Recipe recipe = by_name(name, options);
  recipe.summary = find_built_in(name)->summary;
  return recipe;
}

std::array<QuantSpec, 6> operands_of(const Recipe& recipe) {
  return {recipe.x.rows, recipe.x.columns, recipe.w.rows, recipe.w.columns, recipe.dy.rows, recipe.dy.columns};
}

void check_rotation(const QuantSpec& a, const QuantSpec& b, const std::string& meeting) {
  if (a.rotation == b.rotation) return;
  throw Error(meeting + " meet in a GEMM, and only one of them is rotated", "write hadamard for both, or for neither");
}

void check_share(double share, const std::string& name) {
  if (share >= 0 && share <= 1) return;
  throw Error(name + " is " + std::to_string(share) + ", and no share of the blocks", "choose it from 0 to 1");
}

}  // namespace

std::span<const RecipeInfo> recipes() { return table; }

bool is_built_in_recipe(std::string_view name) { return find_built_in(name) != table.end(); }

Recipe make_recipe(std::string_view name, const PrecisionConfig& options) {
  const auto own = options.recipes.find(name);
  Recipe recipe = own != options.recipes.end() ? own->second : built_in(name, options);
  recipe.name = name;
  replace_gradient_format(recipe.dy, options.gradient_format);
  if (options.wide_start >= 0) recipe.wide_start = options.wide_start;
  if (options.wide_tail >= 0) recipe.wide_tail = options.wide_tail;
  return recipe;
}

void check(const Recipe& recipe, const std::string& where) {
  check(recipe.x, where + ".x");
  check(recipe.w, where + ".w");
  check(recipe.dy, where + ".dy");
  check_rotation(recipe.x.rows, recipe.w.rows, where + ": x rowwise and w rowwise");
  check_rotation(recipe.dy.rows, recipe.w.columns, where + ": dy rowwise and w columnwise");
  check_rotation(recipe.dy.columns, recipe.x.columns, where + ": dy columnwise and x columnwise");
  check_share(recipe.wide_start, where + ": wide_start");
  check_share(recipe.wide_tail, where + ": wide_tail");
}

Recipe all_in(Format format) {
  const SiteSpec spec = both(high_precision(format));
  return {.x = spec, .w = spec, .dy = spec};
}

bool has_operand_in(const Recipe& recipe, Format format) {
  const auto operands = operands_of(recipe);
  return std::any_of(operands.begin(), operands.end(), [&](const QuantSpec& spec) { return spec.format == format; });
}

bool is_all_in(const Recipe& recipe, Format format) {
  const auto operands = operands_of(recipe);
  return std::all_of(operands.begin(), operands.end(),
                     [&](const QuantSpec& spec) { return spec == high_precision(format); });
}

bool is_high_precision(const Recipe& recipe) {
  const auto operands = operands_of(recipe);
  return std::none_of(operands.begin(), operands.end(),
                      [](const QuantSpec& spec) { return is_low_precision(spec.format); });
}

bool have_same_operands(const Recipe& a, const Recipe& b) { return operands_of(a) == operands_of(b); }

int low_precision_bits(const Recipe& recipe) {
  int most = 0;
  for (const QuantSpec& spec : operands_of(recipe)) {
    if (is_low_precision(spec.format)) most = std::max(most, info(spec.format).storage_bits);
  }
  return most;
}

bool is_unscaled(const Recipe& recipe) {
  const auto operands = operands_of(recipe);
  return !is_high_precision(recipe) && std::all_of(operands.begin(), operands.end(), [](const QuantSpec& spec) {
    return spec.policy == ScalePolicy::none;
  });
}

std::string high_precision_recipe_for(const PrecisionConfig& options) {
  return is_high_precision(make_recipe(options.recipe, options)) ? options.recipe : "bf16";
}

}  // namespace quaver
