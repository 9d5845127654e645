// Decoding on the GPU against the CPU, operation by operation, and a model's cache against passes without one.
#include "gpu/compare.h"

#include "train/decoder.h"
#include "train/engine_choice.h"
#include "train/support.h"

namespace quaver::test {
namespace {

class DecodeTest : public HighPrecisionTest {};

struct DecodeCase {
  HeadLayout layout;  // of the new tokens
  Size capacity;
  std::vector<std::int32_t> first;
};

// One part of 128 keys, its edges, and several parts; heads that divide the threads and heads that do not.
std::vector<DecodeCase> decode_cases() {
  return {
      {{1, 1, 1, 1, 2}, 1, {0}},         {{3, 1, 4, 2, 64}, 300, {0, 127, 128}}, {{2, 1, 6, 2, 128}, 1025, {255, 1024}},
      {{2, 1, 3, 1, 24}, 200, {7, 199}}, {{1, 1, 14, 2, 80}, 700, {511}},        {{2, 1, 2, 2, 200}, 140, {3, 139}}};
}

TEST_P(DecodeTest, AttentionToACache) {
  for (const DecodeCase& c : decode_cases()) {
    const Size batch = c.layout.batch;
    const Size rows = (batch + 1) * c.layout.kv_heads * c.capacity;
    const std::string what = "attention_decode, " + std::to_string(batch) + " sequences, " +
                             std::to_string(c.layout.heads) + "/" + std::to_string(c.layout.kv_heads) + " heads of " +
                             std::to_string(c.layout.head_size) + ", capacity " + std::to_string(c.capacity);
    std::vector<std::int32_t> slot_numbers;
    for (Size i = 0; i < batch; ++i) slot_numbers.push_back(static_cast<std::int32_t>(batch - i));
    Cells<std::int32_t> slots(pair(), slot_numbers);
    Cells<std::int32_t> first(pair(), c.first);
    Twin qkv(pair(), normal_matrix(batch, c.layout.width(), 1));
    Twin keys(pair(), normal_matrix(rows, c.layout.head_size, 2));
    Twin values(pair(), normal_matrix(rows, c.layout.head_size, 3));
    Twin result(pair(), batch, c.layout.heads * c.layout.head_size, 99);
    const auto cache = [&](On on) { return KeyValues{keys.on(on), values.on(on), c.capacity}; };
    const auto at = [&](On on) { return CachedSequences{slots.span(on), first.span(on)}; };
    pair().run([&](On on) { return StoreKeyValues{c.layout, qkv.on(on), cache(on), at(on)}; });
    expect_near(what + ", keys", keys, 0);
    expect_near(what + ", values", values, 0);
    const float scale = 1 / std::sqrt(static_cast<float>(c.layout.head_size));
    pair().run([&](On on) { return AttentionDecode{c.layout, qkv.on(on), cache(on), at(on), scale, result.on(on)}; });
    expect_near(what, result, gemm_bound(pair()), 0.05);
    EXPECT_TRUE(result.margins_are_intact() && keys.margins_are_intact() && values.margins_are_intact()) << what;
  }
}

TEST_P(DecodeTest, APromptsKeysAndValues) {
  const HeadLayout layout{2, 37, 6, 3, 24};
  Cells<std::int32_t> slots(pair(), {1, 0});
  Cells<std::int32_t> first(pair(), {0, 13});
  Twin qkv(pair(), normal_matrix(layout.tokens(), layout.width(), 1));
  Twin keys(pair(), 2 * 3 * 50, 24, 7);
  Twin values(pair(), 2 * 3 * 50, 24, 7);
  pair().run([&](On on) {
    return StoreKeyValues{layout, qkv.on(on), {keys.on(on), values.on(on), 50}, {slots.span(on), first.span(on)}};
  });
  expect_near("keys of a prompt", keys, 0);
  expect_near("values of a prompt", values, 0);
}

TEST_P(DecodeTest, PositionsThatBeginAnywhere) {
  const HeadLayout layout{3, 2, 4, 2, 24};
  Cells<std::int32_t> first(pair(), {0, 17, 98});
  Cells<std::int32_t> tokens(pair(), {3, 1, 4, 1, 5, 9});
  Twin in(pair(), normal_matrix(6, layout.width(), 1));
  Twin heads(pair(), 6, layout.width(), 99);
  pair().run([&](On on) {
    return PrepareHeads{.layout = layout,
                        .theta = 10000,
                        .in = in.on(on),
                        .out = heads.on(on),
                        .first = first.span(on),
                        .positions = 100};
  });
  expect_near("prepare_heads", heads, high_precision_bound(pair()), 0.1);
  Twin table(pair(), normal_matrix(10, 33, 2), Kept::f32);
  Twin positions(pair(), normal_matrix(100, 33, 3), Kept::f32);
  Twin out(pair(), 6, 33, 99);
  pair().run([&](On on) {
    return Embed{.tokens = tokens.span(on),
                 .sequence = 2,
                 .table = table.on(on),
                 .positions = positions.on(on),
                 .out = out.on(on),
                 .first = first.span(on)};
  });
  expect_near("embed", out, high_precision_bound(pair()));
}

QUAVER_HIGH_PRECISION_FORMATS(DecodeTest);

class DecodedModel : public GpuTest {};

// The passes after the second are replayed from a CUDA graph while the sequences grow.
TEST_F(DecodedModel, ACacheGivesTheLogitsOfWholeSequences) {
  for (const char* recipe : {"fp32", "bf16", "fp16", "fp8-delayed"}) {
    for (const Family family : {Family::gpt, Family::llama}) {
      Config config = small_config(recipe, "unused");
      config.model.family = family;
      config.model.width = 64;
      config.model.kv_heads = family == Family::llama ? 1 : 0;
      const auto engine = make_tested_engine(gpu_options({.recipe = recipe}));
      const TrainingData data = open_training_data(config.data, config.train.seed, config.model.context);
      Trainer trainer(config, data, *engine, [](const std::string&) {});
      for (int i = 0; i < 3; ++i) trainer.step();
      Decoder decoder(trainer, 2, 32);
      std::vector<std::vector<std::int32_t>> texts{{1, 2, 3, 4, 5, 6, 7}, {9, 8}};
      for (std::size_t i = 0; i < 2; ++i) decoder.begin(static_cast<Size>(i), texts[i]);
      const std::vector<std::int32_t> slots{0, 1};
      for (std::int32_t t = 0; t < 20; ++t) {
        const std::vector<std::int32_t> next{(5 * t + 1) % 32, (t * t + 3) % 32};
        const auto logits = decoder.extend(slots, next);
        for (std::size_t i = 0; i < 2; ++i) {
          texts[i].push_back(next[i]);
          const auto row =
              logits.subspan(i * static_cast<std::size_t>(decoder.vocab()), static_cast<std::size_t>(decoder.vocab()));
          Matrix actual(1, decoder.vocab());
          std::copy(row.begin(), row.end(), actual.values.begin());
          Matrix expected(1, decoder.vocab());
          expected.values = trainer.next_token_logits(texts[i]);
          const double limit = std::string(recipe) == "fp32" ? 1e-3 : std::string(recipe) == "bf16" ? 0.05 : 0.1;
          expect_near(std::string(recipe) + ", token " + std::to_string(t), expected, actual, limit);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quaver::test
