#include "study/bench_decode.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <numeric>

#include "engine/least_bytes.h"
#include "precision/plan.h"
#include "train/decoder.h"
#include "train/run_folder.h"

namespace quaver {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<Size, 2> sequences_together{1, 8};
constexpr Size longest_prompt = 256;  // tokens
constexpr int warmup_passes = 3;      // a GPU captures a pass as a CUDA graph
constexpr std::size_t most_passes = 100;
constexpr std::size_t fewest_passes = 3;

// The weights of all layers, as their GEMMs read them.
double weight_bytes(const Trainer& trainer) {
  Size bytes = 0;
  for (const LayerShape& layer : trainer.model().layers()) {
    const QuantSpec& spec = trainer.plan().at(site_name(layer.name, Role::w)).spec.rows;
    bytes += least_bytes(CodeMatrix{.spec = spec, .rows = layer.out, .cols = layer.in});
  }
  return static_cast<double>(bytes);
}

// The keys and values of a sequence of so many tokens.
double cache_bytes(Trainer& trainer, double tokens) {
  const ModelConfig& model = trainer.config().model;
  const Size element = info(trainer.engine().high_precision()).storage_bits / 8;
  return static_cast<double>(2 * model.layers * model.kv_heads * model.head_size * element) * tokens;
}

class GrowingSequences {
 public:
  GrowingSequences(Trainer& trainer, Size sequences)
      : trainer_(trainer),
        prompt_(std::clamp<Size>(trainer.config().train.context / 2, 1, longest_prompt)),
        decoder_(trainer, sequences, trainer.config().train.context),
        slots_(static_cast<std::size_t>(sequences)),
        tokens_(static_cast<std::size_t>(sequences), 1) {
    std::iota(slots_.begin(), slots_.end(), 0);
    std::vector<std::int32_t> prompt(static_cast<std::size_t>(prompt_));
    for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<std::int32_t>(i % 50);
    for (const std::int32_t slot : slots_) decoder_.begin(slot, prompt);
  }

  Measurement measure(double seconds) {
    for (int i = 0; i < warmup_passes && !decoder_.is_full(0); ++i) decoder_.extend(slots_, tokens_);
    std::vector<double> times;
    const auto start = Clock::now();
    while (!decoder_.is_full(0) && times.size() < most_passes &&
           (times.size() < fewest_passes || since(start) < seconds)) {
      const auto begun = Clock::now();
      decoder_.extend(slots_, tokens_);  // waits for the logits
      times.push_back(since(begun));
    }
    const auto count = static_cast<double>(slots_.size());
    const double length = static_cast<double>(prompt_ + warmup_passes) + static_cast<double>(times.size()) / 2;
    // A token that is decoded attends to all before it, in training to half the sequence in the mean; backward is
    // twice the forward pass.
    const double flops = trainer_.model().flops_per_token(static_cast<Size>(2 * length)) / 3;
    return {.workload = Workload::decode,
            .subject = model_name(trainer_.config()),
            .part = fmt::format("{} {}", slots_.size(), slots_.size() == 1 ? "sequence" : "sequences"),
            .recipe = trainer_.config().precision.recipe,
            .time = timing_of(times),
            .flops = flops * count,
            .bytes = weight_bytes(trainer_) + cache_bytes(trainer_, length) * count,
            .units = count};
  }

 private:
  static double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

  Trainer& trainer_;
  Size prompt_;
  Decoder decoder_;
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> tokens_;
};

}  // namespace

std::vector<Measurement> measure_decoding(Trainer& trainer, double seconds) {
  std::vector<Measurement> measured;
  for (const Size sequences : sequences_together) {
    Measurement m =
        GrowingSequences(trainer, sequences).measure(seconds / static_cast<double>(sequences_together.size()));
    if (m.time.rounds > 0) measured.push_back(std::move(m));  // a context of a few tokens is full at once
  }
  return measured;
}

}  // namespace quaver
