#include "train/benchmark.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <set>

#include "formats/quantize.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {

namespace {

constexpr std::array<const char*, 5> micro_step_parts{"fprop", "dgrad", "wgrad", "x", "dy"};
constexpr std::uint64_t most_bench_bytes = 64U << 20U;

// Engines never have all logits of a micro-batch at once; and a benchmark must end.
Size tokens_at_once(const LayerShape& layer, const BenchScope& scope) {
  constexpr Size most_elements = Size{1} << 29;
  Size rows = most_elements / std::max(layer.in, layer.out);
  if (scope.most_flops > 0) {
    rows = std::min(rows, static_cast<Size>(scope.most_flops / (2 * static_cast<double>(layer.in * layer.out))));
  }
  const Size most = std::max(rows / tile_rows * tile_rows, tile_rows) / layer.pixels;
  return std::min(scope.tokens, std::max<Size>(most, 1));
}

}  // namespace

std::string BenchLayer::text() const {
  const std::string shape = fmt::format("{}, {} → {}", name, in, out);
  return pixels == 1 ? shape : fmt::format("{}, {} px", shape, pixels);
}

std::string BenchLayer::subject(Size at) const { return fmt::format("{}, {} {}", text(), at, unit); }

// "blocks.3.mlp.up" → "blocks.*.mlp.up"
std::string group_name(const LayerShape& layer) {
  if (layer.block < 0) return layer.name;
  std::string name = layer.name;
  const std::string number = "." + std::to_string(layer.block) + ".";
  const std::size_t at = name.find(number);
  if (at != std::string::npos) name.replace(at, number.size(), ".*.");
  return name;
}

std::vector<BenchLayer> bench_layers(const std::vector<LayerShape>& layers, const BenchScope& scope) {
  std::vector<BenchLayer> groups;
  for (const LayerShape& layer : layers) {
    const std::string name = group_name(layer);
    const auto same = [&](const BenchLayer& group) {
      return group.name == name && group.in == layer.in && group.out == layer.out && group.pixels == layer.pixels;
    };
    const auto found = std::ranges::find_if(groups, same);
    if (found == groups.end()) {
      const auto window = scope.windows.find(layer.name);
      groups.push_back({.name = name,
                        .in = layer.in,
                        .out = layer.out,
                        .count = 1,
                        .tokens = tokens_at_once(layer, scope),
                        .pixels = layer.pixels,
                        .unit = scope.unit,
                        .window = window == scope.windows.end() ? PatchWindow{} : window->second});
    } else {
      ++found->count;
    }
  }
  return groups;
}

double variance_of_logarithms(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const auto count = static_cast<double>(values.size());
  const double mean = std::transform_reduce(values.begin(), values.end(), 0.0, std::plus{},
                                            [](double value) { return std::log(value); }) /
                      count;
  return std::transform_reduce(values.begin(), values.end(), 0.0, std::plus{},
                               [mean](double value) { return std::pow(std::log(value) - mean, 2); }) /
         (count - 1);
}

double noise_of_sweeps(const std::vector<double>& sweeps, double usual) {
  constexpr double weight_of_usual = 4;  // in sweeps
  // Of Student's distribution, 95 % on both sides, by degrees of freedom.
  constexpr std::array student{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18};
  if (sweeps.size() < 2) return 0;
  const auto own = static_cast<double>(sweeps.size() - 1);
  const double other = usual < 0 ? 0 : weight_of_usual;
  const double variance = (own * variance_of_logarithms(sweeps) + other * std::max(usual, 0.0)) / (own + other);
  const auto degrees = static_cast<std::size_t>(own + other);
  return student[std::min(degrees, student.size()) - 1] * std::sqrt(variance / static_cast<double>(sweeps.size()));
}

std::optional<LayerTime> layer_time(const Bench& bench, const std::string& subject, const std::string& recipe) {
  LayerTime sum;
  double variance = 0;
  const Measurement* first = bench.find(Workload::layer, subject, "w", recipe);
  sum.sweeps.assign(first == nullptr ? 0 : first->time.sweeps.size(), 0);
  const auto add = [&](const char* part, double& place) {
    const Measurement* found = bench.find(Workload::layer, subject, part, recipe);
    if (found == nullptr) return false;
    place += found->time.median;
    variance += std::pow(found->time.median * found->time.noise, 2);
    sum.sweeps.resize(std::min(sum.sweeps.size(), found->time.sweeps.size()));
    for (std::size_t i = 0; i < sum.sweeps.size(); ++i) sum.sweeps[i] += found->time.sweeps[i];
    return true;
  };
  for (const char* part : micro_step_parts) {
    if (!add(part, sum.micro_step)) return std::nullopt;
  }
  if (!add("w", sum.weight) || sum.seconds() <= 0) return std::nullopt;
  // Parts that are measured at the same moments are slow at the same moments.
  constexpr double of_95_percent = 1.96;
  sum.noise = std::sqrt(variance) / sum.seconds();
  if (sum.sweeps.size() > 1) {
    const double together = variance_of_logarithms(sum.sweeps) / static_cast<double>(sum.sweeps.size());
    sum.noise = std::max(sum.noise, of_95_percent * std::sqrt(together));
  }
  return sum;
}

std::vector<Size> measured_tokens(const Bench& bench, const BenchLayer& layer) {
  std::set<Size> found;
  for (const Measurement& m : bench.measurements) {
    const auto tokens = static_cast<Size>(m.units);
    if (m.workload == Workload::layer && m.subject == layer.subject(tokens)) found.insert(tokens);
  }
  return {found.begin(), found.end()};
}

Bench read_benchmark(const std::filesystem::path& path) {
  try {
    return bench_from_json(read_file(path, most_bench_bytes));
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.find(path.string()) != std::string::npos) throw;
    throw Error(path.string() + ": " + what, error.remedy());
  }
}

const Measurement* Bench::find(Workload workload, const std::string& subject, const std::string& part,
                               const std::string& recipe) const {
  const auto found = std::ranges::find_if(measurements, [&](const Measurement& m) {
    return m.workload == workload && m.subject == subject && m.part == part && m.recipe == recipe;
  });
  return found == measurements.end() ? nullptr : &*found;
}

std::string_view name_of(Workload workload) {
  switch (workload) {
    case Workload::peak:
      return "peak";
    case Workload::layer:
      return "layer";
    case Workload::vector:
      return "vector";
    case Workload::step:
      return "step";
    case Workload::phase:
      return "phase";
    case Workload::cast:
      return "cast";
    case Workload::block:
      return "block";
    case Workload::decode:
      return "decode";
    case Workload::yardstick:
      return "yardstick";
  }
  return "";
}

}  // namespace quaver
