// Packed rows: loss and every gradient are those of the documents run one by one.
#include <cmath>
#include <gtest/gtest.h>

#include "support/model_fixture.h"

#include "quaver/error.h"

namespace quaver::test {
namespace {

using Rows = std::vector<std::vector<Size>>;  // lengths of each row's documents

struct PackedCase {
  const char* name;
  ModelConfig config;
  Rows rows;
};

void PrintTo(const PackedCase& instance, std::ostream* out) { *out << instance.name; }

ModelConfig small(Family family, Size heads, Size kv_heads, Size head_size) {
  ModelConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 24;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_size = head_size;
  config.ffn = 32;
  config.vocab = 40;
  config.context = 150;
  config.qk_norm = family == Family::llama;
  config.init_std = 0.3;
  return config;
}

std::vector<std::int32_t> starts_of(const Rows& rows) {
  std::vector<std::int32_t> starts;
  for (const auto& row : rows) {
    std::int32_t start = 0;
    for (const Size length : row) {
      starts.insert(starts.end(), static_cast<std::size_t>(length), start);
      start += static_cast<std::int32_t>(length);
    }
  }
  return starts;
}

class Packed : public testing::TestWithParam<PackedCase> {
 protected:
  struct Outcome {
    double loss = 0;
    std::vector<std::vector<float>> gradients;
  };

  Packed() {
    for (std::size_t i = 0; i < model_.targets.size(); i += 3) model_.targets[i] = -1;
    for (const std::int32_t target : model_.targets) rows_with_loss_ += target >= 0 ? 1 : 0;
  }

  // `count` tokens from the given one on, in rows of `sequence`.
  void add_loss(Size first, Size count, Size sequence, std::span<const std::int32_t> starts, double* sum) {
    Step step{*model_.engine, arena_, count / sequence, sequence, Pass::train};
    step.mean_rows = rows_with_loss_;
    const auto at = static_cast<std::size_t>(first);
    const auto length = static_cast<std::size_t>(count);
    const TokenBatch batch{std::span(model_.inputs).subspan(at, length), std::span(model_.targets).subspan(at, length),
                           starts};
    model_.transformer->loss(step, batch, 1, sum);
  }

  Outcome together(std::span<const std::int32_t> starts) {
    Outcome outcome;
    model_.transformer->parameters().clear_gradients(*model_.engine);
    add_loss(0, model_.batch * model_.sequence, model_.sequence, starts, &outcome.loss);
    outcome.gradients = gradients();
    return outcome;
  }

  Outcome apart() {
    Outcome outcome;
    model_.transformer->parameters().clear_gradients(*model_.engine);
    Size first = 0;
    for (const auto& row : GetParam().rows) {
      for (const Size length : row) {
        add_loss(first, length, length, {}, &outcome.loss);
        first += length;
      }
    }
    outcome.gradients = gradients();
    return outcome;
  }

  std::vector<std::vector<float>> gradients() {
    std::vector<std::vector<float>> all;
    for (const Parameter& parameter : model_.transformer->parameters().all()) {
      const float* gradient = parameter.gradient.f32();
      all.emplace_back(gradient, gradient + parameter.count());
    }
    return all;
  }

  static PrecisionConfig full_precision() {
    PrecisionConfig precision;
    precision.recipe = "fp32";
    return precision;
  }

  SmallModel model_{GetParam().config, full_precision(), static_cast<Size>(GetParam().rows.size()), 150};
  std::vector<std::byte> memory_ = std::vector<std::byte>(std::size_t{16} << 20U);
  Arena arena_{memory_.data(), memory_.size()};
  double rows_with_loss_ = 0;
};

TEST_P(Packed, LossAndGradientsAreThoseOfTheDocumentsApart) {
  const std::vector<std::int32_t> starts = starts_of(GetParam().rows);
  const Outcome packed = together(starts);
  const Outcome want = apart();
  EXPECT_NEAR(packed.loss, want.loss, 1e-5 * want.loss);
  std::size_t i = 0;
  for (const Parameter& parameter : model_.transformer->parameters().all()) {
    float largest = 0;
    for (const float x : want.gradients[i]) largest = std::max(largest, std::abs(x));
    ASSERT_GT(largest, 0) << parameter.name;
    for (std::size_t k = 0; k < want.gradients[i].size(); ++k) {
      ASSERT_NEAR(packed.gradients[i][k], want.gradients[i][k], 2e-5 * largest) << parameter.name << ", " << k;
    }
    ++i;
  }
  EXPECT_GT(std::abs(together({}).loss - want.loss), 1e-4 * want.loss) << "documents make no difference";
  EXPECT_EQ(together(starts).gradients, packed.gradients);
}

const Rows several = {{150}, {1, 149}, {70, 1, 1, 78}, {64, 64, 22}};

INSTANTIATE_TEST_SUITE_P(Models, Packed,
                         testing::Values(PackedCase{"Gpt", small(Family::gpt, 4, 0, 6), several},
                                         PackedCase{
                                             "GptOneHead", small(Family::gpt, 1, 0, 24), {{149, 1}, {3, 5, 142}}},
                                         PackedCase{"Llama", small(Family::llama, 4, 4, 8), several},
                                         PackedCase{"LlamaGrouped", small(Family::llama, 6, 2, 10), several}),
                         [](const auto& instance) { return std::string(instance.param.name); });

// Engines read them unchecked.
TEST(PackedBatch, StartsThatFitNoDocumentsAreAnError) {
  PrecisionConfig precision;
  precision.recipe = "fp32";
  SmallModel model(small(Family::gpt, 4, 0, 6), precision, 1, 4);
  const auto loss = [&](const std::vector<std::int32_t>& starts) {
    Step step{*model.engine, *model.arena, 1, 4, Pass::evaluate};
    double sum = 0;
    model.transformer->loss(step, TokenBatch{model.inputs, model.targets, starts}, 1, &sum);
  };
  EXPECT_NO_THROW(loss({0, 0, 2, 2}));
  for (const std::vector<std::int32_t>& starts : std::vector<std::vector<std::int32_t>>{
           {0, 0, 0}, {1, 1, 1, 1}, {0, 0, 1, 1}, {0, 1, 0, 0}, {0, -1, 2, 2}, {0, 0, 3, 3}}) {
    EXPECT_THROW(loss(starts), Error);
  }
}

}  // namespace
}  // namespace quaver::test
