// Logits of the tokens that follow sequences: of a whole one, or of many that grow token by token beside a cache.
#include <algorithm>
#include <fmt/format.h>

#include "models/transformer.h"
#include "quaver/error.h"

namespace quaver {

namespace {

// All that the operations of a decoding pass depend on, besides the model itself and the contents of the cache.
std::uint64_t decoding_key(const Step& step, const KeyValueCache& cache, const View& logits) {
  std::uint64_t key = step.generation;
  const auto mix = [&key](std::uint64_t value) { key = (key ^ value) * 0x100000001B3U + 0x9E3779B97F4A7C15U; };
  const KeyValueCache::Shape& shape = cache.shape();
  mix(stream_of("decode"));
  for (const Size size : {step.batch, shape.sequences, shape.capacity}) mix(static_cast<std::uint64_t>(size));
  mix(reinterpret_cast<std::uintptr_t>(cache.layer(0).keys.data));
  mix(reinterpret_cast<std::uintptr_t>(logits.data));
  mix(step.sections != nullptr ? step.sections->key() : 0);
  return key;
}

}  // namespace

void Transformer::forward_to_logits(Step& step, std::span<const std::int32_t> tokens, View logits) {
  step.document_starts = {};
  if (step.sections != nullptr) step.sections->begin_pass();
  forward(step, tokens);
  step.use(head_section());
  head_->last_logits(step, logits);
  if (step.sections != nullptr) step.sections->end_pass();
}

void Transformer::next_token_logits(Step& step, std::span<const std::int32_t> tokens, View logits) {
  check_length(step.sequence);
  check_tokens(tokens);
  step.arena.reset();
  step.begin({step.micro_step, 1});
  forward_to_logits(step, step.uploaded(tokens), logits);
}

KeyValueCache Transformer::make_cache(Engine& engine, Size sequences, Size capacity) const {
  check_length(capacity);
  return {engine,
          {.layers = config_.layers,
           .kv_heads = config_.kv_heads,
           .head_size = config_.head_size,
           .sequences = sequences,
           .capacity = capacity}};
}

void Transformer::check_new_tokens(const Step& step, const KeyValueCache& cache, const NewTokens& next) const {
  check_tokens(next.tokens);
  const auto sequences = static_cast<std::size_t>(step.batch);
  const KeyValueCache::Shape& shape = cache.shape();
  bool fits = next.slots.size() == sequences && next.first.size() == sequences &&
              next.tokens.size() == static_cast<std::size_t>(step.tokens()) && (step.sequence == 1 || step.batch == 1);
  for (std::size_t i = 0; fits && i < sequences; ++i) {
    const Size first = next.first[i];
    fits = next.slots[i] >= 0 && next.slots[i] < shape.sequences && first >= 0 &&
           first + step.sequence <= shape.capacity && (step.sequence == 1 || first == 0);
  }
  if (fits) return;
  throw Error(fmt::format("{} new tokens of {} sequences do not fit a cache of {} sequences of {} tokens",
                          next.tokens.size(), sequences, shape.sequences, shape.capacity),
              "begin one sequence at a time, or add one token to each, within the cache's capacity");
}

// A pass that adds one token to each sequence can be replayed: where they are is in engine memory.
void Transformer::decode(Step& step, const KeyValueCache& cache, const NewTokens& next, View logits) {
  check_new_tokens(step, cache, next);
  step.arena.reset();
  step.begin({step.micro_step, 1});
  const auto tokens = step.uploaded(next.tokens);
  const auto slots = step.uploaded(next.slots);
  const Decoding decoding{cache, {slots, step.uploaded(next.first)}};
  step.decoding = &decoding;
  const auto pass = [&] { forward_to_logits(step, tokens, logits); };
  if (step.decodes_one()) {
    step.engine.device().replay(decoding_key(step, cache, logits), pass);
  } else {
    pass();
  }
  step.decoding = nullptr;
}

}  // namespace quaver
