#include "cli/bench_rows.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "cli/progress.h"
#include "precision/recipe.h"
#include "report/text.h"
#include "train/faster_layers.h"

namespace quaver {

std::string as_number(double value) {
  return value < 999.5 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}
std::string as_ms(double seconds) {
  const double ms = seconds * 1e3;
  return fmt::format("{:.{}f}", ms, ms < 10 ? 3 : ms < 100 ? 2 : 1);
}
std::string as_share(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string as_gigabytes(double per_second) { return as_number(per_second / 1e9); }

namespace {

std::string as_us(double seconds) {
  const double us = seconds * 1e6;
  return fmt::format("{:.{}f}", us, us < 100 ? 2 : 1);
}
std::string as_noise(double relative) { return fmt::format("±{:.1f} %", 100 * relative); }
std::string as_times(double ratio) { return fmt::format("{:.2f}×", ratio); }
std::string as_tflops(const Measurement& m) { return as_number(m.rate(m.flops) / 1e12); }

std::string as_megabytes(double bytes) {
  return bytes == 0 ? "0" : fmt::format("{:.{}f}", bytes / 1e6, bytes < 1e8 ? 2 : 0);
}

// Recipes of a workload, in the order they were measured.
std::vector<std::string> recipes_of(const Bench& bench, Workload workload) {
  std::vector<std::string> names;
  for (const Measurement& m : bench.measurements) {
    if (m.workload == workload && std::ranges::find(names, m.recipe) == names.end()) names.push_back(m.recipe);
  }
  return names;
}

// Parts likewise; of one recipe or of all.
std::vector<std::string> parts_of(const Bench& bench, Workload workload) {
  std::vector<std::string> names;
  for (const Measurement& m : bench.measurements) {
    if (m.workload == workload && std::ranges::find(names, m.part) == names.end()) names.push_back(m.part);
  }
  return names;
}

const Measurement* found(const Bench& bench, Workload workload, const std::string& part, const std::string& recipe) {
  const auto at = std::ranges::find_if(bench.measurements, [&](const Measurement& m) {
    return m.workload == workload && m.part == part && m.recipe == recipe;
  });
  return at == bench.measurements.end() ? nullptr : &*at;
}

double copy_speed(const Bench& bench) {
  const Measurement* copy = copy_of(bench);
  return copy == nullptr ? 0 : copy->rate(copy->bytes);
}

std::string level_of(const std::string& support) {
  return support.empty() || support == "native" ? support : "emulated";
}

// A micro-batch in all layers.
struct LayerTotals {
  double gemms = 0;  // seconds
  double operands = 0;
  double flops = 0;
  std::string support;
};

LayerTotals totals_of(const Bench& bench, const std::string& recipe) {
  LayerTotals totals;
  for (const BenchLayer& layer : bench.layers) {
    const double times = static_cast<double>(layer.count * bench.tokens) / static_cast<double>(layer.tokens);
    for (const Measurement& m : bench.measurements) {
      if (m.workload != Workload::layer || m.recipe != recipe || m.subject != layer.subject(layer.tokens)) continue;
      (m.flops > 0 ? totals.gemms : totals.operands) += times * m.time.median;
      totals.flops += times * m.flops;
      if (!m.support.empty()) totals.support = m.support;
    }
  }
  return totals;
}

}  // namespace

double roofline_seconds(const Bench& bench, const Measurement& m) {
  const bool eight_bits = m.recipe.starts_with("fp8") && m.support == "native";
  const Measurement* peak = found(bench, Workload::peak, "GEMM", eight_bits ? "fp8-current" : m.recipe);
  if (peak == nullptr) peak = found(bench, Workload::peak, "GEMM", "bf16");
  const double compute = peak != nullptr && peak->flops > 0 ? m.flops / peak->rate(peak->flops) : 0;
  const double memory = copy_speed(bench) > 0 ? m.bytes / copy_speed(bench) : 0;
  return std::max(compute, memory);
}

bool is_judged(const Bench& bench, const Measurement& m) {
  return m.workload == Workload::layer && std::ranges::any_of(bench.layers, [&](const BenchLayer& layer) {
           return m.subject == layer.subject(layer.tokens);
         });
}

RecipeBits low_precision_bits(const Bench& bench) {
  PrecisionConfig options;
  if (!bench.settings.empty()) options.recipes = measured_config(bench).precision.recipes;
  RecipeBits bits;
  for (const Measurement& m : bench.measurements) {
    const bool known = is_built_in_recipe(m.recipe) || options.recipes.contains(m.recipe);
    const int found = known && !bits.contains(m.recipe) ? low_precision_bits(make_recipe(m.recipe, options)) : 0;
    if (found > 0) bits[m.recipe] = found;
  }
  return bits;
}

const Measurement* copy_of(const Bench& bench) {
  const auto at = std::ranges::find_if(
      bench.measurements, [](const Measurement& m) { return m.workload == Workload::peak && m.part == "copy"; });
  return at == bench.measurements.end() ? nullptr : &*at;
}

std::vector<std::string> recipes_of(const std::vector<LayerVerdict>& verdicts) {
  std::vector<std::string> names;
  for (const LayerVerdict& verdict : verdicts) {
    if (std::ranges::find(names, verdict.recipe) == names.end()) names.push_back(verdict.recipe);
  }
  return names;
}

std::string emulation_text(const Bench& bench) {
  std::set<std::string> ways;
  for (const Measurement& m : bench.measurements) {
    const bool multiplies = m.workload == Workload::layer || m.workload == Workload::peak;
    if (multiplies && level_of(m.support) == "emulated") ways.insert(m.support);
  }
  return ways.empty() ? "" : fmt::format("Emulated: {}.", fmt::join(ways, "; or "));
}

BenchRows peak_rows(const Bench& bench) {
  BenchRows rows{{"peak, measured here", "ms", "p95", "TFLOP/s", "GB/s", "how"}};
  for (const Measurement& m : bench.measurements) {
    if (m.workload != Workload::peak) continue;
    const bool gemm = m.part == "GEMM";
    rows.push_back({gemm ? m.part + " " + m.recipe + ", " + m.subject : "copy", as_ms(m.time.median), as_ms(m.time.p95),
                    gemm ? as_tflops(m) : "", gemm ? "" : as_gigabytes(m.rate(m.bytes)), level_of(m.support)});
  }
  return rows;
}

BenchRows precision_rows(const Bench& bench) {
  BenchRows rows{{"all layers", "GEMMs, ms", "TFLOP/s", "operands, ms", "together, ms", "over bf16", "how"}};
  const LayerTotals bf16 = totals_of(bench, "bf16");
  for (const std::string& recipe : recipes_of(bench, Workload::layer)) {
    const LayerTotals totals = totals_of(bench, recipe);
    const double whole = totals.gemms + totals.operands;
    if (totals.gemms <= 0) continue;
    rows.push_back({recipe, as_ms(totals.gemms), as_number(totals.flops / totals.gemms / 1e12), as_ms(totals.operands),
                    as_ms(whole), as_times((bf16.gemms + bf16.operands) / whole), level_of(totals.support)});
  }
  return rows;
}

BenchRows speedup_rows(const Bench& bench, const std::vector<LayerVerdict>& verdicts) {
  const std::vector<std::string> recipes = recipes_of(verdicts);
  std::vector<std::string> titles{"layer, over bf16"};
  titles.insert(titles.end(), recipes.begin(), recipes.end());
  BenchRows rows{titles};
  for (const BenchLayer& layer : bench.layers) {
    std::vector<std::string> row{layer.text()};
    for (const LayerVerdict& verdict : verdicts) {
      if (verdict.layer.text() == layer.text()) row.push_back(as_times(verdict.speedup()));
    }
    if (row.size() == titles.size()) rows.push_back(row);
  }
  return rows;
}

std::string payoff_text(Payoff payoff) {
  return payoff == Payoff::pays ? "pays" : payoff == Payoff::uncertain ? "uncertain" : "does not pay";
}

BenchRows break_even_rows(const std::vector<LayerVerdict>& verdicts, const RecipeBits& bits) {
  BenchRows rows{{"layer", "recipe", "ms", "bf16 ms", "over bf16", "noise", "faster from", "verdict"}};
  for (const LayerVerdict& v : verdicts) {
    const auto of_recipe = bits.find(v.recipe);
    if (of_recipe == bits.end() || of_recipe->second != 8) continue;
    rows.push_back({v.layer.text(), v.recipe, as_ms(v.seconds), as_ms(v.bf16_seconds), as_times(v.speedup()),
                    as_noise(v.noise), v.break_even ? fmt::format("{} {}", *v.break_even, v.layer.unit) : "never",
                    payoff_text(v.payoff())});
  }
  return rows;
}

std::string as_memory(Size bytes) { return format_bytes(static_cast<std::uint64_t>(std::max<Size>(0, bytes))); }

constexpr const char* not_available = "not available";

// Joules of a step, and of one floating-point operation, where the machine tells them.
BenchRows step_rows(const Bench& bench) {
  const bool joules =
      std::ranges::any_of(bench.measurements, [](const Measurement& m) { return m.joules.has_value(); });
  BenchRows rows{
      {"whole steps", "ms", "p95", bench.unit + "/s", "TFLOP/s", "over bf16", "noise", "memory", "learns", "J/step"}};
  if (joules) rows.front().emplace_back("pJ/FLOP");
  for (const StepVerdict& step : bench.steps) {
    const Measurement* m = bench.find(Workload::step, bench.model, "step", step.recipe);
    if (m == nullptr) continue;
    rows.push_back({step.recipe, as_ms(m->time.median), as_ms(m->time.p95), format_count(m->rate(m->units)),
                    as_tflops(*m), as_times(step.speedup), as_noise(step.noise), as_memory(step.peak_memory),
                    fmt::format("{:.2f}", step.loss_share), m->joules ? as_number(*m->joules) : not_available});
    if (!joules) continue;
    rows.back().push_back(m->joules && m->flops > 0 ? fmt::format("{:.2f}", *m->joules / m->flops * 1e12) : "–");
  }
  return rows;
}

BenchRows memory_rows(const Bench& bench) {
  BenchRows rows{{"memory"}};
  const bool known = std::ranges::any_of(bench.steps, [](const StepVerdict& step) { return !step.memory.empty(); });
  if (!known && !bench.steps.empty()) return {{"memory", "by purpose"}, {"all recipes", not_available}};
  for (const StepVerdict& step : bench.steps) {
    if (step.memory.empty()) continue;
    std::vector<std::string> titles{"memory"};
    std::vector<std::string> row{step.recipe};
    for (const MemoryPart& part : step.memory) {
      titles.push_back(part.purpose);
      row.push_back(as_memory(part.bytes));
    }
    if (rows.size() == 1) rows.front() = titles;
    if (rows.front() == titles) rows.push_back(row);
  }
  return rows;
}

BenchRows block_rows(const Bench& bench) {
  BenchRows rows{{"one block", "ms", "p95", "TFLOP/s", "over bf16", "MB at least", "noise"}};
  const Measurement* bf16 = found(bench, Workload::block, "block", "bf16");
  for (const Measurement& m : bench.measurements) {
    if (m.workload != Workload::block) continue;
    rows.push_back({m.recipe, as_ms(m.time.median), as_ms(m.time.p95), as_tflops(m),
                    bf16 == nullptr ? "" : as_times(bf16->time.median / m.time.median), as_megabytes(m.bytes),
                    as_noise(m.time.noise)});
  }
  return rows;
}

BenchRows decode_rows(const Bench& bench) {
  const std::vector<std::string> parts = parts_of(bench, Workload::decode);
  std::vector<std::string> titles{"decoding"};
  for (const std::string& part : parts) titles.insert(titles.end(), {part + ", tokens/s", "ms/token", "p95"});
  BenchRows rows{titles};
  for (const std::string& recipe : recipes_of(bench, Workload::decode)) {
    std::vector<std::string> row{recipe};
    for (const std::string& part : parts) {
      const Measurement* m = found(bench, Workload::decode, part, recipe);
      if (m == nullptr) continue;
      row.insert(row.end(), {format_count(m->rate(m->units)), as_ms(m->time.median), as_ms(m->time.p95)});
    }
    if (row.size() == titles.size()) rows.push_back(row);
  }
  return rows;
}

BenchRows cast_rows(const Bench& bench) {
  const std::vector<std::string> parts = parts_of(bench, Workload::cast);
  std::vector<std::string> titles{"cast alone, GB/s"};
  titles.insert(titles.end(), parts.begin(), parts.end());
  BenchRows rows{titles};
  for (const std::string& recipe : recipes_of(bench, Workload::cast)) {
    std::vector<std::string> row{recipe};
    for (const std::string& part : parts) {
      const Measurement* m = found(bench, Workload::cast, part, recipe);
      if (m == nullptr) continue;
      const double rate = m->rate(m->bytes);
      row.push_back(as_gigabytes(rate) + (copy_speed(bench) > 0 ? ", " + as_share(rate / copy_speed(bench)) : ""));
    }
    if (row.size() == titles.size()) rows.push_back(row);
  }
  return rows;
}

BenchRows cast_detail_rows(const Bench& bench) {
  BenchRows rows{{"cast", "recipe", "tensor", "µs", "p95", "MB", "GB/s", "noise", "how"}};
  for (const Measurement& m : bench.measurements) {
    if (m.workload != Workload::cast) continue;
    rows.push_back({m.part, m.recipe, m.subject, as_us(m.time.median), as_us(m.time.p95), as_megabytes(m.bytes),
                    as_gigabytes(m.rate(m.bytes)), as_noise(m.time.noise), m.support});
  }
  return rows;
}

BenchRows phase_rows(const Bench& bench) {
  const std::vector<std::string> recipes = recipes_of(bench, Workload::phase);
  std::vector<std::string> titles{"phase of a step, ms"};
  for (const std::string& recipe : recipes) titles.insert(titles.end(), {recipe, "MB"});
  BenchRows rows{titles};
  std::vector<double> sums(recipes.size(), 0);
  for (const std::string& part : parts_of(bench, Workload::phase)) {
    std::vector<std::string> row{part};
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      const Measurement* m = found(bench, Workload::phase, part, recipes[i]);
      row.insert(row.end(), {m == nullptr ? "0.000" : as_ms(m->time.median),
                             m == nullptr || part == "between operations" ? "" : as_megabytes(m->bytes)});
      sums[i] += m == nullptr ? 0 : m->time.median;
    }
    rows.push_back(row);
  }
  std::vector<std::string> sum{"all"};
  std::vector<std::string> share{"of the step"};
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    const Measurement* step = bench.find(Workload::step, bench.model, "step", recipes[i]);
    sum.insert(sum.end(), {as_ms(sums[i]), ""});
    share.insert(share.end(), {step == nullptr ? "" : as_share(sums[i] / step->time.median), ""});
  }
  rows.insert(rows.end(), {sum, share});
  return rows;
}

BenchRows product_rows(const Bench& bench) {
  BenchRows rows{{"GEMM", "recipe", "part", "ms", "p95", "TFLOP/s", "of the roofline", "how"}};
  for (const Measurement& m : bench.measurements) {
    if (m.flops == 0 || !is_judged(bench, m)) continue;
    rows.push_back({m.subject, m.recipe, m.part, as_ms(m.time.median), as_ms(m.time.p95), as_tflops(m),
                    as_share(roofline_seconds(bench, m) / m.time.median), level_of(m.support)});
  }
  return rows;
}

BenchRows producer_rows(const Bench& bench) {
  BenchRows rows{{"operand", "recipe", "written by", "µs", "p95", "GB/s", "of a copy's speed"}};
  for (const Measurement& m : bench.measurements) {
    if (m.flops != 0 || !is_judged(bench, m)) continue;
    const bool of_pixels = m.part == "x" && m.subject.find(" px, ") != std::string::npos;
    const double rate = m.rate(m.bytes);
    rows.push_back({m.subject, m.recipe,
                    m.part == "w" ? "cast of w" : (of_pixels ? "patches or norm, into " : "norm, into ") + m.part,
                    as_us(m.time.median), as_us(m.time.p95), as_gigabytes(rate),
                    copy_speed(bench) > 0 ? as_share(rate / copy_speed(bench)) : ""});
  }
  return rows;
}

BenchRows vector_rows(const Bench& bench) {
  BenchRows rows{{"matrix times vector", "recipe", "µs", "p95", "GB/s", "how"}};
  for (const Measurement& m : bench.measurements) {
    if (m.workload != Workload::vector) continue;
    rows.push_back(
        {m.subject, m.recipe, as_us(m.time.median), as_us(m.time.p95), as_gigabytes(m.rate(m.bytes)), m.support});
  }
  return rows;
}

}  // namespace quaver
