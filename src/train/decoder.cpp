#include "train/decoder.h"

namespace quaver {

Decoder::Decoder(Trainer& trainer, Size sequences, Size capacity)
    : trainer_(trainer),
      model_(trainer.language_model()),
      cache_(model_.make_cache(trainer.engine(), sequences, capacity)),
      logits_(static_cast<std::size_t>(sequences * model_.vocab())),
      lengths_(static_cast<std::size_t>(sequences), 0) {
  device_logits_ = trainer.engine().device().allocate(logits_.size() * sizeof(float));
}

std::span<const float> Decoder::begin(Size slot, std::span<const std::int32_t> tokens) {
  const auto slot_number = static_cast<std::int32_t>(slot);
  const std::int32_t first = 0;
  const auto logits = decode({tokens, {&slot_number, 1}, {&first, 1}}, static_cast<Size>(tokens.size()));
  lengths_[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(tokens.size());
  return logits;
}

std::span<const float> Decoder::extend(std::span<const std::int32_t> slots, std::span<const std::int32_t> tokens) {
  std::vector<std::int32_t> first;
  first.reserve(slots.size());
  for (const std::int32_t slot : slots) first.push_back(lengths_.at(static_cast<std::size_t>(slot)));
  const auto logits = decode({tokens, slots, first}, 1);
  for (const std::int32_t slot : slots) ++lengths_[static_cast<std::size_t>(slot)];
  return logits;
}

std::span<const float> Decoder::decode(const NewTokens& next, Size sequence) {
  Step step = trainer_.evaluation_step();
  step.batch = static_cast<Size>(next.slots.size());
  step.sequence = sequence;
  const View logits{device_logits_.get(), Format::f32, step.batch, model_.vocab()};
  model_.decode(step, cache_, next, logits);
  trainer_.engine().device().download(logits.data, logits_.data(), static_cast<std::size_t>(logits.bytes()));
  return std::span<const float>(logits_).first(static_cast<std::size_t>(logits.count()));
}

}  // namespace quaver
