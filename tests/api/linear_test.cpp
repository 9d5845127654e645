// The public linear layer computes what the formats' casts and the engine's GEMMs give, bit for bit.
#include "quaver/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/random_matrix.h"

#include "quaver/error.h"
#include "quaver/quantize.h"
#include "quaver/recipe.h"

namespace quaver {
namespace {

constexpr Size tokens = 48;
constexpr Size in = 64;
constexpr Size out = 32;

struct Passed {
  std::vector<float> y = std::vector<float>(tokens * out);
  std::vector<float> dx = std::vector<float>(tokens * in);
  std::vector<float> dw;
};

const std::vector<float> x = test::random_matrix(tokens, in, 1);
const std::vector<float> w = test::random_matrix(out, in, 2);
const std::vector<float> dy = test::random_matrix(tokens, out, 3);

Passed one_pass(LinearLayer& layer) {
  Passed passed;
  layer.set_weight(w);
  layer.forward(x, passed.y);
  layer.backward(dy, passed.dx);
  passed.dw = layer.weight_gradient();
  return passed;
}

QuantizedMatrix cast(const std::vector<float>& values, Size rows, const SiteSpec& spec, Side side) {
  CastSettings settings{.spec = side == Side::rows ? spec.rows : spec.columns, .side = side, .seed = 1};
  return QuantizedMatrix({values, rows, static_cast<Size>(values.size()) / rows}, settings);
}

// Recipes without stochastic rounding, whose random streams are the layer's own.
TEST(LinearLayerTest, IsThreeGemmsOfTheRecipesCasts) {
  for (const char* name : {"fp32", "bf16", "fp16", "fp8-current", "fp8-delayed", "fp8-row", "fp8-block", "mxfp8"}) {
    SCOPED_TRACE(name);
    LinearLayer layer({.in = in, .out = out, .recipe = name});
    const Passed passed = one_pass(layer);
    const Recipe recipe = find_recipe(name);
    std::vector<float> y(tokens * out), dx(tokens * in), dw(out * in);
    gemm(cast(x, tokens, recipe.x, Side::rows), cast(w, out, recipe.w, Side::rows), y);
    gemm(cast(dy, tokens, recipe.dy, Side::rows), cast(w, out, recipe.w, Side::columns), dx);
    gemm(cast(dy, tokens, recipe.dy, Side::columns), cast(x, tokens, recipe.x, Side::columns), dw);
    EXPECT_EQ(passed.y, y);
    EXPECT_EQ(passed.dx, dx);
    EXPECT_EQ(passed.dw, dw);
  }
}

TEST(LinearLayerTest, EveryRecipeIsDeterministicAndNearFp32) {
  LinearLayer exact({.in = in, .out = out, .recipe = "fp32"});
  const Passed reference = one_pass(exact);
  for (const RecipeInfo& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    const LinearSettings settings{
        .in = in, .out = out, .recipe = std::string(recipe.name), .settings = {"precision.static_gradient_scale=16"}};
    LinearLayer first(settings);
    LinearLayer second(settings);
    const Passed passed = one_pass(first);
    EXPECT_EQ(passed.dw, one_pass(second).dw);
    double error = 0;
    double power = 0;
    for (std::size_t i = 0; i < passed.y.size(); ++i) {
      error += std::pow(passed.y[i] - reference.y[i], 2);
      power += std::pow(reference.y[i], 2);
    }
    EXPECT_LT(error, 0.06 * power);
  }
}

TEST(LinearLayerTest, AddsTheBiasAndItsGradient) {
  LinearLayer layer({.in = in, .out = out, .bias = true, .recipe = "fp32"});
  std::vector<float> bias = test::random_matrix(1, out, 4);
  layer.set_bias(bias);
  std::vector<float> y(tokens * out), dx(tokens * in);
  layer.forward(x, y);  // the weight is zero
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + out), bias);
  layer.backward(dy, dx);
  double sum = 0;
  for (std::size_t t = 0; t < tokens; ++t) sum += dy[t * out];
  EXPECT_NEAR(layer.bias_gradient()[0], sum, 1e-4);
}

TEST(LinearLayerTest, AStepSetsDelayedScalesAndClearsGradients) {
  LinearLayer layer({.in = in, .out = out, .recipe = "fp8-delayed"});
  layer.collect(Detail::full);
  const Passed passed = one_pass(layer);
  std::vector<float> y(tokens * out), dx(tokens * in);
  layer.forward(x, y);
  layer.backward(dy, dx);
  std::vector<float> twice = passed.dw;
  for (float& value : twice) value *= 2;
  EXPECT_EQ(layer.weight_gradient(), twice);
  EXPECT_EQ(layer.scale(Role::x), 0);
  layer.end_step();
  const float amax = *std::max_element(x.begin(), x.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  EXPECT_EQ(layer.statistics(Role::x).amax, std::abs(amax));
  EXPECT_EQ(layer.scale(Role::x), 448.0F / std::abs(amax));
  EXPECT_TRUE(layer.statistics(Role::dy).full);
  EXPECT_EQ(layer.weight_gradient(), std::vector<float>(out * in));
  LinearLayer other({.in = in, .out = out, .recipe = "fp8-delayed"});
  EXPECT_THAT(other.load_scales(layer.scales_json()), testing::IsEmpty());
  EXPECT_EQ(other.scale(Role::dy), layer.scale(Role::dy));
}

TEST(LinearLayerTest, TakesAnyNumberOfTokens) {
  LinearLayer layer({.in = in, .out = out, .recipe = "mxfp8"});
  layer.set_weight(w);
  for (const std::size_t count : {1UL, 48UL, 7UL}) {
    std::vector<float> y(count * out), dx(count * in);
    layer.forward(std::span(x).first(count * in), y, LinearPass::evaluate);
    const std::vector<float> evaluated = y;
    layer.forward(std::span(x).first(count * in), y);
    EXPECT_EQ(y, evaluated);
    layer.backward(std::span(dy).first(count * out), dx);
  }
}

TEST(LinearLayerTest, RefusesAWrongOrderAndWrongSizes) {
  LinearLayer layer({.in = in, .out = out});
  std::vector<float> y(tokens * out), dx(tokens * in);
  EXPECT_THROW(layer.backward(dy, dx), Error);
  layer.forward(x, y, LinearPass::evaluate);
  EXPECT_THROW(layer.backward(dy, dx), Error);
  layer.forward(x, y);
  EXPECT_THROW(layer.backward(std::span(dy).first(out), dx), Error);
  layer.backward(dy, dx);
  EXPECT_THROW(layer.backward(dy, dx), Error);
  EXPECT_THROW(layer.forward(std::span(x).first(in - 1), y), Error);
  EXPECT_THROW(layer.set_weight(x), Error);
  EXPECT_THROW(layer.set_bias(x), Error);
  EXPECT_THROW(LinearLayer({.in = 0, .out = 4}), Error);
  EXPECT_THROW(LinearLayer({.in = 4, .out = 4, .recipe = "fp9"}), Error);
  EXPECT_THROW(LinearLayer({.in = 4, .out = 4, .settings = {"precision.scales=scales.json"}}), Error);
}

}  // namespace
}  // namespace quaver
