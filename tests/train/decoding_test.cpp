// A cache of keys and values changes what sampling costs, not what it says: logits and texts against passes over whole
// sequences, for every kind of model and recipe.
#include "train/decoder.h"
#include "train/own_text.h"
#include "train/sampling.h"

namespace quaver::test {
namespace {

struct DecodingCase {
  const char* name;
  const char* recipe;
  double limit;  // ‖difference of logits‖ / ‖logits‖
  void (*change)(ModelConfig& model);
};

void PrintTo(const DecodingCase& instance, std::ostream* out) { *out << instance.name; }

void leave(ModelConfig&) {}
void make_llama(ModelConfig& model) {
  model.family = Family::llama;
  model.heads = 4;
  model.kv_heads = 2;
}
void make_qwen3(ModelConfig& model) {
  make_llama(model);
  model.qk_norm = true;
  model.head_size = 12;
  model.rope_factor = 8;
  model.rope_original_context = 16;
}
void make_qwen2(ModelConfig& model) {
  make_llama(model);
  model.kv_heads = 1;
  model.qkv_bias = true;
  model.tie_head = TieHead::yes;
}
void untie(ModelConfig& model) { model.tie_head = TieHead::no; }
void make_umup(ModelConfig& model) { model.parametrization = Parametrization::umup; }
void make_umup_llama(ModelConfig& model) {
  make_llama(model);
  make_umup(model);
}
void make_munit(ModelConfig& model) { model.parametrization = Parametrization::munit; }

// A sum in another order differs in the last bits; a cast then takes the neighboring code now and then.
constexpr double high = 1e-5;
constexpr double sixteen_bits = 4e-3;
constexpr double eight_bits = 6e-2;
constexpr DecodingCase decoding_cases[] = {{"Gpt", "fp32", high, leave},
                                           {"GptUntied", "fp32", high, untie},
                                           {"Llama", "fp32", high, make_llama},
                                           {"Qwen2", "fp32", high, make_qwen2},
                                           {"Qwen3", "fp32", high, make_qwen3},
                                           {"Umup", "fp32", high, make_umup},
                                           {"UmupLlama", "fp32", high, make_umup_llama},
                                           {"Munit", "fp32", high, make_munit},
                                           {"Tf32", "tf32", sixteen_bits, leave},
                                           {"Bf16", "bf16", sixteen_bits, make_llama},
                                           {"Fp16", "fp16", sixteen_bits, leave},
                                           {"Fp8Delayed", "fp8-delayed", eight_bits, leave},
                                           {"Fp8Row", "fp8-row", eight_bits, make_qwen3},
                                           {"Fp8Block", "fp8-block", eight_bits, leave},
                                           {"Mxfp8", "mxfp8", eight_bits, make_llama},
                                           {"Fp8Unit", "fp8-unit", eight_bits, make_munit}};

Config config_of(const DecodingCase& instance) {
  Config config = small_config(instance.recipe, "unused");
  config.train.accumulation = 1;
  config.train.statistics_every = 0;
  instance.change(config.model);
  return config;
}

std::vector<std::int32_t> ids_of(int count, int seed) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back((seed + i * i * 5 + 3 * i) % 32);
  return ids;
}

class Decoded : public testing::TestWithParam<DecodingCase> {};

TEST_P(Decoded, LogitsAreThoseOfTheWholeSequence) {
  OwnTrainer own(config_of(GetParam()));
  for (int i = 0; i < 2; ++i) own.trainer.step();  // delayed scales are known then
  Decoder decoder(own.trainer, 2, 32);
  std::vector<std::vector<std::int32_t>> texts{ids_of(9, 1), ids_of(1, 7)};
  for (std::size_t slot = 0; slot < 2; ++slot) {
    const auto logits = decoder.begin(static_cast<Size>(slot), texts[slot]);
    const std::vector<float> whole = own.trainer.next_token_logits(texts[slot]);
    if (slot == 0) EXPECT_TRUE(std::equal(whole.begin(), whole.end(), logits.begin())) << "a prompt is one such pass";
  }
  const std::vector<std::int32_t> slots{0, 1};
  const auto vocab = static_cast<std::size_t>(decoder.vocab());
  for (int t = 0; t < 23; ++t) {
    const std::vector<std::int32_t> next{(5 * t + 1) % 32, (t * t + 3) % 32};
    const auto logits = decoder.extend(slots, next);
    for (std::size_t i = 0; i < 2; ++i) {
      texts[i].push_back(next[i]);
      const std::vector<float> whole = own.trainer.next_token_logits(texts[i]);
      double difference = 0;
      double norm = 0;
      for (std::size_t j = 0; j < vocab; ++j) {
        difference += std::pow(static_cast<double>(logits[i * vocab + j]) - whole[j], 2);
        norm += std::pow(static_cast<double>(whole[j]), 2);
      }
      EXPECT_LE(std::sqrt(difference), GetParam().limit * std::sqrt(norm)) << "token " << t << ", sequence " << i;
    }
  }
  EXPECT_TRUE(decoder.is_full(0));
}

INSTANTIATE_TEST_SUITE_P(Models, Decoded, testing::ValuesIn(decoding_cases),
                         [](const auto& instance) { return std::string(instance.param.name); });

class DecodedText : public testing::Test {
 protected:
  DecodedText() {
    Config config = small_config("fp32", "unused");
    config.model.vocab = tokenizer->vocab_size();
    config.train.batch = 3;
    own = std::make_unique<OwnTrainer>(config);
  }

  // As before there was a cache: a pass over the whole sequence for every token; beyond the context over what is left
  // of it where it was cut in half.
  std::string without_cache(const SampleOptions& options) {
    std::vector<std::int32_t> ids = opening_of(*tokenizer, options).ids;
    std::size_t begin = 0;
    for (Size i = 0; i < options.tokens; ++i) {
      if (ids.size() - begin > 32) begin = ids.size() - 16;
      const auto all = own->trainer.next_token_logits(std::span(ids).subspan(begin));
      const std::uint32_t word = random_word({options.seed, 0, stream_of("sample")}, static_cast<std::uint64_t>(i));
      const std::int32_t token = draw_token(all, options, static_cast<double>(word) / 4294967296.0);
      if (token == tokenizer->end_of_text()) break;
      ids.push_back(token);
    }
    return tokenizer->decode(ids);
  }

  std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  std::unique_ptr<OwnTrainer> own;
};

TEST_F(DecodedText, IsTheTextOfPassesOverWholeSequences) {
  for (const double temperature : {0.0, 1.0}) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      const SampleOptions options{.prompt = {"ab"}, .tokens = 70, .temperature = temperature, .seed = seed};
      EXPECT_EQ(sample_text(own->trainer, *tokenizer, options), without_cache(options)) << temperature << ", " << seed;
    }
  }
}

// Seven texts of different lengths in three slots.
TEST_F(DecodedText, DoesNotDependOnTheOthersOfItsBatch) {
  std::vector<SampleOptions> texts;
  for (std::uint64_t i = 0; i < 7; ++i) {
    texts.push_back({.prompt = {std::string(1 + 4 * i, static_cast<char>('a' + i))},
                     .tokens = static_cast<Size>(i < 3 ? 5 : 3 + 9 * (i % 4)),  // the first three end together
                     .temperature = 1,
                     .seed = i});
  }
  std::vector<std::string> told(texts.size());
  std::vector<std::size_t> ended;
  const std::vector<SampledText> together =
      sample_texts(own->trainer, *tokenizer, texts,
                   {.wrote = [&](std::size_t number, std::string_view piece) { told[number] += piece; },
                    .ended = [&](std::size_t number, const SampledText&) { ended.push_back(number); }});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(together[i].prompt + together[i].text, sample_text(own->trainer, *tokenizer, texts[i])) << i;
    EXPECT_EQ(told[i], together[i].text);
    EXPECT_EQ(together[i].prompt_tokens, static_cast<Size>(texts[i].prompt.text.size()));
  }
  std::sort(ended.begin(), ended.end());
  EXPECT_EQ(ended, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST_F(DecodedText, SamplingLeavesTheRunAsItWas) {
  const auto before = own->trainer.snapshot().state;
  sample_text(own->trainer, *tokenizer, {.prompt = {"ab"}, .tokens = 5});
  EXPECT_EQ(own->trainer.snapshot().state, before);
}

TEST_F(DecodedText, WhatDoesNotFitTheCacheIsRefused) {
  Decoder decoder(own->trainer, 2, 8);
  EXPECT_THROW(decoder.begin(0, ids_of(9, 1)), Error);
  EXPECT_THROW(decoder.begin(2, ids_of(3, 1)), Error);
  EXPECT_THROW(decoder.begin(0, std::vector<std::int32_t>{1, 400}), Error) << "no such token";
  decoder.begin(1, ids_of(8, 1));
  const std::vector<std::int32_t> full{1};
  EXPECT_THROW(decoder.extend(full, full), Error);
  EXPECT_THROW(Decoder(own->trainer, 1, 33), Error) << "longer than the model's context";
}

}  // namespace
}  // namespace quaver::test
