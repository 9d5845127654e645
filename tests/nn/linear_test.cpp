// A linear layer registers itself, and its operands refuse to be read before they are there.
#include "nn/linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/head.h"
#include "quaver/error.h"

namespace quaver {
namespace {

using testing::ElementsAre;

TEST(Registry, HasEachLayerAndItsSitesInOneOrder) {
  Registry registry;
  const Linear first(registry, {.name = "first", .in = 4, .out = 6, .block = 0, .bias = true});
  const Head head(registry, {.in = 6, .classes = 3});
  ASSERT_EQ(registry.layers().size(), 2U);
  EXPECT_EQ(registry.layers()[0].out, 6);
  EXPECT_FALSE(registry.layers()[0].high_precision);
  EXPECT_EQ(registry.layers()[1].name, "head");
  EXPECT_TRUE(registry.layers()[1].high_precision);
  std::vector<std::string> sites;
  for (const auto& entry : registry.book().entries()) sites.push_back(entry->site.name);
  EXPECT_THAT(sites, ElementsAre("first/x", "first/w", "first/dy", "head/x", "head/w", "head/dy"));
  std::vector<std::string> parameters;
  for (const Parameter& parameter : registry.parameters().all()) parameters.push_back(parameter.name);
  EXPECT_THAT(parameters, ElementsAre("first.weight", "first.bias", "head.weight"));
  EXPECT_EQ(registry.parameters().find("first.weight").site, &registry.book().entry("first/w").site);
}

TEST(Registry, RefusesASecondLayerOfAName) {
  Registry registry;
  const Linear first(registry, {.name = "same", .in = 4, .out = 4});
  EXPECT_THROW(Linear(registry, {.name = "same", .in = 4, .out = 4}), Error);
  EXPECT_EQ(registry.layers().size(), 1U);
}

TEST(Registry, ATiedHeadHasSitesAndNoParameterOfItsOwn) {
  Registry registry;
  Parameter& table = registry.parameters().add({.name = "table", .rows = 3, .cols = 4});
  const Head head(registry, {.in = 4, .classes = 3, .tied = &table});
  EXPECT_EQ(registry.parameters().all().size(), 1U);
  EXPECT_EQ(table.site, &registry.book().entry("head/w").site);
}

// A layer with memory, in one pass.
class Pass4x8 : public testing::Test {
 protected:
  Pass4x8() {
    PrecisionConfig precision;
    precision.recipe = "fp8-current";
    registry.book().apply(make_plan(precision, registry.layers()));
    registry.parameters().allocate(*engine, Format::f32);
    registry.parameters().quantize_all(*engine, {});
    step.begin({});
  }

  View matrix(Size cols) { return step.saved(cols); }
  void put_x(Linear::Producer producer) { engine->run(Quantize{matrix(4), layer.input(step, producer), step.casting}); }
  void put_dy() { engine->run(Quantize{matrix(8), layer.output_gradient(step), step.casting}); }

  Registry registry;
  Linear layer{registry, {.name = "layer", .in = 4, .out = 8}};
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  std::shared_ptr<std::byte> memory = engine->device().allocate(1 << 20);
  Arena arena{memory.get(), 1 << 20};
  Step step{*engine, arena, 1, 16};
};

TEST_F(Pass4x8, RunsInItsOrder) {
  put_x(Linear::Producer::casts_once);
  layer.forward(step, matrix(8));
  put_dy();
  layer.dgrad(step, matrix(4));
  EXPECT_EQ(layer.requantized_input(step), nullptr);
  layer.wgrad(step);
}

// Which sides of x can be read, in the states that an operand goes through where columns are stored apart.
TEST_F(Pass4x8, ARequantizedOperandTradesRowsForColumns) {
  Site& site = registry.book().entry("layer/x").site;
  const auto laid_out = [&](Copies copies) {
    return QuantizedTensor(site, 16, 4, copies, Sharing::apart, step.saved_memory());
  };
  PassOperand x;
  EXPECT_FALSE(x.awaits_requantization());
  x.place(laid_out(Copies::rows_only), ColumnsCast::requantized);
  EXPECT_TRUE(x.awaits_requantization());
  EXPECT_FALSE(x.rows().transposed);
  const QuantizedTensor& columns = x.requantize(laid_out(Copies::columns_only));
  EXPECT_FALSE(x.awaits_requantization());
  EXPECT_EQ(x.columns().matrix.codes, columns.columns_matrix().codes);
}

#ifndef NDEBUG
using Pass4x8DeathTest = Pass4x8;

TEST_F(Pass4x8DeathTest, NoGemmReadsAnOperandThatIsNotThere) {
  EXPECT_DEATH(layer.forward(step, matrix(8)), "state_");
  put_x(Linear::Producer::casts_once);
  EXPECT_DEATH(layer.dgrad(step, matrix(4)), "state_");
  EXPECT_DEATH(layer.wgrad(step), "state_");
}

TEST_F(Pass4x8DeathTest, APassEndsWithTheWeightGradient) {
  put_x(Linear::Producer::casts_once);
  put_dy();
  layer.wgrad(step);
  EXPECT_DEATH(layer.wgrad(step), "state_");
  EXPECT_DEATH(layer.forward(step, matrix(8)), "state_");
}

TEST_F(Pass4x8DeathTest, TheRowsOfXEndWithForwardUnlessItIsRecomputed) {
  put_x(Linear::Producer::casts_once);
  layer.forward(step, matrix(8));
  EXPECT_DEATH(layer.forward(step, matrix(8)), "state_");
  Linear other{registry, {.name = "other", .in = 4, .out = 8, .can_recompute = true}};
  registry.parameters().allocate(*engine, Format::f32);
  registry.parameters().quantize_all(*engine, {});
  step.memory = Memory::small;
  engine->run(Quantize{matrix(4), other.input(step), step.casting});
  other.forward(step, matrix(8));
  other.forward(step, matrix(8));
}

TEST_F(Pass4x8DeathTest, AnEvaluatingPassHasNoColumns) {
  step.pass = Pass::evaluate;
  put_x(Linear::Producer::casts_once);
  put_dy();
  EXPECT_DEATH(layer.wgrad(step), "state_");
}

TEST_F(Pass4x8DeathTest, ColumnsAreReadOnlyOnceTheyAreRequantized) {
  Site& site = registry.book().entry("layer/x").site;
  PassOperand x;
  x.place(QuantizedTensor(site, 16, 4, Copies::rows_only, Sharing::apart, step.saved_memory()),
          ColumnsCast::requantized);
  EXPECT_DEATH(x.columns(), "state_");
  x.requantize(QuantizedTensor(site, 16, 4, Copies::columns_only, Sharing::apart, step.saved_memory()));
  EXPECT_DEATH(x.rows(), "state_");
  EXPECT_DEATH(x.requantize({}), "awaits_requantization");
}
#endif

}  // namespace
}  // namespace quaver
