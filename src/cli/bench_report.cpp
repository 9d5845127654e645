#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "cli/bench.h"
#include "cli/bench_roofline.h"
#include "cli/bench_rows.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "report/chart.h"
#include "report/page.h"

namespace quaver {

namespace {

// As few as a chart has colors.
std::string chart_part(const std::string& phase) {
  if (phase.starts_with("GEMM") || phase == "attention" || phase == "head and loss") return phase;
  const bool elementwise = phase == "norms" || phase == "activations" || phase == "casts";
  return elementwise ? "norms, activations, casts" : "all else";
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
  const std::string faster = "faster than bf16";
  const std::string alike = "within noise";
  const std::string slower = "slower";
  report::HeatGrid grid;
  grid.title = "Speed-up of each layer over bf16, operands included";
  grid.columns = recipes_of(verdicts);
  grid.categories = {faster, slower, alike};
  for (const BenchLayer& layer : bench.layers) {
    grid.rows.push_back(layer.text());
    for (const std::string& recipe : grid.columns) {
      report::Cell cell;
      for (const LayerVerdict& v : verdicts) {
        if (v.recipe != recipe || v.layer.text() != layer.text()) continue;
        const Payoff payoff = v.payoff();
        cell.category = payoff == Payoff::pays ? faster : payoff == Payoff::does_not_pay ? slower : alike;
        cell.text = fmt::format("{:.2f}", v.speedup());
        cell.note = v.break_even ? fmt::format("faster from {} {}", *v.break_even, bench.unit) : "not faster";
      }
      grid.cells.push_back(cell);
    }
  }
  return grid;
}

report::BarChart speed_chart(const Bench& bench) {
  report::BarChart chart;
  chart.title = "Speed";
  chart.x_label = bench.unit + " per second";
  for (const StepVerdict& step : bench.steps) {
    const Measurement* m = bench.find(Workload::step, bench.model, "step", step.recipe);
    if (m == nullptr) continue;
    chart.bars.push_back({step.recipe, {m->rate(m->units)}, fmt::format("{:.2f}× bf16", step.speedup)});
  }
  return chart;
}

// Whether some recipe of 8 bits or fewer is multiplied as it is stored.
bool is_native(const Bench& bench, const RecipeBits& bits) {
  return std::ranges::any_of(bench.measurements, [&](const Measurement& m) {
    return m.workload == Workload::layer && bits.contains(m.recipe) && m.support == "native";
  });
}

// Where steps differ so much that others must be using the machine.
std::string caution(const Bench& bench) {
  constexpr double most_noise = 0.1;
  double noise = 0;
  for (const StepVerdict& step : bench.steps) noise = std::max(noise, step.noise);
  return noise <= most_noise ? ""
                             : fmt::format(
                                   " Beware: times of whole steps are uncertain by up to ±{:.0f} %; measure again "
                                   "while nothing else runs.",
                                   100 * noise);
}

std::string verdict_sentence(const Bench& bench) {
  const std::optional<StepVerdict> best = recommended(bench);
  const RecipeBits bits = low_precision_bits(bench);
  if (best && bits.contains(best->recipe)) {
    return fmt::format("{} is the fastest recipe that learns as bf16 does: whole steps {:.2f} times as fast.",
                       best->recipe, best->speedup) +
           caution(bench);
  }
  std::string text =
      fmt::format("No recipe of 8 bits or fewer is the fastest here: {} is.", best ? best->recipe : "bf16");
  if (!is_native(bench, bits))
    text += " This machine multiplies none of them natively: their times are those of emulation.";
  return text + caution(bench);
}

// "4 × 256 tokens", "32 images"
std::string batch_text(const Bench& bench) {
  if (bench.context <= 1) return fmt::format("{} {}", bench.tokens, bench.unit);
  return fmt::format("{} × {} {}", bench.tokens / bench.context, bench.context, bench.unit);
}

std::vector<report::Headline> headlines_of(const Bench& bench) {
  std::vector<report::Headline> headlines;
  if (const std::optional<StepVerdict> best = recommended(bench)) {
    headlines.push_back({"recommended", best->recipe, fmt::format("{:.2f}× bf16's steps", best->speedup)});
    const Measurement* step = bench.find(Workload::step, bench.model, "step", best->recipe);
    if (step != nullptr) {
      headlines.push_back({bench.unit + "/s", format_count(step->rate(step->units)),
                           fmt::format("{} ms a step of {} {}", as_ms(step->time.median), bench.tokens, bench.unit)});
    }
    headlines.push_back({"peak memory", format_bytes(static_cast<std::uint64_t>(std::max<Size>(0, best->peak_memory))),
                         "of such a step"});
  }
  if (const Measurement* copy = copy_of(bench)) {
    headlines.push_back({"memory speed", as_gigabytes(copy->rate(copy->bytes)) + " GB/s", "of a copy"});
  }
  return headlines;
}

// Nothing where nothing was measured.
std::string table_unless_empty(const BenchRows& rows) { return rows.size() > 1 ? aligned(rows) + "\n" : ""; }

void add_table(report::Page& page, const BenchRows& rows) {
  if (rows.size() > 1) page.table(report_table(rows));
}

void add_steps(report::Page& page, const Bench& bench) {
  page.heading("Whole steps").figure(to_svg(speed_chart(bench)), "Optimizer steps of " + batch_text(bench) + ".");
  add_table(page, step_rows(bench));
  page.paragraph("p95: 95 % of the steps were no slower. Energy: " + bench.machine.energy +
                 ". Learns: the fall of the loss on one batch over bf16's in the same steps; below 0.8 a recipe "
                 "is not recommended. Losses after long training are compared by `quaver compare`.");
  if (const BenchRows rows = memory_rows(bench); rows.size() > 1) {
    page.heading("Memory", report::Page::Level::subsection).table(report_table(rows));
    page.paragraph("What a run keeps, by purpose. The peak above is what the machine says, with its libraries.");
  }
  page.heading("Time", report::Page::Level::subsection);
  page.figure(to_svg(phase_chart(bench)), "Each operation timed on the device, none waited for.");
  page.details("Phases of a step, and the bytes that each has to move at least", [&](report::Page& inner) {
    add_table(inner, phase_rows(bench));
    inner.paragraph(
        "Bytes: every operand read once and every result written once. Casts are those that no other operation does "
        "in its own pass; GEMMs of the head count as head and loss. Nothing is allocated while a model trains, "
        "because its memory is planned before the first step; one rank sends nothing. On a CPU these phases are of the "
        "steps above; on a GPU of others, launched operation by operation in place of a CUDA graph.");
  });
  if (const BenchRows rows = block_rows(bench); rows.size() > 1) {
    page.heading("One block", report::Page::Level::subsection).table(report_table(rows));
    page.paragraph(
        "Forward and backward pass, the mean of all blocks: the GEMMs, attention, norms, activations, casts "
        "and copies of a step, without embedding, head and optimizer, divided by the blocks.");
  }
}

void add_roofline(report::Page& page, const Bench& bench) {
  const report::ScatterChart chart = roofline_of(bench);
  if (chart.groups.empty() || chart.bounds.empty()) return;
  page.figure(to_svg(chart),
              "Lines: the copy's speed up to the square GEMM of each format that is multiplied natively. Below the "
              "slope memory is the limit, below the level arithmetic. Points: what was measured, in every recipe; of "
              "casts one operation per element. Bytes are the least that have to be moved: what stays in caches "
              "between two runs may lie above the slope.");
}

void add_layers(report::Page& page, const Bench& bench) {
  const std::vector<LayerVerdict> verdicts = layer_verdicts(bench);
  page.heading("Layers").figure(to_svg(speedup_grid(bench, verdicts)),
                                "GEMMs of all three passes, and what writes their operands: norms, patches, casts.");
  add_table(page, precision_rows(bench));
  if (const std::string how = emulation_text(bench); !how.empty()) page.paragraph(how);
  page.details("Layer by layer in 8 bits, and from how many " + bench.unit + " on it pays",
               [&](report::Page& inner) { add_table(inner, break_even_rows(verdicts, low_precision_bits(bench))); });
  page.details("GEMMs at the model's shapes", [&](report::Page& inner) { add_table(inner, product_rows(bench)); });
  page.details("What writes operands", [&](report::Page& inner) { add_table(inner, producer_rows(bench)); });
  if (const BenchRows rows = vector_rows(bench); rows.size() > 1) {
    page.details("Matrix times vector", [&](report::Page& inner) { inner.table(report_table(rows)); });
  }
}

}  // namespace

std::string bench_tables(const Bench& bench) {
  std::string text =
      fmt::format("{} · {} · {} · {:.0f} s\n\n", bench.model, batch_text(bench), bench.machine.engine, bench.seconds);
  for (const BenchRows& rows :
       {peak_rows(bench), precision_rows(bench), speedup_rows(bench, layer_verdicts(bench)), cast_rows(bench),
        block_rows(bench), decode_rows(bench), phase_rows(bench), memory_rows(bench), step_rows(bench)}) {
    text += table_unless_empty(rows);
  }
  text.pop_back();
  text += fmt::format("energy: {}\n", bench.machine.energy);
  if (const std::string how = emulation_text(bench); !how.empty()) text += how + "\n";
  text += "\n" + verdict_sentence(bench) + "\n";
  return text;
}

std::string bench_page(const Bench& bench) {
  report::Page page("Benchmark of " + bench.model,
                    bench.machine.engine + " · " + bench.machine.host + " · " + bench.date);
  page.note(verdict_sentence(bench));
  page.headlines(headlines_of(bench));
  add_steps(page, bench);
  add_layers(page, bench);
  if (const BenchRows rows = decode_rows(bench); rows.size() > 1) {
    page.heading("Decoding").table(report_table(rows));
    page.paragraph(
        "One more token for each sequence, with the key-value cache, weights as the recipe stores them; "
        "without drawing the token from the logits.");
  }
  page.heading("The machine").table(report_table(peak_rows(bench)));
  add_roofline(page, bench);
  add_table(page, cast_rows(bench));
  page.paragraph(
      "Casts with nothing else in the same pass, of a tensor as large as the largest input of a layer; beside "
      "each the share of the copy's speed.");
  page.details("Every cast by itself", [&](report::Page& inner) { add_table(inner, cast_detail_rows(bench)); });
  page.footer("quaver " + bench.version);
  return page.html();
}

std::string bench_difference_text(const BenchDifference& difference) {
  std::string text;
  if (!difference.changes.empty()) {
    BenchRows rows{{"changed", "recipe", "part", "before, ms", "after, ms", "ratio"}};
    for (const BenchChange& change : difference.changes) {
      rows.push_back({change.after.subject, change.after.recipe, change.after.part, as_ms(change.before.time.median),
                      as_ms(change.after.time.median), fmt::format("{:.2f}", change.ratio())});
    }
    text += aligned(rows);
  }
  for (const std::string& verdict : difference.verdicts) text += "verdict: " + verdict + "\n";
  for (const MachineChange& change : difference.machine) {
    text += fmt::format("the machine: {:.2f} times as fast at {}\n", change.speed, change.yardstick);
  }
  if (difference.is_same()) text += "no change beyond noise\n";
  text += fmt::format("{} measurements compared; of half of them a change by {:.0f} % would not have been seen",
                      difference.compared, 100 * difference.limit);
  if (difference.missing > 0) text += fmt::format(", {} are in one of the two alone", difference.missing);
  return text + "\n";
}

}  // namespace quaver
