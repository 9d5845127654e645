#include "study/bench_yardsticks.h"

namespace quaver {

namespace {

struct Extents {
  Size copied_rows;  // of 2048
  Size product;      // rows, columns and depth
  int mixed;         // how often all of them, for as long as a step takes
};

Extents extents_of(HardwareKind hardware) {
  return hardware == HardwareKind::gpu ? Extents{32768, 4096, 4} : Extents{4096, 448, 3};
}

constexpr const char* bf16 = "bf16";  // whose GEMMs are FP32 on a CPU

}  // namespace

Yardsticks::Yardsticks(const Config& config) : engines_(config), engine_(engines_.of(bf16)), memory_(engine_) {
  const Extents extents = extents_of(engine_.device().hardware().kind);
  const View from = memory_.normal(extents.copied_rows, 2048, engine_.high_precision(), 6);
  const View to = memory_.make(extents.copied_rows, 2048, engine_.high_precision());
  const View little = memory_.normal(192, 128, engine_.high_precision(), 7);  // just worth a second thread
  const auto copy = [this](const View& x, const View& out) {
    engine_.run(Combine{.x = x, .y = x, .keep = 1, .add = 0, .out = out});
  };
  const Size product = extents.product;
  add({.subject = "copies", .bytes = 2 * static_cast<double>(from.bytes())}, [=] { copy(from, to); });
  add({.subject = "GEMMs", .flops = 2.0 * static_cast<double>(product * product) * static_cast<double>(product)},
      square_product(engines_, bf16, product));
  constexpr int many = 64;
  add({.subject = "small operations", .bytes = 2.0 * many * static_cast<double>(little.bytes())}, [=] {
    for (int i = 0; i < many; ++i) copy(little, little);
  });
  add({.subject = "all of them, longer"}, [runs = runs_, times = extents.mixed] {
    for (int i = 0; i < times; ++i) {
      for (const auto& run : runs) run();
    }
  });
}

void Yardsticks::add(Measurement measurement, std::function<void()> run) {
  measurement.workload = Workload::yardstick;
  measurements_.push_back(std::move(measurement));
  runs_.push_back(run);
  turns_.add(engine_, std::move(run));
}

void Yardsticks::measure() { turns_.run(0); }

std::vector<Measurement> Yardsticks::sweep() {
  std::vector<Measurement> measured = measurements_;
  for (std::size_t i = 0; i < measured.size(); ++i) measured[i].time = turns_.timing(i);
  turns_.forget();
  return measured;
}

}  // namespace quaver
