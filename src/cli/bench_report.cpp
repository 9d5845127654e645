#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "cli/bench.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "report/chart.h"
#include "report/page.h"

namespace quaver {

namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string as_ms(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }
std::string as_share(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string as_noise(double relative) { return fmt::format("±{:.1f} %", 100 * relative); }

const Measurement* peak_of(const Bench& bench, const std::string& recipe) {
  for (const Measurement& m : bench.measurements) {
    if (m.workload == Workload::peak && m.part == "GEMM" && m.recipe == recipe) return &m;
  }
  return nullptr;
}

const Measurement* copy_of(const Bench& bench) {
  for (const Measurement& m : bench.measurements) {
    if (m.workload == Workload::peak && m.part == "copy") return &m;
  }
  return nullptr;
}

// What a GEMM could reach here: the square one of its format, or the memory's speed.
double roofline_seconds(const Bench& bench, const Measurement& m) {
  const bool eight_bits = m.recipe.starts_with("fp8") && m.support == "native";
  const Measurement* peak = peak_of(bench, eight_bits ? "fp8-current" : m.recipe);
  if (peak == nullptr) peak = peak_of(bench, "bf16");
  const Measurement* copy = copy_of(bench);
  const double compute = peak != nullptr && peak->flops > 0 ? m.flops / peak->rate(peak->flops) : 0;
  const double memory = copy != nullptr ? m.bytes / copy->rate(copy->bytes) : 0;
  return std::max(compute, memory);
}

Rows peak_rows(const Bench& bench) {
  Rows rows{{"peak, measured here", "ms", "TFLOP/s", "GB/s", "how"}};
  for (const Measurement& m : bench.measurements) {
    if (m.workload != Workload::peak) continue;
    const bool gemm = m.part == "GEMM";
    rows.push_back({gemm ? m.part + " " + m.recipe + ", " + m.subject : "copy", as_ms(m.time.median),
                    gemm ? fmt::format("{:.3g}", m.rate(m.flops) / 1e12) : "",
                    gemm ? "" : fmt::format("{:.0f}", m.rate(m.bytes) / 1e9), m.support});
  }
  return rows;
}

Rows step_rows(const Bench& bench) {
  Rows rows{
      {"whole steps", "ms", "p95", "tokens/s", "TFLOP/s", "over bf16", "noise", "peak memory", "J/step", "learns"}};
  for (const StepVerdict& step : bench.steps) {
    const Measurement* m = bench.find(Workload::step, bench.model, "step", step.recipe);
    if (m == nullptr) continue;
    rows.push_back({step.recipe, as_ms(m->time.median), as_ms(m->time.p95), fmt::format("{:.0f}", m->rate(m->units)),
                    fmt::format("{:.3g}", m->rate(m->flops) / 1e12), fmt::format("{:.3f}×", step.speedup),
                    as_noise(step.noise), format_bytes(static_cast<std::uint64_t>(std::max<Size>(0, step.peak_memory))),
                    m->joules ? fmt::format("{:.3g}", *m->joules) : "–", fmt::format("{:.2f}", step.loss_share)});
  }
  return rows;
}

std::vector<std::string> recipes_of(const std::vector<LayerVerdict>& verdicts) {
  std::vector<std::string> names;
  for (const LayerVerdict& verdict : verdicts) {
    if (std::ranges::find(names, verdict.recipe) == names.end()) names.push_back(verdict.recipe);
  }
  return names;
}

std::string text_of(const BenchLayer& layer) { return fmt::format("{}, {} → {}", layer.name, layer.in, layer.out); }

// Layers down, recipes across: bf16's time over the recipe's, operands' production included.
Rows speedup_rows(const Bench& bench, const std::vector<LayerVerdict>& verdicts) {
  const std::vector<std::string> recipes = recipes_of(verdicts);
  std::vector<std::string> titles{"layer, over bf16"};
  titles.insert(titles.end(), recipes.begin(), recipes.end());
  Rows rows{titles};
  for (const BenchLayer& layer : bench.layers) {
    std::vector<std::string> row{text_of(layer)};
    for (const LayerVerdict& verdict : verdicts) {
      if (verdict.layer.name != layer.name || verdict.layer.in != layer.in || verdict.layer.out != layer.out) continue;
      row.push_back(fmt::format("{:.2f}×", verdict.speedup()));
    }
    if (row.size() == titles.size()) rows.push_back(row);
  }
  return rows;
}

Rows break_even_rows(const std::vector<LayerVerdict>& verdicts) {
  Rows rows{{"layer", "recipe", "ms", "bf16 ms", "over bf16", "noise", "faster from", "verdict"}};
  for (const LayerVerdict& v : verdicts) {
    if (!v.recipe.starts_with("fp8")) continue;
    rows.push_back({text_of(v.layer), v.recipe, as_ms(v.seconds), as_ms(v.bf16_seconds),
                    fmt::format("{:.3f}×", v.speedup()), as_noise(v.noise),
                    v.break_even ? fmt::format("{} tokens", *v.break_even) : "never",
                    v.pays() ? "pays" : "stay in bf16"});
  }
  return rows;
}

// Of a layer at the tokens at which it is judged.
bool is_judged(const Bench& bench, const Measurement& m) {
  return m.workload == Workload::layer && std::ranges::any_of(bench.layers, [&](const BenchLayer& layer) {
           return m.subject == layer.subject(layer.tokens);
         });
}

Rows product_rows(const Bench& bench) {
  Rows rows{{"GEMM", "recipe", "part", "ms", "TFLOP/s", "of the roofline", "how"}};
  for (const Measurement& m : bench.measurements) {
    if (m.flops == 0 || !is_judged(bench, m)) continue;
    rows.push_back({m.subject, m.recipe, m.part, as_ms(m.time.median), fmt::format("{:.3g}", m.rate(m.flops) / 1e12),
                    as_share(roofline_seconds(bench, m) / m.time.median), m.support});
  }
  return rows;
}

Rows cast_rows(const Bench& bench) {
  const Measurement* copy = copy_of(bench);
  const double bandwidth = copy == nullptr ? 0 : copy->rate(copy->bytes);
  Rows rows{{"operand", "recipe", "written by", "µs", "GB/s", "of a copy's speed"}};
  for (const Measurement& m : bench.measurements) {
    if (m.flops != 0 || !is_judged(bench, m)) continue;
    const double rate = m.rate(m.bytes);
    rows.push_back({m.subject, m.recipe, m.part == "w" ? "cast of w" : "norm, into " + m.part,
                    fmt::format("{:.1f}", m.time.median * 1e6), fmt::format("{:.0f}", rate / 1e9),
                    bandwidth > 0 ? as_share(rate / bandwidth) : ""});
  }
  return rows;
}

Rows vector_rows(const Bench& bench) {
  Rows rows{{"one token", "recipe", "µs", "GB/s", "how"}};
  for (const Measurement& m : bench.measurements) {
    if (m.workload != Workload::vector) continue;
    rows.push_back({m.subject, m.recipe, fmt::format("{:.2f}", m.time.median * 1e6),
                    fmt::format("{:.0f}", m.rate(m.bytes) / 1e9), m.support});
  }
  return rows;
}

// As few as a chart has colors.
std::string chart_part(const std::string& phase) {
  if (phase.starts_with("GEMM") || phase == "attention" || phase == "head and loss") return phase;
  const bool elementwise = phase == "norms" || phase == "activations" || phase == "casts";
  return elementwise ? "norms, activations, casts" : "all else";
}

Rows phase_rows(const Bench& bench) {
  Rows rows{{"phase", "recipe", "ms", "noise"}};
  for (const Measurement& m : bench.measurements) {
    if (m.workload == Workload::phase) rows.push_back({m.part, m.recipe, as_ms(m.time.median), as_noise(m.time.noise)});
  }
  return rows;
}

report::BarChart phase_chart(const Bench& bench) {
  report::BarChart chart;
  chart.title = "Where a step's time goes";
  chart.x_label = "milliseconds per step";
  std::map<std::string, std::map<std::string, double>> by_recipe;
  for (const Measurement& m : bench.measurements) {
    if (m.workload != Workload::phase) continue;
    const std::string part = chart_part(m.part);
    if (std::ranges::find(chart.parts, part) == chart.parts.end()) chart.parts.push_back(part);
    by_recipe[m.recipe][part] += m.time.median * 1e3;
  }
  for (const StepVerdict& step : bench.steps) {
    report::Bar bar{step.recipe, {}, fmt::format("{:.2f}× bf16", step.speedup)};
    for (const std::string& part : chart.parts) bar.values.push_back(by_recipe[step.recipe][part]);
    chart.bars.push_back(bar);
  }
  return chart;
}

report::HeatGrid speedup_grid(const Bench& bench, const std::vector<LayerVerdict>& verdicts) {
  report::HeatGrid grid;
  grid.title = "Speed-up of each layer over bf16, operands included";
  grid.columns = recipes_of(verdicts);
  for (const BenchLayer& layer : bench.layers) {
    grid.rows.push_back(text_of(layer));
    for (const std::string& recipe : grid.columns) {
      report::Cell cell;
      for (const LayerVerdict& v : verdicts) {
        if (v.recipe != recipe || text_of(v.layer) != text_of(layer)) continue;
        cell.value = v.speedup();
        cell.text = fmt::format("{:.2f}", v.speedup());
        cell.note = v.break_even ? fmt::format("faster from {} tokens", *v.break_even) : "not faster";
      }
      grid.cells.push_back(cell);
    }
  }
  return grid;
}

std::string verdict_sentence(const Bench& bench) {
  const std::optional<StepVerdict> best = recommended(bench);
  if (!best || !(best->recipe.starts_with("fp8") || best->recipe.starts_with("mx") || best->recipe.starts_with("nv"))) {
    return fmt::format("No recipe of 8 bits or fewer is the fastest here: {} is.", best ? best->recipe : "bf16");
  }
  return fmt::format("{} is the fastest recipe that learns as bf16 does: whole steps {:.2f} times as fast.",
                     best->recipe, best->speedup);
}

}  // namespace

std::string bench_tables(const Bench& bench) {
  const std::vector<LayerVerdict> verdicts = layer_verdicts(bench);
  std::string text = fmt::format("{} · {} tokens of {} · {} · {:.0f} s\n\n", bench.model, bench.tokens, bench.context,
                                 bench.machine.engine, bench.seconds);
  text += aligned(peak_rows(bench)) + "\n" + aligned(speedup_rows(bench, verdicts)) + "\n" + aligned(step_rows(bench));
  text += fmt::format("energy: {}\n\n{}\n", bench.machine.energy, verdict_sentence(bench));
  return text;
}

std::string bench_page(const Bench& bench) {
  const std::vector<LayerVerdict> verdicts = layer_verdicts(bench);
  const std::optional<StepVerdict> best = recommended(bench);
  report::Page page("Benchmark of " + bench.model,
                    bench.machine.engine + " · " + bench.machine.host + " · " + bench.date);
  page.paragraph(verdict_sentence(bench));
  std::vector<report::Headline> headlines;
  if (best) {
    headlines.push_back({"recommended", best->recipe, fmt::format("{:.2f}× bf16's steps", best->speedup)});
    const Measurement* step = bench.find(Workload::step, bench.model, "step", best->recipe);
    if (step != nullptr) {
      headlines.push_back({"tokens/s", format_count(step->rate(step->units)),
                           fmt::format("{} ms a step of {} tokens", as_ms(step->time.median), bench.tokens)});
    }
  }
  const Measurement* copy = copy_of(bench);
  if (copy != nullptr)
    headlines.push_back({"memory", fmt::format("{:.0f} GB/s", copy->rate(copy->bytes) / 1e9), "a copy"});
  page.headlines(headlines);
  page.heading("Whole steps").table(report_table(step_rows(bench)));
  page.paragraph("Energy: " + bench.machine.energy +
                 ". Learns: the fall of the loss on one batch over bf16's in the same steps; below 0.8 a recipe "
                 "is not recommended. Losses after long training are compared by `quaver compare`.");
  page.figure(to_svg(phase_chart(bench)), "Each operation timed on the device, none waited for.");
  page.heading("Layers").figure(to_svg(speedup_grid(bench, verdicts)),
                                "GEMMs of all three passes, and the norms or casts that write their operands.");
  page.table(report_table(break_even_rows(verdicts)));
  page.heading("The machine").table(report_table(peak_rows(bench)));
  page.details("Phases of a step", [&](report::Page& inner) { inner.table(report_table(phase_rows(bench))); });
  page.details("GEMMs at the model's shapes",
               [&](report::Page& inner) { inner.table(report_table(product_rows(bench))); });
  page.details("What writes operands", [&](report::Page& inner) { inner.table(report_table(cast_rows(bench))); });
  page.details("Matrix times vector", [&](report::Page& inner) { inner.table(report_table(vector_rows(bench))); });
  page.footer("quaver " + bench.version);
  return page.html();
}

std::string bench_difference_text(const BenchDifference& difference) {
  std::string text;
  if (!difference.changes.empty()) {
    Rows rows{{"changed", "recipe", "part", "before, ms", "after, ms", "ratio"}};
    for (const BenchChange& change : difference.changes) {
      rows.push_back({change.after.subject, change.after.recipe, change.after.part, as_ms(change.before.time.median),
                      as_ms(change.after.time.median), fmt::format("{:.2f}", change.ratio())});
    }
    text += aligned(rows);
  }
  for (const std::string& verdict : difference.verdicts) text += "verdict: " + verdict + "\n";
  if (difference.changes.empty() && difference.verdicts.empty()) text += "no change beyond noise\n";
  text += fmt::format("{} measurements compared", difference.compared);
  if (difference.missing > 0) text += fmt::format(", {} are in one of the two alone", difference.missing);
  return text + "\n";
}

}  // namespace quaver
