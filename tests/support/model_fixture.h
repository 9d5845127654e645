// A small model with memory, on the CPU engine: what tests of models, optimizers and recipes share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/sizing_engine.h"
#include "models/transformer.h"

namespace quaver::test {

struct SmallModel {
  SmallModel(ModelConfig model, PrecisionConfig precision, Size batch_, Size sequence_)
      : batch(batch_), sequence(sequence_), config(resolved(model)) {
    transformer = std::make_unique<Transformer>(config);
    transformer->book().apply(make_plan(precision, transformer->layers()));
    transformer->parameters().allocate(*engine, Format::f32);
    transformer->parameters().initialize(*engine, 11);
    const Casting casting{.seed = 3};
    transformer->parameters().quantize_all(*engine, casting);
    const auto sizing = make_sizing_engine(engine->device().hardware(), engine->high_precision());
    Arena measure;
    Step dry{*sizing, measure, batch, sequence};
    inputs.assign(static_cast<std::size_t>(batch * sequence), 0);
    targets = inputs;
    double ignored = 0;
    for (const Detail detail : {Detail::counts, Detail::full}) {
      dry.casting.detail = detail;
      transformer->loss(dry, TokenBatch{inputs, targets}, 1, &ignored);
    }
    memory = engine->device().allocate(measure.peak());
    arena = std::make_unique<Arena>(memory.get(), measure.peak());
    if (config.parametrization != Parametrization::standard) {
      Step calibration{*engine, *arena, batch, sequence};
      calibration.casting.seed = 3;
      transformer->calibrate_unit_factors(calibration);
      for (const auto& entry : transformer->book().entries()) entry->site.seen = {};
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::uint32_t word = random_word({5, 0, 0}, i);
      inputs[i] = static_cast<std::int32_t>(word % static_cast<std::uint32_t>(config.vocab));
      targets[i] = static_cast<std::int32_t>((word >> 8U) % static_cast<std::uint32_t>(config.vocab));
    }
  }

  // Mean loss; with Pass::train the parameters' gradients are computed anew.
  double loss(Pass pass, Detail detail = Detail::counts) {
    if (pass == Pass::train) transformer->parameters().clear_gradients(*engine);
    Step step{*engine, *arena, batch, sequence, pass};
    step.casting = {.seed = 3, .step = 1, .detail = detail, .observe = pass == Pass::train};
    step.z_loss = z_loss;
    double sum = 0;
    transformer->loss(step, TokenBatch{inputs, targets}, 1, &sum);
    return sum / static_cast<double>(batch * sequence);
  }

  void refresh_weights() { transformer->parameters().quantize_all(*engine, {.seed = 3}); }

  float z_loss = 0;
  Size batch;
  Size sequence;
  ModelConfig config;
  std::unique_ptr<Engine> engine = make_cpu_engine(2);
  std::unique_ptr<Transformer> transformer;
  std::shared_ptr<std::byte> memory;
  std::unique_ptr<Arena> arena;
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};

}  // namespace quaver::test
