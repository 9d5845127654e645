// What batch norms in FP8 would cost: the small convolution network trained by fp8-delayed as it is, with batch norms
// in high precision, and with their feature maps rounded. An engine around the CPU's rounds what a batch norm reads and
// writes (x and out to E4M3; of the gradients that of out to E5M2), with one scale per tensor and use, from its amax.
// Mean and variance follow from the rounded x and are FP32 themselves.
//
// bench_norm_precision [steps [seeds]]
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <type_traits>
#include <vector>

#include "config/load.h"
#include "formats/quantize.h"
#include "train/trainer.h"

namespace quaver {
namespace {

enum class NormMaps { high_precision, e4m3, e4m3_and_gradients };

void round_in_place(const View& map, Format format) {
  float amax = 0;
  for (Size i = 0; i < map.count(); ++i) amax = std::max(amax, std::fabs(map.f32()[i]));
  if (!(amax > 0) || !std::isfinite(amax)) return;
  const float scale = info(format).max / amax;
  std::vector<std::byte> codes(static_cast<std::size_t>(map.count()));
  encode_array(format, map.f32(), scale, map.count(), codes.data());
  decode_array(format, codes.data(), 1 / scale, map.count(), map.f32());
}

class RoundedNorms final : public RunsEach<RoundedNorms, Engine> {
 public:
  RoundedNorms(Engine& engine, NormMaps maps) : engine_(engine), maps_(maps) {}

  std::string name() const override { return engine_.name(); }
  Device& device() override { return engine_.device(); }
  Support support(const QuantSpec& a, const QuantSpec& b) override { return engine_.support(a, b); }
  Format high_precision() const override { return engine_.high_precision(); }
  Sharing sharing() const override { return engine_.sharing(); }
  Accumulators accumulators() const override { return engine_.accumulators(); }
  void upload_scales(std::span<Site* const> sites) override { engine_.upload_scales(sites); }
  void fetch_statistics(std::span<Site* const> sites, const std::function<void()>& then) override {
    engine_.fetch_statistics(sites, then);
  }
  void peek_statistics(std::span<Site* const> sites, const std::function<void()>& then) override {
    engine_.peek_statistics(sites, then);
  }
  bool advance_scales(const AdvanceScales& op) override { return engine_.advance_scales(op); }

  template <class Operation>
  void each(const Operation& op) {
    if constexpr (std::is_same_v<Operation, BatchNorm>) {
      if (maps_ != NormMaps::high_precision) round_in_place(op.x, Format::e4m3);
      engine_.run(op);
      if (maps_ != NormMaps::high_precision) round_in_place(op.out, Format::e4m3);
    } else if constexpr (std::is_same_v<Operation, BatchNormBackward>) {
      if (maps_ == NormMaps::e4m3_and_gradients) round_in_place(op.out_gradient, Format::e5m2);
      engine_.run(op);
    } else {
      engine_.run(op);
    }
  }

 private:
  Engine& engine_;
  NormMaps maps_;
};

Validation trained(const std::string& recipe, NormMaps maps, Size steps, Size seed) {
  const Config config =
      load_config({.files = {},
                   .texts = {},
                   .flags = {"--preset=convnet-small", "--precision.recipe=" + recipe, "--train.threads=1",
                             fmt::format("--train.steps={}", steps), fmt::format("--train.seed={}", seed)}});
  const TrainingData data = open_training_data(config.data, config.train.seed, 1);
  const auto cpu = make_cpu_engine(1);
  RoundedNorms engine(*cpu, maps);
  Trainer trainer(config, data, engine, [](const std::string&) {});
  while (!trainer.finished()) trainer.step();
  return trainer.validate(64).value();
}

void compare_norms(Size steps, Size seeds) {
  struct Variant {
    const char* name;
    NormMaps maps;
  };
  constexpr std::array variants{Variant{"high precision", NormMaps::high_precision},
                                Variant{"E4M3 maps", NormMaps::e4m3},
                                Variant{"E4M3 maps, E5M2 gradients", NormMaps::e4m3_and_gradients}};
  for (Size seed = 1; seed <= seeds; ++seed) {
    for (const Variant& variant : variants) {
      const Validation found = trained("fp8-delayed", variant.maps, steps, seed);
      fmt::print("seed {}, {}: validation loss {:.4f}, accuracy {:.2f} %\n", seed, variant.name, found.loss,
                 100 * found.accuracy.value());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace quaver

int main(int argc, char** argv) {
  quaver::compare_norms(argc > 1 ? std::stol(argv[1]) : 300, argc > 2 ? std::stol(argv[2]) : 3);
  return 0;
}
