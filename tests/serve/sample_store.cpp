#include "serve/sample_store.h"

#include <gtest/gtest.h>

#include "numerics/statistics.h"

namespace quaver::test {

namespace {

WorseWay worse_way(Worse worse) {
  switch (worse) {
    case Worse::higher:
      return WorseWay::higher;
    case Worse::lower:
      return WorseWay::lower;
    case Worse::larger_magnitude:
      return WorseWay::larger_magnitude;
  }
  return WorseWay::higher;
}

}  // namespace

RunDescription describe_run(const std::string& id, const std::string& name) {
  RunDescription run;
  run.id = id;
  run.name = name;
  run.model = "gpt";
  run.recipe = "fp8-delayed";
  run.group = "group";
  run.seed = 7;
  run.directory = "/home/somebody/runs/" + id;
  run.config = {
      {"train.steps", "20"}, {"data.path", "\"/home/somebody/data/mine\""}, {"run.dir", "/home/somebody/runs"}};
  run.environment_json = R"({"engine":"cpu","program":"/home/somebody/bin/quaver","threads":2})";
  run.steps = 100;
  run.tokens_per_step = 64;
  for (std::size_t layer = 0; layer < sample_layers; ++layer) {
    for (const char* role : {"x", "w", "dy"}) {
      const std::string name_of_layer = "blocks." + std::to_string(layer) + ".mlp";
      run.sites.push_back({name_of_layer + "/" + role,
                           name_of_layer,
                           role,
                           {"e4m3", "e4m3", "tensor", "delayed", "fp8-delayed", "the recipe's choice"}});
    }
  }
  for (const StatisticInfo& statistic : all_statistics()) {
    run.statistics.push_back({std::string(statistic.name), std::string(statistic.unit), std::string(statistic.doc),
                              worse_way(statistic.worse)});
  }
  run.memory = {{"weights", 1000}};
  run.shares = {{"e4m3", 0.75}, {"f32", 0.25}};
  return run;
}

float sample_figure(std::uint64_t step, std::size_t site, std::size_t statistic) {
  if (statistic == static_cast<std::size_t>(Statistic::scale)) return 16;
  if (statistic == static_cast<std::size_t>(Statistic::gradient_snr)) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(step) + 0.125F * static_cast<float>(site) + 100.0F * static_cast<float>(statistic);
}

void record_run(const std::filesystem::path& store, const RunDescription& description) {
  RunRecorder recorder(store, description, 0, [](const std::string& text) { ADD_FAILURE() << text; });
  const std::size_t sites = description.sites.size();
  for (std::uint64_t step = 1; step <= sample_steps; ++step) {
    const MetricValue values[] = {{"loss", 10.0 / static_cast<double>(step)},
                                  {"gradient_norm", std::numeric_limits<double>::infinity()}};
    recorder.metrics(step, values);
    std::vector<float> figures;
    std::vector<BinadeCounts> binades(sites);
    for (std::size_t site = 0; site < sites; ++site) {
      for (std::size_t i = 0; i < statistic_count; ++i) figures.push_back(sample_figure(step, site, i));
      for (std::size_t i = 30; i < 42; ++i) binades[site][i] = 100 + i;
    }
    recorder.numerics(step, figures, std::move(binades));
  }
  const std::string first = description.sites.at(0).name;
  recorder.scale_change({5, first, "overflow", 16, 8, "e4m3", "e5m2"});
  AlertRecord alert;
  alert.step = alert.last_step = 6;
  alert.rule = "underflow";
  alert.severity = "warning";
  alert.site = first;
  alert.value = 12;
  alert.threshold = 5;
  alert.text = "<b>much underflow</b>";
  recorder.alert(alert);
  recorder.event(7, "checkpoint", "saved");
  recorder.sample(8, "Once upon a time");
  recorder.document("localization", R"({"baseline_loss":1.5,"sites":[]})");
  recorder.status(RunStatus::finished);
  ASSERT_TRUE(recorder.flush());
}

}  // namespace quaver::test
