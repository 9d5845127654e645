// Another family of models trains through the same trainer, plan and scale book as the transformer.
#include "models/dense_classifier.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "train/trainer.h"

namespace quaver {
namespace {

using test::DenseClassifier;
using test::DenseShape;
using testing::ElementsAre;

constexpr DenseShape spiral_model{.features = 16, .hidden = 32, .classes = 3};
constexpr std::size_t batch_rows = 64;

// Three arms of a spiral, which no linear model separates, and powers of the coordinates as features.
class Spirals final : public BatchSource {
 public:
  void start(const BatchOrder& order, const BatchShape&) override {
    order_ = order;
    next_ = 0;
  }
  Batch next() override { return filled(order_.index(next_++), storage_); }
  Batch training_batch(std::uint64_t index, const BatchShape&, BatchStorage& storage) const override {
    return filled(index, storage);
  }
  Size validation_batches(Size most, const BatchShape&) const override { return most; }
  Batch validation_batch(std::uint64_t index, const BatchShape&, BatchStorage& storage) const override {
    return filled(index + 1000000, storage);
  }

 private:
  static Batch filled(std::uint64_t index, BatchStorage& storage) {
    storage.features.clear();
    storage.targets.clear();
    for (std::size_t row = 0; row < batch_rows; ++row) {
      const std::uint64_t point = index * batch_rows + row;
      const auto uniform = [&](const char* stream) {
        return static_cast<double>(random_word({7, 0, stream_of(stream)}, point)) / 4294967296.0;
      };
      const auto arm = static_cast<std::int32_t>(point % 3);
      const double radius = 0.1 + 0.9 * uniform("radius");
      const double angle = 4 * radius + 2 * M_PI * arm / 3 + 0.2 * (uniform("angle") - 0.5);
      const double x = radius * std::cos(angle);
      const double y = radius * std::sin(angle);
      for (Size f = 0; f < spiral_model.features; ++f) {
        const double slope = M_PI * static_cast<double>(f) / static_cast<double>(spiral_model.features);
        storage.features.push_back(
            static_cast<float>(std::cos(3 * (x * std::cos(slope) + y * std::sin(slope)) + 2 * slope)));
      }
      storage.targets.push_back(arm);
    }
    return FeatureBatch{storage.features, storage.targets};
  }

  BatchOrder order_;
  std::uint64_t next_ = 0;
  BatchStorage storage_;
};

struct OwnTrainer {
  explicit OwnTrainer(const std::string& recipe) {
    config.precision.recipe = recipe;
    config.precision.layers["head"] = recipe;
    config.train.batch = batch_rows;
    config.train.context = 1;
    config.train.steps = 150;
    config.train.statistics_every = 50;
    config.optim.learning_rate = 1e-2;
    const ModelFactory make = [](const Config&) { return std::make_unique<DenseClassifier>(spiral_model); };
    trainer = std::make_unique<Trainer>(config, make, std::make_unique<Spirals>(), *engine, [](const std::string&) {});
  }

  Config config;
  std::unique_ptr<Engine> engine = make_cpu_engine(1);
  std::unique_ptr<Trainer> trainer;
};

class DenseClassifierTest : public testing::TestWithParam<const char*> {};

TEST_P(DenseClassifierTest, LearnsWhatNoLinearModelCan) {
  OwnTrainer own(GetParam());
  const double before = own.trainer->evaluate(4).value();
  EXPECT_NEAR(before, std::log(3), 0.3);
  while (!own.trainer->finished()) own.trainer->step();
  EXPECT_LT(own.trainer->evaluate(4).value(), 0.15);
}

TEST_P(DenseClassifierTest, ItsSitesAreInPlanAndScaleBookInOneOrder) {
  OwnTrainer own(GetParam());
  own.trainer->step();
  std::vector<std::string> planned;
  for (const PlanRow& row : own.trainer->plan().rows) planned.push_back(row.site);
  EXPECT_THAT(planned, ElementsAre("dense.0/x", "dense.0/w", "dense.0/dy", "dense.1/x", "dense.1/w", "dense.1/dy",
                                   "head/x", "head/w", "head/dy"));
  const auto& entries = own.trainer->book().entries();
  ASSERT_EQ(entries.size(), planned.size());
  const NumericsSample sample = own.trainer->numerics();
  for (std::size_t i = 0; i < planned.size(); ++i) {
    EXPECT_EQ(entries[i]->site.name, planned[i]);
    EXPECT_EQ(entries[i]->site.spec, own.trainer->plan().rows[i].spec);
    if (!is_low_precision(entries[i]->site.spec.rows.format))
      continue;  // a weight in FP32 is its own codes: nothing is cast
    EXPECT_GT(entries[i]->elements, 0U) << planned[i];
    EXPECT_GT(sample.sites[i][Statistic::amax], 0) << planned[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, DenseClassifierTest, testing::Values("fp32", "fp8-delayed", "fp8-block"),
                         [](const auto& recipe) {
                           std::string name = recipe.param;
                           std::erase(name, '-');
                           return name;
                         });

// Of each parameter the element that matters most, against the difference quotient of the loss. A kink of the ReLU
// within the step costs a few percent of it.
TEST(DenseClassifierRun, ItsGradientsAreThoseOfItsLoss) {
  OwnTrainer own("fp32");
  const auto gradients = own.trainer->probe(own.trainer->specs(), 0, ProbeWhat::gradients).gradients;
  BatchStorage storage;
  const Batch batch = Spirals().training_batch(0, {batch_rows, 1}, storage);
  std::size_t index = 0;
  for (Parameter& parameter : own.trainer->model().parameters().all()) {
    const std::vector<float>& gradient = gradients[index++];
    const auto most =
        std::max_element(gradient.begin(), gradient.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
    float& weight = parameter.weight.f32()[most - gradient.begin()];
    const float before = weight;
    const auto loss_at = [&](float offset) {
      weight = before + offset;
      const std::vector<double> losses = own.trainer->row_losses(batch, {batch_rows, 1}, 0);
      const double loss = std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(batch_rows);
      weight = before;
      return loss;
    };
    constexpr float step = 1e-3F;
    EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), *most, 0.05 * std::abs(*most)) << parameter.name;
  }
}

TEST(DenseClassifierRun, ItsMemoryIsPlannedAndItHasNoTokens) {
  OwnTrainer own("fp8-delayed");
  const MemoryUse use = own.trainer->memory();
  const Size count = 16 * 32 + 32 + 32 * 32 + 32 + 32 * 3;
  EXPECT_EQ(use.weights, 4 * count);
  EXPECT_EQ(use.gradients, 4 * count);
  EXPECT_GT(use.activations, 0);
  const std::vector<std::int32_t> tokens{1, 2, 3};
  EXPECT_THROW(own.trainer->next_token_logits(tokens), Error);
  EXPECT_THROW(own.trainer->row_losses(TokenBatch{tokens, tokens}, {1, 3}, 0), Error);
  EXPECT_DOUBLE_EQ(own.trainer->model().flops_per_token(1), 6 * (16 * 32 + 32 * 32 + 32 * 3));
}

}  // namespace
}  // namespace quaver
