// A benchmark as JSON, which is read back, and as CSV.
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "quaver/error.h"
#include "study/bench.h"

namespace quaver {

namespace {

using nlohmann::ordered_json;

constexpr int layout_version = 1;
constexpr std::array workloads{Workload::peak,  Workload::layer, Workload::vector, Workload::step,
                               Workload::phase, Workload::cast,  Workload::block,  Workload::decode};

ordered_json json_of(const Measurement& m) {
  ordered_json object{{"workload", name_of(m.workload)},
                      {"subject", m.subject},
                      {"part", m.part},
                      {"recipe", m.recipe},
                      {"support", m.support},
                      {"seconds", m.time.median},
                      {"p95", m.time.p95},
                      {"noise", m.time.noise},
                      {"rounds", m.time.rounds},
                      {"flops", m.flops},
                      {"bytes", m.bytes},
                      {"units", m.units}};
  object["joules"] = m.joules ? ordered_json(*m.joules) : ordered_json(nullptr);
  return object;
}

Workload workload_of(const std::string& name) {
  for (const Workload workload : workloads) {
    if (name_of(workload) == name) return workload;
  }
  throw Error("a benchmark measures \"" + name.substr(0, 40) + "\", which is not known", "it may be of a newer quaver");
}

double measured_number(const nlohmann::json& object, const char* key) {
  const double value = object.at(key).get<double>();
  if (std::isfinite(value) && value >= 0) return value;
  throw Error(std::string("a benchmark's ") + key + " is not a number that can be measured", "measure it again");
}

Measurement measurement_of(const nlohmann::json& object) {
  Measurement m{.workload = workload_of(object.at("workload")),
                .subject = object.at("subject"),
                .part = object.at("part"),
                .recipe = object.at("recipe"),
                .support = object.at("support"),
                .time = {measured_number(object, "seconds"), measured_number(object, "p95"),
                         measured_number(object, "noise"), object.at("rounds").get<int>()},
                .flops = measured_number(object, "flops"),
                .bytes = measured_number(object, "bytes"),
                .units = measured_number(object, "units")};
  if (!object.at("joules").is_null()) m.joules = measured_number(object, "joules");
  if (m.time.median <= 0 && m.workload != Workload::phase) throw Error("a benchmark took no time", "measure it again");
  return m;
}

std::string quoted(const std::string& text) {
  std::string safe = "\"";
  for (const char c : text) {
    if (c == '"') safe += '"';
    safe += c;
  }
  return safe + "\"";
}

}  // namespace

std::string to_json(const Bench& bench) {
  ordered_json layers = ordered_json::array();
  for (const BenchLayer& layer : bench.layers) {
    layers.push_back({{"name", layer.name},
                      {"in", layer.in},
                      {"out", layer.out},
                      {"count", layer.count},
                      {"tokens", layer.tokens},
                      {"pixels", layer.pixels}});
  }
  ordered_json steps = ordered_json::array();
  for (const StepVerdict& step : bench.steps) {
    steps.push_back({{"recipe", step.recipe},
                     {"speedup", step.speedup},
                     {"noise", step.noise},
                     {"peak_memory", step.peak_memory},
                     {"loss_share", step.loss_share}});
  }
  ordered_json measurements = ordered_json::array();
  for (const Measurement& m : bench.measurements) measurements.push_back(json_of(m));
  const ordered_json object{
      {"quaver_bench", layout_version},
      {"version", bench.version},
      {"date", bench.date},
      {"machine", {{"engine", bench.machine.engine}, {"host", bench.machine.host}, {"energy", bench.machine.energy}}},
      {"model", bench.model},
      {"unit", bench.unit},
      {"tokens", bench.tokens},
      {"context", bench.context},
      {"seconds", bench.seconds},
      {"layers", layers},
      {"steps", steps},
      {"measurements", measurements}};
  return object.dump(1);
}

Bench bench_from_json(const std::string& text) {
  try {
    const auto object = nlohmann::json::parse(text);
    if (object.at("quaver_bench") != layout_version) {
      throw Error("the benchmark has another layout than this quaver writes", "measure again with one version");
    }
    Bench bench{.version = object.at("version"),
                .date = object.at("date"),
                .machine = {object.at("machine").at("engine"), object.at("machine").at("host"),
                            object.at("machine").at("energy")},
                .model = object.at("model"),
                .tokens = object.at("tokens"),
                .context = object.at("context"),
                .seconds = object.at("seconds"),
                .unit = object.value("unit", "tokens")};
    for (const auto& layer : object.at("layers")) {
      bench.layers.push_back({.name = layer.at("name"),
                              .in = layer.at("in"),
                              .out = layer.at("out"),
                              .count = layer.at("count"),
                              .tokens = layer.at("tokens"),
                              .pixels = layer.value("pixels", Size{1}),
                              .unit = bench.unit});
    }
    for (const auto& step : object.at("steps")) {
      bench.steps.push_back({step.at("recipe"), measured_number(step, "speedup"), measured_number(step, "noise"),
                             step.at("peak_memory"), step.at("loss_share").get<double>()});
    }
    for (const auto& m : object.at("measurements")) bench.measurements.push_back(measurement_of(m));
    return bench;
  } catch (const nlohmann::json::exception& error) {
    throw Error(std::string("this is not the JSON of a benchmark: ") + error.what(),
                "give a file of `quaver bench --json`");
  }
}

std::string to_csv(const Bench& bench) {
  std::string text = "workload,subject,part,recipe,support,seconds,p95,noise,rounds,flops,bytes,units,joules\n";
  for (const Measurement& m : bench.measurements) {
    text += fmt::format("{},{},{},{},{},{:.9g},{:.9g},{:.4g},{},{:.9g},{:.9g},{:g},{}\n", name_of(m.workload),
                        quoted(m.subject), quoted(m.part), quoted(m.recipe), quoted(m.support), m.time.median,
                        m.time.p95, m.time.noise, m.time.rounds, m.flops, m.bytes, m.units,
                        m.joules ? fmt::format("{:.6g}", *m.joules) : "");
  }
  return text;
}

}  // namespace quaver
