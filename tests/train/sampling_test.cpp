// Which token is drawn: from the softmax at a temperature, among the likeliest k.
#include "train/sampling.h"

#include <cmath>
#include <set>

#include "train/own_text.h"

namespace quaver::test {
namespace {

// Probabilities 1/2, 1/8, 1/4, 1/8 at a temperature of 1.
const std::vector<float> halves{std::log(4.0F), 0.0F, std::log(2.0F), 0.0F};

SampleOptions options_of(double temperature, int top_k) {
  SampleOptions options;
  options.temperature = temperature;
  options.top_k = top_k;
  return options;
}

TEST(DrawToken, FollowsTheSoftmax) {
  const SampleOptions all = options_of(1, 0);
  EXPECT_EQ(draw_token(halves, all, 0), 0);
  EXPECT_EQ(draw_token(halves, all, 0.499), 0);
  EXPECT_EQ(draw_token(halves, all, 0.501), 1);
  EXPECT_EQ(draw_token(halves, all, 0.624), 1);
  EXPECT_EQ(draw_token(halves, all, 0.626), 2);
  EXPECT_EQ(draw_token(halves, all, 0.874), 2);
  EXPECT_EQ(draw_token(halves, all, 0.876), 3);
  EXPECT_EQ(draw_token(halves, all, 0.999), 3);
}

// At 1/2 the weights are squared: 16, 1, 4, 1 of 22. At 2 they are the roots: 2, 1, √2, 1.
TEST(DrawToken, ATemperatureSharpensOrFlattens) {
  EXPECT_EQ(draw_token(halves, options_of(0.5, 0), 15.9 / 22), 0);
  EXPECT_EQ(draw_token(halves, options_of(0.5, 0), 16.1 / 22), 1);
  EXPECT_EQ(draw_token(halves, options_of(0.5, 0), 20.9 / 22), 2);
  EXPECT_EQ(draw_token(halves, options_of(2, 0), 1.99 / (4 + std::sqrt(2.0))), 0);
  EXPECT_EQ(draw_token(halves, options_of(2, 0), 2.01 / (4 + std::sqrt(2.0))), 1);
}

TEST(DrawToken, AZeroTemperatureTakesTheLikeliest) {
  for (const double uniform : {0.0, 0.5, 0.9999}) {
    EXPECT_EQ(draw_token({1, 5, 3}, options_of(0, 0), uniform), 1);
    EXPECT_EQ(draw_token({1, 5, 3}, options_of(0, 3), uniform), 1);
  }
}

TEST(DrawToken, OnlyTheLikeliestKAreInTheRunning) {
  const auto drawn = [](int top_k) {
    std::set<std::int32_t> tokens;
    for (int i = 0; i < 1000; ++i)
      tokens.insert(draw_token({1.0F, 0.5F, 1.5F, 0.0F}, options_of(5, top_k), i / 1000.0));
    return tokens;
  };
  EXPECT_EQ(drawn(1), (std::set<std::int32_t>{2}));
  EXPECT_EQ(drawn(2), (std::set<std::int32_t>{0, 2}));
  EXPECT_EQ(drawn(3), (std::set<std::int32_t>{0, 1, 2}));
  for (const int all : {0, 4, 100}) EXPECT_EQ(drawn(all).size(), 4U) << all;
  // The two that are left share the whole: 2/3 and 1/3.
  EXPECT_EQ(draw_token(halves, options_of(1, 2), 0.666), 0);
  EXPECT_EQ(draw_token(halves, options_of(1, 2), 0.667), 2);
}

// The likeliest until their probabilities reach top_p: 1/2, then 1/4, then the first of the two eighths.
TEST(DrawToken, OnlyTheLikeliestOfAShareAreInTheRunning) {
  const auto drawn = [](double top_p) {
    SampleOptions options = options_of(1, 0);
    options.top_p = top_p;
    std::set<std::int32_t> tokens;
    for (int i = 0; i < 1000; ++i) tokens.insert(draw_token(halves, options, i / 1000.0));
    return tokens;
  };
  EXPECT_EQ(drawn(0), (std::set<std::int32_t>{0}));
  EXPECT_EQ(drawn(0.49), (std::set<std::int32_t>{0}));
  EXPECT_EQ(drawn(0.51), (std::set<std::int32_t>{0, 2}));
  EXPECT_EQ(drawn(0.74), (std::set<std::int32_t>{0, 2}));
  EXPECT_EQ(drawn(0.8), (std::set<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(drawn(1).size(), 4U);
  SampleOptions both = options_of(1, 2);  // of 2/3 and 1/3
  both.top_p = 0.6;
  EXPECT_EQ(draw_token(halves, both, 0.999), 0);
  both.top_p = 0.7;
  EXPECT_EQ(draw_token(halves, both, 0.667), 2);
}

class Sampled : public testing::Test {
 protected:
  Sampled() {
    Config config = small_config("fp32", "unused");
    config.model.context = 8;
    config.model.vocab = tokenizer->vocab_size();
    own = std::make_unique<OwnTrainer>(config);
  }

  std::string text(double temperature, int top_k, std::uint64_t seed, Size tokens = 12) {
    SampleOptions options = options_of(temperature, top_k);
    options.prompt.text = "ab";
    options.tokens = tokens;
    options.seed = seed;
    return sample_text(own->trainer, *tokenizer, options);
  }

  std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer("bytes");
  std::unique_ptr<OwnTrainer> own;
};

TEST_F(Sampled, OneOfOneIsTheLikeliestAtAnyTemperature) {
  const std::string greedy = text(0, 0, 1);
  EXPECT_TRUE(greedy.starts_with("ab"));
  for (const std::uint64_t seed : {1, 2, 3}) EXPECT_EQ(text(10, 1, seed), greedy);
  EXPECT_NE(text(10, 0, 1), greedy);
  EXPECT_NE(text(10, 0, 1), text(10, 0, 2)) << "another seed, another text";
  EXPECT_EQ(text(10, 0, 1), text(10, 0, 1));
}

// Two bytes of prompt, and one for each token: bytes are their own tokens, and the likeliest is never the end here.
TEST_F(Sampled, HasAsManyTokensAsAskedFor) {
  std::vector<std::int32_t> ids = tokenizer->encode("ab");
  EXPECT_EQ(text(0, 0, 1, 0), "ab");
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> logits = own->trainer.next_token_logits(ids);
    ids.push_back(static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    ASSERT_NE(ids.back(), tokenizer->end_of_text()) << "choose another prompt";
  }
  EXPECT_EQ(text(0, 0, 1, 3), tokenizer->decode(ids));
}

// As in the documents that a model is trained on, where nothing is written before the first word.
TEST_F(Sampled, SpecialTokensOfThePromptAreParsed) {
  const auto sampled = [this](const std::string& prompt) {
    SampleOptions options = options_of(0.8, 0);
    options.prompt.text = prompt;
    options.tokens = 12;
    return sample_text(own->trainer, *tokenizer, options);
  };
  EXPECT_EQ(sampled("<|endoftext|>"), "<|endoftext|>" + sampled("")) << "an empty prompt follows an end of text";
  EXPECT_NE(sampled("<|endoftext|"), "<|endoftext|" + sampled(""));
}

// A model whose next token depends on nothing before it: the final norm gives ones, and the head's rows the logits.
class SampledFromLogits : public testing::Test {
 protected:
  SampledFromLogits() {
    Config config = small_config("fp32", "unused");
    config.model.context = 8;
    config.model.vocab = 320;
    config.model.tie_head = TieHead::no;
    own_ = std::make_unique<OwnTrainer>(config);
    set("norm.weight", 0);
    set("norm.bias", 1);
    set("head.weight", 0);
  }

  void set(const char* name, float value) {
    Parameter& parameter = own_->trainer.model().parameters().find(name);
    std::fill_n(parameter.weight.f32(), parameter.count(), value);
  }
  void set_logit(int token, float logit) {
    Parameter& head = own_->trainer.model().parameters().find("head.weight");
    std::fill_n(head.weight.f32() + token * head.cols, head.cols, logit / static_cast<float>(head.cols));
  }
  std::string text(double temperature, Size tokens) {
    own_->trainer.model().parameters().quantize_all(*own_->engine, {.seed = 1});
    SampleOptions options = options_of(temperature, 0);
    options.prompt.text = ">";
    options.tokens = tokens;
    return sample_text(own_->trainer, *tokenizer_, options);
  }

  std::shared_ptr<const Tokenizer> tokenizer_ = load_tokenizer("bytes");
  std::unique_ptr<OwnTrainer> own_;
};

TEST_F(SampledFromLogits, RowsBeyondTheTokenizersAreNoTokens) {
  set_logit(300, 90);
  set_logit('z', 60);
  EXPECT_EQ(text(0, 4), ">zzzz");
}

TEST_F(SampledFromLogits, TheEndOfTextEndsIt) {
  set_logit('z', 60);
  set_logit(tokenizer_->end_of_text(), 60);
  const std::string drawn = text(1, 120);
  EXPECT_TRUE(drawn.starts_with(">"));
  EXPECT_LT(drawn.size(), 30U) << "heads thirty times in a row";
  EXPECT_EQ(drawn.find_first_not_of('z', 1), std::string::npos);
}

TEST_F(SampledFromLogits, EveryTokenIsDrawnAnew) {
  set_logit('y', 60);
  set_logit('z', 60);
  const std::string drawn = text(1, 60);
  EXPECT_EQ(drawn.size(), 61U);
  EXPECT_GT(std::count(drawn.begin(), drawn.end(), 'y'), 10);
  EXPECT_GT(std::count(drawn.begin(), drawn.end(), 'z'), 10);
}

}  // namespace
}  // namespace quaver::test
