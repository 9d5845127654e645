// The head and loss go a chunk of 1024 rows at a time; stochastic rounding must not repeat itself with the chunks.
#include "engine/support.h"

namespace quaver::test {
namespace {

// The second thousand rows are the first once more: where their gradients are rounded with the same random words they
// are the same, and the errors of the two would add up instead of averaging out.
Matrix input_gradients(Engine& engine, Rounding rounding) {
  constexpr Size tokens = 2048, vocab = 16, width = 8;
  const Casting casting{.seed = 1};
  Matrix x = random_matrix(tokens, width, 1);
  std::copy_n(x.values.begin(), 1024 * width, x.values.begin() + 1024 * width);
  Matrix w = random_matrix(vocab, width, 2);
  Stored stored_x(both({}), tokens, width);
  Stored stored_w(both({}), vocab, width);
  engine.run(Quantize{x.view(), stored_x.tensor, casting});
  engine.run(Quantize{w.view(), stored_w.tensor, casting});
  const std::vector<std::int32_t> targets(tokens, 3);
  Site site;
  site.spec = both({.format = Format::e5m2, .policy = ScalePolicy::current, .rounding = rounding});
  Matrix x_gradient(tokens, width, 0);
  Matrix weight_gradient(vocab, width, 0);
  double loss = 0;
  engine.run(CrossEntropy{.x = stored_x.tensor,
                          .w = stored_w.tensor,
                          .logits_gradient = &site,
                          .targets = targets,
                          .loss_sum = &loss,
                          .x_gradient = x_gradient.view(),
                          .weight_gradient = weight_gradient.view(),
                          .casting = casting});
  return x_gradient;
}

TEST(LossChunks, HaveRandomWordsOfTheirOwn) {
  const auto engine = make_cpu_engine(1);
  const auto same_rows = [&](Rounding rounding) {
    const Matrix gradients = input_gradients(*engine, rounding);
    int same = 0;
    for (Size row = 0; row < 1024; ++row) {
      bool equal = true;
      for (Size col = 0; col < 8; ++col) equal = equal && gradients(row, col) == gradients(row + 1024, col);
      same += equal ? 1 : 0;
    }
    return same;
  };
  EXPECT_EQ(same_rows(Rounding::nearest_even), 1024);
  EXPECT_LT(same_rows(Rounding::stochastic), 20);
}

}  // namespace
}  // namespace quaver::test
