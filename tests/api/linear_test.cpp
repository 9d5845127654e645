// The public linear layer computes what the formats' casts and the engine's GEMMs give, bit for bit.
#include "quaver/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/random_matrix.h"

#include "quaver/error.h"
#include "quaver/quantize.h"
#include "quaver/recipe.h"

namespace quaver::linear_layer_test {
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

// A pass over arrays that the layer reads and writes in place.
class PlacedPass {
 public:
  PlacedPass(LinearLayer& layer, std::span<const float> input) : layer_(layer), input_(input) {
    const LinearMemory needed = layer.memory(tokens, Format::f32);
    kept_.resize(needed.kept);
    scratch_.resize(std::max(needed.forward_scratch, needed.backward_scratch));
    layer.forward({.tokens = tokens, .x = input.data(), .y = passed.y.data(), .kept = kept_, .scratch = scratch_});
  }
  void backward(LinearGradient store, std::vector<float>& dw) {
    layer_.backward({.tokens = tokens,
                     .x = input_.data(),
                     .dy = dy.data(),
                     .dx = passed.dx.data(),
                     .weight_gradient = dw.data(),
                     .store = store,
                     .kept = kept_,
                     .scratch = scratch_});
  }
  Passed passed;

 private:
  LinearLayer& layer_;
  std::span<const float> input_;
  std::vector<std::byte> kept_;
  std::vector<std::byte> scratch_;
};

TEST(LinearLayerTest, PassesInDeviceMemoryAreThoseOfHostArraysInAnyOrder) {
  const std::vector<float> other = test::random_matrix(tokens, in, 5);
  for (const char* name : {"fp32", "bf16", "fp8-current", "fp8-delayed", "fp8-block", "mxfp8"}) {
    SCOPED_TRACE(name);
    LinearLayer host({.in = in, .out = out, .recipe = name});
    const Passed expected = one_pass(host);
    LinearLayer layer({.in = in, .out = out, .recipe = name});
    layer.set_weight(w.data(), Format::f32, nullptr);
    PlacedPass first(layer, x);
    PlacedPass second(layer, other);
    std::vector<float> dw(out * in), sum(out * in);
    second.backward(LinearGradient::replace, sum);
    first.backward(LinearGradient::replace, dw);
    EXPECT_EQ(first.passed.y, expected.y);
    EXPECT_EQ(first.passed.dx, expected.dx);
    EXPECT_EQ(dw, expected.dw);
    first.backward(LinearGradient::add, sum);
    host.forward(other, second.passed.y);
    host.backward(dy, second.passed.dx);
    const std::vector<float> both = host.weight_gradient();
    for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], both[i], 1e-3);
  }
}

TEST(LinearLayerTest, EndsTheStepOfManyLayersAsOfEach) {
  LinearLayer first({.in = in, .out = out, .recipe = "fp8-delayed"});
  LinearLayer second({.in = in, .out = out, .recipe = "fp8-delayed"});
  LinearLayer alone({.in = in, .out = out, .recipe = "fp8-delayed"});
  for (LinearLayer* layer : {&first, &second, &alone}) one_pass(*layer);
  alone.end_step();
  LinearLayer* const both[] = {&first, &second};
  LinearLayer::end_step(both);
  EXPECT_GT(alone.scale(Role::x), 0);
  EXPECT_EQ(first.scale(Role::x), alone.scale(Role::x));
  EXPECT_EQ(second.scale(Role::dy), alone.scale(Role::dy));
  EXPECT_EQ(second.statistics(Role::w).count, alone.statistics(Role::w).count);
}

TEST(LinearLayerTest, RefusesPassesInDeviceMemoryThatItCannotRun) {
  LinearLayer layer({.in = in, .out = out});
  const LinearMemory needed = layer.memory(tokens, Format::f32);
  std::vector<std::byte> kept(needed.kept), scratch(needed.forward_scratch);
  std::vector<float> y(tokens * out);
  LinearForward pass{.tokens = tokens, .x = x.data(), .y = y.data(), .kept = kept, .scratch = scratch};
  EXPECT_THROW(layer.forward(pass), Error);  // no weight
  layer.set_weight(w.data(), Format::f32, nullptr);
  layer.forward(pass);
  const auto refused = [&](const auto& change) {
    LinearForward changed = pass;
    change(changed);
    EXPECT_THROW(layer.forward(changed), Error);
  };
  refused([](LinearForward& changed) { changed.x = nullptr; });
  refused([](LinearForward& changed) { changed.y = nullptr; });
  refused([](LinearForward& changed) { changed.tokens = 0; });
  refused([](LinearForward& changed) { changed.tokens = std::numeric_limits<Size>::max() / 2; });
  refused([](LinearForward& changed) { changed.format = Format::bf16; });
  refused([](LinearForward& changed) { changed.kept = {}; });
  refused([](LinearForward& changed) { changed.scratch = changed.scratch.first(changed.scratch.size() - 1); });
  EXPECT_THROW(layer.backward(LinearBackward{.tokens = tokens, .x = x.data(), .kept = kept}), Error);
  EXPECT_THROW(layer.set_weight(nullptr, Format::f32, nullptr), Error);
  EXPECT_THROW(layer.memory(-1, Format::f32), Error);
  EXPECT_THROW(LinearLayer({.in = 4, .out = 4, .device = LinearDevice::cuda, .gpu = -1}), Error);
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

TEST(LinearLayerTest, GoesOnFromItsState) {
  for (const char* name : {"fp8-delayed", "fp8-block", "nvfp4", "bf16"}) {
    SCOPED_TRACE(name);
    LinearLayer layer({.in = in, .out = out, .recipe = name});
    for (int step = 0; step < 3; ++step) {
      one_pass(layer);
      layer.end_step();
    }
    const std::string state = layer.state();
    LinearLayer other({.in = in, .out = out, .recipe = name});
    other.set_weight(w);  // which it casts anew with the scales that it is given
    other.load_state(state);
    EXPECT_EQ(other.state(), state);
    for (int step = 0; step < 2; ++step) {
      const Passed expected = one_pass(layer);
      const Passed found = one_pass(other);
      EXPECT_EQ(found.y, expected.y);
      EXPECT_EQ(found.dx, expected.dx);
      EXPECT_EQ(found.dw, expected.dw);
      layer.end_step();
      other.end_step();
    }
    EXPECT_EQ(other.state(), layer.state());
  }
}

TEST(LinearLayerTest, LoadsNoStateThatIsNotItsOwn) {
  LinearLayer layer({.in = in, .out = out, .recipe = "fp8-delayed"});
  one_pass(layer);
  layer.end_step();
  const std::string before = layer.state();
  const std::string other = LinearLayer({.in = in, .out = out, .recipe = "fp8-block"}).state();
  std::string cut = before;
  cut.resize(cut.size() / 2);
  std::string without_scale = before;
  without_scale.replace(without_scale.find("history"), 7, "HISTORY");
  for (const std::string& text :
       {other, cut, without_scale, std::string(), std::string("[]"), std::string("{\"kind\":1}")}) {
    EXPECT_THROW(layer.load_state(text), Error);
    EXPECT_EQ(layer.state(), before);
  }
}

}  // namespace
}  // namespace quaver::linear_layer_test
