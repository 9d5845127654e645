// The loss of text in which every token is predicted once, against the definition of it.
#include <array>
#include <numbers>

#include "support/thread_ranks.h"

#include "train/evaluation.h"
#include "train/own_text.h"

namespace quaver::test {
namespace {

Evaluation evaluate_all(Trainer& trainer, std::span<const TokenRow> rows, const EvaluationOptions& options) {
  return total_of(evaluate_rows(trainer, rows, options));
}

Config two_windows_of_eight() {
  Config config = small_config("fp32", "unused");
  config.model.context = 8;
  config.train.batch = 2;
  return config;
}

std::vector<std::int32_t> letters(int count) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back((i * i * 5 + 3 * i + 1) % 31);
  return ids;
}

// −log softmax of every token but the first, from the tokens of its window before it.
double nats_of(Trainer& trainer, std::span<const std::int32_t> ids, std::size_t context) {
  double nats = 0;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    const std::size_t window = (i - 1) / context * context;
    const auto logits = trainer.next_token_logits(ids.subspan(window, i - window));
    double exponentials = 0;
    for (const float logit : logits) exponentials += std::exp(static_cast<double>(logit));
    nats += std::log(exponentials) - logits[static_cast<std::size_t>(ids[i])];
  }
  return nats;
}

TEST(EvaluatedRows, EveryTokenButTheFirstIsPredictedOnce) {
  OwnTrainer own(two_windows_of_eight());
  const auto state = own.trainer.snapshot().state;
  for (const int length : {2, 8, 9, 10, 17, 33, 40}) {
    const auto ids = letters(length);
    const TokenRow row = row_of(ids);
    const Evaluation result = evaluate_all(own.trainer, std::span(&row, 1), {});
    EXPECT_EQ(result.tokens, static_cast<std::uint64_t>(length - 1));
    EXPECT_NEAR(result.nats, nats_of(own.trainer, ids, 8), 2e-5 * length) << length;
    EXPECT_DOUBLE_EQ(result.loss(), result.nats / (length - 1));
    EXPECT_DOUBLE_EQ(result.perplexity(), std::exp(result.loss()));
    EXPECT_FALSE(result.bytes.has_value()) << "without a tokenizer nobody knows";
    EXPECT_FALSE(result.bits_per_byte().has_value());
  }
  EXPECT_EQ(own.trainer.snapshot().state, state);
}

TEST(EvaluatedRows, WindowsDoNotReachAcrossRows) {
  OwnTrainer own(two_windows_of_eight());
  const auto first = letters(12);
  const auto alone = letters(1);
  const auto second = letters(31);
  const std::vector<TokenRow> rows{row_of(first), row_of(alone), row_of(second)};
  const std::vector<Evaluation> results = evaluate_rows(own.trainer, rows, {});
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(results[0].tokens, 11U);
  EXPECT_EQ(results[1].tokens, 0U);
  EXPECT_EQ(results[2].tokens, 30U);
  EXPECT_NEAR(results[0].nats, nats_of(own.trainer, first, 8), 5e-4) << "a batch holds windows of two rows";
  EXPECT_NEAR(results[2].nats, nats_of(own.trainer, second, 8), 1e-3);
  const Evaluation total = total_of(results);
  EXPECT_EQ(total.tokens, 41U);
  EXPECT_EQ(total.nats, results[0].nats + results[2].nats);
}

TEST(EvaluatedRows, BatchesAreLimitedAndTold) {
  OwnTrainer own(two_windows_of_eight());
  const auto ids = letters(50);
  const TokenRow row = row_of(ids);
  std::vector<Size> told;
  EvaluationOptions options;
  options.progress = [&](Size done, Size total) {
    EXPECT_EQ(total, 4) << "seven windows, two in a batch";
    told.push_back(done);
  };
  EXPECT_EQ(evaluate_all(own.trainer, std::span(&row, 1), options).tokens, 49U);
  EXPECT_EQ(told, (std::vector<Size>{1, 2, 3, 4}));
  options.progress = {};
  options.batches = 1;
  const Evaluation limited = evaluate_all(own.trainer, std::span(&row, 1), options);
  EXPECT_EQ(limited.tokens, 16U);
  EXPECT_NEAR(limited.nats, nats_of(own.trainer, std::span(ids).first(17), 8), 5e-4);
}

// Where every token is a byte, a nat per token is 1/ln 2 bits per byte; an end-of-text has to be predicted and is no
// byte.
TEST(EvaluatedRows, RanksDivideTheBatchesAndAllKnowTheWhole) {
  OwnTrainer own(two_windows_of_eight());
  const double validation = own.trainer.evaluate(5).value();
  for (const int length : {2, 40, 97}) {  // 1, 3 and 6 batches
    const auto ids = letters(length);
    const TokenRow row = row_of(ids);
    const Evaluation want = evaluate_all(own.trainer, std::span(&row, 1), {});
    std::array<Size, 3> passes{};
    ThreadRanks(3).run([&](Communicator& ranks) {
      OwnTrainer mine(two_windows_of_eight());
      EvaluationOptions options{.ranks = ranks};
      options.progress = [&](Size, Size) { ++passes[static_cast<std::size_t>(ranks.rank())]; };
      const Evaluation evaluation = evaluate_all(mine.trainer, std::span(&row, 1), options);
      EXPECT_EQ(evaluation.nats, want.nats);
      EXPECT_EQ(evaluation.tokens, want.tokens);
      EXPECT_EQ(mine.trainer.validate(5, ranks)->loss, validation);
    });
    EXPECT_EQ(passes[0] + passes[1] + passes[2], (length - 1 + 15) / 16);
    EXPECT_LE(passes[0], passes[2] + 1);
  }
}

TEST(EvaluatedRows, BitsPerByteCountTheTextAlone) {
  Config config = two_windows_of_eight();
  config.model.vocab = 320;
  OwnTrainer own(config);
  const auto tokenizer = make_byte_tokenizer();
  EvaluationOptions options;
  options.tokenizer = tokenizer.get();
  std::vector<std::int32_t> ids = letters(25);
  ids[0] = tokenizer->end_of_text();
  const TokenRow row = row_of(ids);
  const Evaluation text = evaluate_all(own.trainer, std::span(&row, 1), options);
  EXPECT_EQ(text.bytes, 24U);
  EXPECT_NEAR(text.bits_per_byte().value(), text.loss() / std::numbers::ln2, 1e-12);
  ids[10] = tokenizer->end_of_text();
  const Evaluation two = evaluate_all(own.trainer, std::span(&row, 1), options);
  EXPECT_EQ(two.tokens, 24U);
  EXPECT_EQ(two.bytes, 23U);
  EXPECT_NEAR(two.bits_per_byte().value(), two.nats / std::numbers::ln2 / 23, 1e-12);
}

}  // namespace
}  // namespace quaver::test
