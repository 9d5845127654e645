#include "cli/bench_roofline.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "cli/bench_rows.h"

namespace quaver {

namespace {

constexpr std::array group_names{
    "GEMMs, 16 bits and more", "GEMMs, 8 bits and fewer", "matrix × vector", "casts", "attention", "decoding"};

// Where a measurement belongs; none: it is no point of the picture.
std::optional<std::size_t> group_of(const Bench& bench, const RecipeBits& bits, const Measurement& m) {
  if (m.flops <= 0 || m.bytes <= 0) return std::nullopt;
  switch (m.workload) {
    case Workload::layer:
      if (!is_judged(bench, m)) return std::nullopt;
      return bits.contains(m.recipe) ? 1 : 0;
    case Workload::vector:
      return 2;
    case Workload::cast:
      return 3;
    case Workload::phase:
      return m.part == "attention" ? std::optional<std::size_t>(4) : std::nullopt;
    case Workload::decode:
      return 5;
    case Workload::peak:
    case Workload::step:
    case Workload::block:
    case Workload::yardstick:
      break;
  }
  return std::nullopt;
}

// As large as keeps the figures of this machine readable.
struct SpeedUnit {
  double flops = 1e12;
  const char* name = "TFLOP/s";
};

SpeedUnit unit_for(const Bench& bench) {
  double fastest = 0;
  for (const Measurement& m : bench.measurements) {
    if (m.workload == Workload::peak) fastest = std::max(fastest, m.rate(m.flops));
  }
  return fastest < 1e12 ? SpeedUnit{1e9, "GFLOP/s"} : SpeedUnit{};
}

report::Mark mark_of(const Bench& bench, const Measurement& m, const SpeedUnit& unit) {
  const double reached = m.rate(m.flops) / unit.flops;
  return {m.flops / m.bytes, reached,
          fmt::format("{}, {}, {}: {} {}, {} of the roofline", m.subject, m.part, m.recipe, as_number(reached),
                      unit.name, as_share(roofline_seconds(bench, m) / m.time.median))};
}

}  // namespace

report::ScatterChart roofline_of(const Bench& bench) {
  report::ScatterChart chart;
  chart.title = "Roofline";
  chart.x_label = "floating-point operations per byte";
  const SpeedUnit unit = unit_for(bench);
  chart.y_label = unit.name;
  std::array<report::MarkGroup, group_names.size()> groups;
  const RecipeBits bits = low_precision_bits(bench);
  double least = 1;
  double most = 1;
  for (const Measurement& m : bench.measurements) {
    const std::optional<std::size_t> group = group_of(bench, bits, m);
    if (!group) continue;
    groups[*group].marks.push_back(mark_of(bench, m, unit));
    least = std::min(least, m.flops / m.bytes);
    most = std::max(most, m.flops / m.bytes);
  }
  const Measurement* copy = copy_of(bench);
  const double speed = copy == nullptr ? 0 : copy->rate(copy->bytes);
  for (const Measurement& m : bench.measurements) {
    if (m.workload != Workload::peak || m.flops <= 0 || m.support != "native" || speed <= 0) continue;
    const double peak = m.rate(m.flops);
    const double ridge = peak / speed;
    chart.bounds.push_back({fmt::format("{} GEMM, {} {}", m.recipe, as_number(peak / unit.flops), unit.name),
                            {least, ridge, std::max(most, 2 * ridge)},
                            {least * speed / unit.flops, peak / unit.flops, peak / unit.flops}});
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    groups[i].name = group_names[i];
    if (!groups[i].marks.empty()) chart.groups.push_back(std::move(groups[i]));
  }
  return chart;
}

}  // namespace quaver
