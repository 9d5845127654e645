// Six small runs, each with one fault planted in one site, and a healthy one in 4 bits, for the page's tests: whoever
// follows the alerts must arrive at the planted site. Prints where each fault is, as JSON.
//   planted_faults FOLDER
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "quaver/error.h"
#include "train/run.h"

namespace {

using namespace quaver;

Config config_of(const std::string& recipe, const std::string& name, const std::filesystem::path& folder) {
  Config config;
  config.model.layers = 4;
  config.model.width = 64;
  config.model.heads = 2;
  config.model.context = 32;
  config.data.kind = DataKind::synthetic;
  config.data.synthetic_vocab = 64;
  config.train.steps = 140;
  config.train.batch = 4;
  config.train.eval_every = 0;
  config.train.checkpoint_every = 0;
  config.train.statistics_every = 5;
  config.train.threads = 1;
  config.optim.learning_rate = 2e-3;
  config.precision.recipe = recipe;
  config.guard.enabled = false;  // it would keep the site in high precision and the fault would be gone
  config.run.name = name;
  config.run.dir = (folder / name).string();
  return config;
}

struct Fault {
  std::string name;
  std::string site;
  std::function<void(Config&)> set = {};
  std::function<void(Trainer&, Size)> after_step = {};
};

void times(Trainer& trainer, const std::string& site, float factor) { trainer.book().entry(site).site.scale *= factor; }

std::span<float> weights_of(Trainer& trainer, const std::string& site) {
  for (Parameter& one : trainer.model().parameters().all()) {
    if (one.site == nullptr || one.site->name != site) continue;
    return {reinterpret_cast<float*>(one.weight.data), static_cast<std::size_t>(one.count())};
  }
  throw Error("no weight is called " + site, "look at `quaver inspect`");
}

std::vector<Fault> faults() {
  const std::string frozen = "blocks.3.mlp.up/x";
  const auto held = std::make_shared<float>(0.0F);
  return {
      {.name = "saturated",
       .site = "blocks.1.mlp.up/x",
       .after_step = [](Trainer& trainer, Size) { times(trainer, "blocks.1.mlp.up/x", 64); }},
      {.name = "underflowing",
       .site = "blocks.2.attn.out/dy",
       .after_step = [](Trainer& trainer, Size) { times(trainer, "blocks.2.attn.out/dy", 0x1p-34F); }},
      {.name = "frozen",
       .site = frozen,
       .after_step =
           [=](Trainer& trainer, Size step) {
             ScaleEntry& entry = trainer.book().entry(frozen);
             if (step == 10) *held = 4096 * entry.last_step.amax;
             if (step >= 10) std::fill(entry.history.begin(), entry.history.end(), *held);
           }},
      {.name = "spiking",
       .site = "head/x",
       .set =
           [](Config& config) {
             config.precision.layers["head"] = "fp8-delayed";
             config.train.batch = 16;  // less noise in the loss
           },
       .after_step =
           [](Trainer& trainer, Size step) {
             if (step >= 90 && step < 110) times(trainer, "head/x", 4096);
           }},
      {.name = "unmoved",
       .site = "blocks.0.mlp.down/w",
       .set =
           [](Config& config) {
             config.optim.learning_rate_of["blocks.0.mlp.down*"] = 1e-12;
             config.optim.weight_decay_of["blocks.0.mlp.down*"] = 0;
           }},
      {.name = "nan",
       .site = "blocks.2.attn.qkv/w",
       .set = [](Config& config) { config.train.steps = 72; },
       .after_step =
           [](Trainer& trainer, Size step) {
             if (step != 60) return;
             weights_of(trainer, "blocks.2.attn.qkv/w")[7] = std::numeric_limits<float>::quiet_NaN();
           }},
      {.name = "healthy", .site = ""},
  };
}

void train(const Fault& fault, const std::filesystem::path& folder) {
  Config config = config_of(fault.site.empty() ? "nvfp4" : "fp8-delayed", fault.name, folder);
  if (fault.set) fault.set(config);
  Trainer* trainer = nullptr;
  RunOptions options;
  // The run shows its trainer to look at; the fault is planted behind its back.
  options.observer.started = [&](const Trainer& own, Size) { trainer = const_cast<Trainer*>(&own); };
  options.observer.stepped = [&](const StepReport& report, std::optional<double>) {
    if (fault.after_step) fault.after_step(*trainer, report.step);
  };
  run_training(config, options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: planted_faults FOLDER\n");
    return 2;
  }
  try {
    nlohmann::json planted;
    for (const Fault& fault : faults()) {
      train(fault, argv[1]);
      planted[fault.name] = fault.site;
    }
    fmt::print("{}\n", planted.dump());
    return 0;
  } catch (const quaver::Error& error) {
    fmt::print(stderr, "planted_faults: {}; {}\n", error.what(), error.remedy());
    return 1;
  }
}
