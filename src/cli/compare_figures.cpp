// What a comparison says: figures of each contender, as a table for the terminal, as JSON and as an HTML report.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/compare.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "models/transformer.h"
#include "precision/recipe.h"
#include "report/chart.h"
#include "report/page.h"

namespace quaver {

namespace {

double loss_of(const RunResult& run) { return run.final_validation_loss.value_or(run.final_train_loss); }

// fp32 before tf32, fp16, bf16 and everything narrower, which keep their order.
int width_rank(const Contender& contender) {
  constexpr std::array<const char*, 4> by_width{"fp32", "tf32", "fp16", "bf16"};
  const auto* found = std::find(by_width.begin(), by_width.end(), contender.config.precision.recipe);
  return static_cast<int>(found - by_width.begin());
}

bool is_unit_scaled(const Contender& contender) {
  const Parametrization p = contender.config.model.parametrization;
  if (p == Parametrization::automatic) return contender.config.precision.recipe == "fp8-unit";
  return p != Parametrization::standard;
}

struct Row {
  std::string label, loss, gap, weights, activations, optimizer, narrow, step_time, tokens, overflows, skipped;
};

Row row_of(const std::vector<Contender>& contenders, std::size_t index) {
  const Contender& contender = contenders[index];
  const RunResult& run = contender.runs.front();
  const auto bytes = [](Size count) { return format_bytes(static_cast<std::uint64_t>(count)); };
  Row row;
  row.label = contender.label;
  row.loss = fmt::format("{:.4f}", contender.final_loss());
  const std::size_t base = baseline_of(contenders, index);
  row.gap = base == index ? "–" : fmt::format("{:+.2f}", gap_percent(contenders, index));
  if (base != index && is_unit_scaled(contenders[base]) != is_unit_scaled(contender)) row.gap += "*";
  row.weights = bytes(run.memory.weights + run.memory.quantized_weights);
  row.activations = bytes(run.memory.activations);
  row.optimizer = bytes(run.memory.optimizer);
  row.narrow = fmt::format("{:.0f}", 100 * narrow_share(run.format_shares));
  row.step_time = fmt::format("{:.1f}", 1000 * run.seconds_per_step);
  row.tokens = format_count(run.tokens_per_second);
  std::uint64_t overflows = 0;
  Size skipped = 0;
  for (const RunResult& each : contender.runs) {
    overflows += each.overflows;
    skipped += each.skipped;
  }
  row.overflows = std::to_string(overflows);
  row.skipped = std::to_string(skipped);
  return row;
}

constexpr std::array<const char*, 11> titles{"recipe",   "loss",    "gap %",    "weights",   "activations", "optimiser",
                                             "≤8 bit %", "ms/step", "tokens/s", "overflows", "skipped"};

std::array<std::string, 11> cells_of(const Row& row) {
  return {row.label,  row.loss,      row.gap,    row.weights,   row.activations, row.optimizer,
          row.narrow, row.step_time, row.tokens, row.overflows, row.skipped};
}

std::string footnotes(const std::vector<Contender>& contenders) {
  std::string text;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    if (row_of(contenders, i).gap.ends_with('*')) {
      text =
          "* another parametrisation than the run it is compared with: part of the gap is the model's, not the "
          "format's";
    }
  }
  const auto& best = contenders.front().runs.front().best_loss;
  if (best) text += fmt::format("{}best possible loss: {:.4f}", text.empty() ? "" : "\n", *best);
  return text;
}

report::LineChart loss_chart(const std::vector<Contender>& contenders) {
  report::LineChart chart;
  chart.title = "Training loss";
  chart.x_label = "step";
  chart.y_label = "nats a token";
  chart.smoothing = 0.8;
  for (const Contender& contender : contenders) {
    report::Series series{contender.label, {}, {}};
    for (const LossPoint& point : contender.runs.front().losses) {
      series.x.push_back(static_cast<double>(point.step));
      series.y.push_back(point.loss);
    }
    chart.series.push_back(std::move(series));
  }
  if (const auto& best = contenders.front().runs.front().best_loss)
    chart.references.push_back({*best, "best possible"});
  return chart;
}

// Each contender's validation loss minus the baseline's, where both were evaluated.
report::LineChart gap_chart(const std::vector<Contender>& contenders) {
  report::LineChart chart;
  chart.title = "Validation loss against the baseline";
  chart.x_label = "step";
  chart.y_label = "difference in nats";
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const std::size_t base = baseline_of(contenders, i);  // itself for the baseline: a line of zeros
    report::Series series{contenders[i].label, {}, {}};
    for (const LossPoint& point : contenders[i].runs.front().validation) {
      for (const LossPoint& other : contenders[base].runs.front().validation) {
        if (other.step != point.step) continue;
        series.x.push_back(static_cast<double>(point.step));
        series.y.push_back(point.loss - other.loss);
      }
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

report::BarChart memory_chart(const std::vector<Contender>& contenders) {
  report::BarChart chart;
  chart.title = "Memory";
  chart.unit = report::Unit::bytes;
  chart.parts = {"weights", "weights as codes", "gradients", "optimiser", "activations", "scratch"};
  for (const Contender& contender : contenders) {
    const MemoryUse& use = contender.runs.front().memory;
    report::Bar bar{contender.label, {}, ""};
    for (const Size bytes :
         {use.weights, use.quantized_weights, use.gradients, use.optimizer, use.activations, use.scratch}) {
      bar.values.push_back(static_cast<double>(bytes));
    }
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

report::BarChart format_chart(const std::vector<Contender>& contenders) {
  report::BarChart chart;
  chart.title = "Operations of the products by format";
  chart.unit = report::Unit::percent;
  std::set<std::string> formats;
  for (const Contender& contender : contenders) {
    for (const auto& [format, share] : contender.runs.front().format_shares) formats.insert(format);
  }
  chart.parts.assign(formats.begin(), formats.end());
  for (const Contender& contender : contenders) {
    const auto& shares = contender.runs.front().format_shares;
    report::Bar bar{contender.label, {}, ""};
    for (const std::string& format : chart.parts) {
      const auto found = shares.find(format);
      bar.values.push_back(found == shares.end() ? 0.0 : found->second);
    }
    chart.bars.push_back(std::move(bar));
  }
  return chart;
}

report::BarChart time_chart(const std::vector<Contender>& contenders) {
  report::BarChart chart;
  chart.title = "Time per step";
  chart.unit = report::Unit::seconds;
  const double base = contenders.front().runs.front().seconds_per_step;
  for (const Contender& contender : contenders) {
    const double seconds = contender.runs.front().seconds_per_step;
    chart.bars.push_back({contender.label, {seconds}, base > 0 ? fmt::format("{:.2f}×", seconds / base) : ""});
  }
  return chart;
}

// Layer × operand, coloured by format: what the plan of one recipe looks like.
report::HeatGrid precision_map(const Contender& contender, int vocab) {
  ModelConfig model = contender.config.model;
  model.vocab = model.vocab > 0 ? model.vocab : vocab;
  model.parametrization = Parametrization::automatic;
  model.init = Init::automatic;
  model.tie_head = TieHead::automatic;
  const std::vector<LayerShape> layers = layer_shapes(resolved(model));
  const Plan plan = make_plan(contender.config.precision, layers);
  report::HeatGrid grid;
  grid.title = contender.label;
  grid.columns = {"x", "w", "dy", "x (columns)", "w (columns)", "dy (columns)"};
  for (const LayerShape& layer : layers) {
    grid.rows.push_back(layer.name);
    for (const bool columns : {false, true}) {
      for (const char* role : {"/x", "/w", "/dy"}) {
        const PlanRow& row = plan.at(layer.name + role);
        const QuantSpec& spec = columns ? row.spec.columns : row.spec.rows;
        grid.cells.push_back({std::string(info(spec.format).name), std::nullopt, "",
                              fmt::format("{}: {} ({})", row.site, describe(spec), row.reason)});
      }
    }
  }
  return grid;
}

}  // namespace

double Contender::final_loss() const {
  double sum = 0;
  for (const RunResult& run : runs) sum += loss_of(run);
  return sum / static_cast<double>(runs.size());
}

double Contender::loss_spread() const {
  double least = loss_of(runs.front());
  double most = least;
  for (const RunResult& run : runs) {
    least = std::min(least, loss_of(run));
    most = std::max(most, loss_of(run));
  }
  return most - least;
}

std::size_t baseline_of(const std::vector<Contender>& contenders, std::size_t index) {
  const auto widest = [&](bool same_parametrization) {
    std::size_t best = contenders.size();
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const bool fits = !same_parametrization || is_unit_scaled(contenders[i]) == is_unit_scaled(contenders[index]);
      if (!fits || (best < contenders.size() && width_rank(contenders[i]) >= width_rank(contenders[best]))) continue;
      best = i;
    }
    return best;
  };
  const std::size_t alike = widest(true);
  const bool alone = alike == index && width_rank(contenders[index]) >= 4;  // no wide run of its own parametrisation
  return alone ? widest(false) : alike;
}

double gap_percent(const std::vector<Contender>& contenders, std::size_t index) {
  const double base = contenders[baseline_of(contenders, index)].final_loss();
  return 100 * (contenders[index].final_loss() - base) / base;
}

std::string comparison_table(const std::vector<Contender>& contenders) {
  std::vector<std::vector<std::string>> lines;
  lines.emplace_back(titles.begin(), titles.end());
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const auto cells = cells_of(row_of(contenders, i));
    lines.emplace_back(cells.begin(), cells.end());
  }
  const std::string text = aligned(lines);
  const std::string notes = footnotes(contenders);
  return notes.empty() ? text : text + notes + "\n";
}

std::string comparison_json(const std::vector<Contender>& contenders) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const Contender& contender = contenders[i];
    const RunResult& run = contender.runs.front();
    std::vector<double> losses;
    for (const RunResult& each : contender.runs) losses.push_back(loss_of(each));
    list.push_back({{"recipe", contender.label},
                    {"final_loss", contender.final_loss()},
                    {"final_losses", losses},
                    {"gap_percent", gap_percent(contenders, i)},
                    {"baseline", contenders[baseline_of(contenders, i)].label},
                    {"seconds_per_step", run.seconds_per_step},
                    {"tokens_per_second", run.tokens_per_second},
                    {"weights_bytes", run.memory.weights + run.memory.quantized_weights},
                    {"activations_bytes", run.memory.activations},
                    {"optimizer_bytes", run.memory.optimizer},
                    {"flops_by_format", run.format_shares},
                    {"overflows", run.overflows},
                    {"skipped", run.skipped}});
  }
  return list.dump(1);
}

std::string comparison_report(const std::vector<Contender>& contenders) {
  const Config& config = contenders.front().config;
  report::Page page("Recipes compared",
                    fmt::format("{} · {} steps of {} sequences · {} seed{}", config.preset, config.train.steps,
                                config.train.batch * config.train.accumulation, contenders.front().runs.size(),
                                contenders.front().runs.size() == 1 ? "" : "s"));
  report::Table table;
  for (const char* title : titles) {
    table.columns.push_back({title, table.columns.empty() ? report::Align::left : report::Align::right});
  }
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const auto cells = cells_of(row_of(contenders, i));
    table.rows.emplace_back(cells.begin(), cells.end());
  }
  page.table(table);
  const std::string notes = footnotes(contenders);
  if (!notes.empty()) page.paragraph(notes);
  page.heading("Loss").figure(report::to_svg(loss_chart(contenders)), "Smoothed; the raw losses are the faint lines.");
  const report::LineChart gaps = gap_chart(contenders);
  if (!gaps.series.front().x.empty()) page.figure(report::to_svg(gaps), "Above zero is worse than the baseline.");
  page.heading("Cost")
      .paragraph(
          "On a processor without FP8 units the narrow formats are emulated exactly: the time shows what the "
          "emulation costs, the memory what the formats save.")
      .figure(report::to_svg(memory_chart(contenders)))
      .figure(report::to_svg(time_chart(contenders)));
  page.heading("Precision of every operand")
      .figure(report::to_svg(format_chart(contenders)), "A product counts under the wider of its operands' formats.");
  for (const Contender& contender : contenders) {
    page.details(contender.label, [&](report::Page& inner) {
      inner.figure(
          report::to_svg(precision_map(contender, 64)),
          "Columns: the forward product reads x and w, the input gradient dy and w (columns), the weight gradient "
          "dy (columns) and x (columns).");
    });
  }
  bool has_samples = false;
  for (const Contender& contender : contenders) has_samples = has_samples || !contender.runs.front().sample.empty();
  if (has_samples) page.heading("Samples");
  for (const Contender& contender : contenders) {
    if (contender.runs.front().sample.empty()) continue;
    page.heading(contender.label, report::Page::Level::subsection).code(contender.runs.front().sample);
  }
  return page.footer("Written by quaver " QUAVER_VERSION).html();
}

}  // namespace quaver
