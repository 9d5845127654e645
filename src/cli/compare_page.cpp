// A comparison as an HTML report.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <utility>

#include "cli/compare.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "models/factory.h"
#include "precision/recipe.h"
#include "report/chart.h"
#include "report/page.h"
#include "train/run_folder.h"

namespace quaver {

namespace {

std::string legend_name(const Comparison& comparison, std::size_t index) {
  const RecipeMetrics& recipe = comparison.recipes[index];
  std::string name = recipe.label;
  if (recipe.base == index) name += " (base)";
  if (recipe.completed > 1) name += " ± σ";
  return name;
}

report::Series series_of(const Comparison& comparison, std::size_t index, const MeanCurve& curve) {
  return {legend_name(comparison, index), curve.step, curve.mean, curve.deviation};
}

std::string with_seeds(const Comparison& comparison, const std::string& label) {
  if (comparison.seeds < 2) return label;
  return fmt::format("{}; line: mean of up to {} seeds, band: ± σ", label, comparison.seeds);
}

enum class Against : std::uint8_t { steps, time };

report::LineChart loss_chart(const Comparison& comparison, Against against) {
  report::LineChart chart;
  const bool over_time = against == Against::time;
  chart.title = over_time ? "Training loss against time" : "Training loss";
  chart.x_label = over_time ? "time of the steps" : "step";
  chart.x_unit = over_time ? report::Unit::seconds : report::Unit::none;
  chart.y_label = with_seeds(comparison, comparison.loss_unit());
  chart.smoothing = comparison.seeds > 1 ? 0 : loss_smoothing;  // of several seeds each is smoothed already
  for (std::size_t i = 0; i < comparison.recipes.size(); ++i) {
    chart.series.push_back(series_of(comparison, i, comparison.recipes[i].train_loss));
    if (over_time) chart.series.back().x = comparison.recipes[i].train_loss.seconds;
  }
  if (comparison.best_loss) chart.references.push_back({*comparison.best_loss, "best possible"});
  return chart;
}

report::LineChart accuracy_chart(const Comparison& comparison) {
  report::LineChart chart;
  chart.title = "Validation accuracy";
  chart.x_label = "step";
  chart.y_label = with_seeds(comparison, "share of images");
  chart.y_unit = report::Unit::percent;
  for (std::size_t i = 0; i < comparison.recipes.size(); ++i) {
    chart.series.push_back(series_of(comparison, i, comparison.recipes[i].accuracy_curve));
  }
  if (comparison.best_accuracy) chart.references.push_back({*comparison.best_accuracy, "best possible"});
  return chart;
}

bool has_points(const report::LineChart& chart) {
  return std::ranges::any_of(chart.series, [](const report::Series& each) { return !each.x.empty(); });
}

// A base is a line of zeros.
report::LineChart gap_chart(const Comparison& comparison) {
  report::LineChart chart;
  chart.title = "Validation loss against the base";
  chart.x_label = "step";
  chart.y_label = with_seeds(comparison, std::string("difference in ") + comparison.loss_unit());
  for (std::size_t i = 0; i < comparison.recipes.size(); ++i) {
    chart.series.push_back(series_of(comparison, i, comparison.recipes[i].validation_gap));
  }
  return chart;
}

// One bar per recipe, of what its first complete run had; zeros where none completed.
template <class ValuesOf>
void add_bars(const Comparison& comparison, report::BarChart& chart, ValuesOf values_of) {
  for (const RecipeMetrics& recipe : comparison.recipes) {
    std::vector<double> values(chart.parts.size());
    if (recipe.example != nullptr) values = values_of(*recipe.example);
    chart.bars.push_back({recipe.label, std::move(values), ""});
  }
}

report::BarChart memory_chart(const Comparison& comparison) {
  report::BarChart chart;
  chart.title = "Memory";
  chart.unit = report::Unit::bytes;
  chart.parts = {"weights", "weights as codes", "gradients", "optimizer", "activations", "scratch"};
  add_bars(comparison, chart, [](const RunResult& run) {
    const MemoryUse& use = run.memory;
    std::vector<double> values;
    for (const Size bytes :
         {use.weights, use.quantized_weights, use.gradients, use.optimizer, use.activations, use.scratch}) {
      values.push_back(static_cast<double>(bytes));
    }
    return values;
  });
  return chart;
}

report::BarChart format_chart(const Comparison& comparison) {
  report::BarChart chart;
  chart.title = "Operations of the matrix products by format";
  chart.unit = report::Unit::percent;
  std::set<std::string> formats;
  for (const RecipeMetrics& recipe : comparison.recipes) {
    if (recipe.example == nullptr) continue;
    for (const auto& [format, share] : recipe.example->format_shares) formats.insert(format);
  }
  chart.parts.assign(formats.begin(), formats.end());
  add_bars(comparison, chart, [&](const RunResult& run) {
    std::vector<double> values;
    for (const std::string& format : chart.parts) {
      const auto found = run.format_shares.find(format);
      values.push_back(found == run.format_shares.end() ? 0.0 : found->second);
    }
    return values;
  });
  return chart;
}

report::BarChart time_chart(const Comparison& comparison) {
  report::BarChart chart;
  chart.title = "Time per step";
  chart.unit = report::Unit::seconds;
  for (const RecipeMetrics& recipe : comparison.recipes) {
    const auto& base = comparison.recipes[recipe.base].seconds_per_step;
    const double seconds = recipe.seconds_per_step ? recipe.seconds_per_step->mean : 0;
    const bool is_known = recipe.seconds_per_step && base && base->mean > 0;
    chart.bars.push_back({recipe.label, {seconds}, is_known ? fmt::format("{:.2f}×", seconds / base->mean) : ""});
  }
  return chart;
}

// As the contender was trained: which layers stay in bf16 for speed is known to its runs.
PrecisionConfig precision_of(const Contender& contender) {
  PrecisionConfig precision = contender.config.precision;
  for (const SeedRun& run : contender.runs) {
    if (precision.only_where_faster.empty() || run.result.directory.empty()) continue;
    return load_config_file(run.result.directory).precision;
  }
  precision.only_where_faster.clear();
  return precision;
}

// Layer × operand, colored by format: what the plan of one recipe looks like.
report::HeatGrid precision_map(const Contender& contender) {
  constexpr Size any_vocab = 64;
  ModelConfig model = for_data(contender.config.model, stand_in_data(contender.config, any_vocab).shape());
  model.parametrization = Parametrization::automatic;
  model.init = Init::automatic;
  model.tie_head = TieHead::automatic;
  const std::vector<LayerShape> layers = make_model(resolved(model))->layers();
  const Plan plan = make_plan(precision_of(contender), layers);
  report::HeatGrid grid;
  grid.title = contender.label;
  grid.columns = {"x", "w", "dy", "x columnwise", "w columnwise", "dy columnwise"};
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    grid.rows.push_back(layers[layer].name);
    for (const bool columns : {false, true}) {
      for (const Role role : roles) {
        const PlanRow& row = plan.rows[site_index(layer, role)];
        const QuantSpec& spec = columns ? row.spec.columns : row.spec.rows;
        grid.cells.push_back({std::string(info(spec.format).name), std::nullopt, "",
                              fmt::format("{}: {} ({})", row.site, describe(spec), row.reason)});
      }
    }
  }
  return grid;
}

// Every seed's metrics: what the means are made of.
report::Table seed_table(const Comparison& comparison) {
  const auto shown = [](const std::optional<double>& value, const char* format) {
    return value ? fmt::format(fmt::runtime(format), *value) : std::string("–");
  };
  std::vector<std::vector<std::string>> rows{{"run", "status", "final training loss", "validation loss", "gap %",
                                              "ms/step", comparison.speed_unit(), "overflows", "skipped"}};
  const bool classifies =
      std::ranges::any_of(comparison.recipes, [](const RecipeMetrics& recipe) { return recipe.accuracy.has_value(); });
  if (classifies) rows.front().emplace_back("accuracy %");
  for (const RecipeMetrics& recipe : comparison.recipes) {
    const bool is_base = &comparison.recipes[recipe.base] == &recipe;
    for (const SeedMetrics& seed : recipe.seeds) {
      const bool is_complete = seed.status == SeedStatus::completed;
      const auto if_complete = [&](const std::string& text) { return is_complete ? text : std::string("–"); };
      rows.push_back({fmt::format("{}, seed {}", recipe.label, seed.seed), std::string(name_of(seed.status)),
                      shown(seed.train_loss, "{:.4f}"), shown(seed.validation_loss, "{:.4f}"),
                      is_base ? "base" : shown(seed.gap_percent, "{:+.2f}"),
                      if_complete(fmt::format("{:.1f}", 1000 * seed.seconds_per_step)),
                      if_complete(format_count(seed.tokens_per_second)), if_complete(std::to_string(seed.overflows)),
                      if_complete(std::to_string(seed.skipped))});
      if (classifies) rows.back().push_back(seed.accuracy ? fmt::format("{:.2f}", 100 * *seed.accuracy) : "–");
    }
  }
  return report_table(rows);
}

void add_time_to_loss(report::Page& page, const Comparison& comparison) {
  const report::LineChart over_time = loss_chart(comparison, Against::time);
  const auto rows = time_to_loss_rows(comparison, SeedRows::left_out);
  if (rows.empty() && !has_points(over_time)) return;
  page.heading("Time to loss");
  if (!rows.empty()) page.table(report_table(rows)).paragraph(time_to_loss_note(comparison));
  if (!rows.empty() && comparison.seeds > 1) {
    page.details("Every seed's time to loss", [&](report::Page& inner) {
      inner.table(report_table(time_to_loss_rows(comparison, SeedRows::shown)));
    });
  }
  if (has_points(over_time)) {
    page.figure(report::to_svg(over_time), "Without the time of evaluations, checkpoints and pauses.");
  }
}

void add_samples(report::Page& page, const Comparison& comparison) {
  bool is_first = true;
  for (const RecipeMetrics& recipe : comparison.recipes) {
    if (recipe.example == nullptr || recipe.example->sample.empty()) continue;
    if (std::exchange(is_first, false)) page.heading("Samples");
    page.heading(recipe.label, report::Page::Level::subsection).code(recipe.example->sample);
  }
}

}  // namespace

std::string comparison_report(const std::vector<Contender>& contenders, const Comparison& comparison) {
  const Config& config = contenders.front().config;
  report::Page page("Recipes compared", fmt::format("{} · {} steps of {} {} · {} seed{}", model_name(config),
                                                    config.train.steps, config.train.batch * config.train.accumulation,
                                                    has_images(comparison.data) ? "images" : "sequences",
                                                    comparison.seeds, comparison.seeds == 1 ? "" : "s"));
  page.table(report_table(comparison_rows(comparison, SeedRows::left_out)));
  for (const std::string& note : comparison_notes(comparison)) page.paragraph(note);
  if (comparison.seeds > 1) {
    page.details("Every seed", [&](report::Page& inner) { inner.table(seed_table(comparison)); });
  }
  page.heading("Loss").figure(
      report::to_svg(loss_chart(comparison, Against::steps)),
      comparison.seeds > 1 ? "The mean over the seeds that completed, each smoothed; the bands are ± σ of the seeds."
                           : "Smoothed; the raw losses are the faint lines.");
  const report::LineChart gaps = gap_chart(comparison);
  if (has_points(gaps)) page.figure(report::to_svg(gaps), "Above zero is worse than the base at the same seed.");
  const report::LineChart accuracies = accuracy_chart(comparison);
  if (has_points(accuracies)) page.figure(report::to_svg(accuracies));
  add_time_to_loss(page, comparison);
  page.heading("Cost")
      .paragraph(
          "On a CPU the low-precision formats are emulated exactly: the time shows what the "
          "emulation costs, the memory what the formats save.")
      .figure(report::to_svg(memory_chart(comparison)))
      .figure(report::to_svg(time_chart(comparison)));
  page.heading("Precision of every operand");
  const report::BarChart formats = format_chart(comparison);
  if (!formats.parts.empty())  // no run completed: nothing was counted
    page.figure(report::to_svg(formats),
                "A matrix product counts under the higher precision of its operands' formats.");
  for (const Contender& contender : contenders) {
    page.details(contender.label, [&](report::Page& inner) {
      inner.figure(report::to_svg(precision_map(contender)),
                   "Fprop reads x and w, dgrad dy and w columnwise, wgrad dy columnwise and x columnwise.");
    });
  }
  add_samples(page, comparison);
  return page.footer("Written by quaver " QUAVER_VERSION).html();
}

}  // namespace quaver
