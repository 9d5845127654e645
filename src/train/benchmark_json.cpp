// A benchmark as JSON, which is read back, and as CSV.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "quaver/error.h"
#include "train/benchmark.h"

namespace quaver {

namespace {

using nlohmann::ordered_json;

constexpr int layout_version = 1;
constexpr std::array workloads{Workload::peak, Workload::layer, Workload::vector, Workload::step,     Workload::phase,
                               Workload::cast, Workload::block, Workload::decode, Workload::yardstick};

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
  if (!m.time.sweeps.empty()) object["sweeps"] = m.time.sweeps;
  return object;
}

Workload workload_of(const std::string& name) {
  for (const Workload workload : workloads) {
    if (name_of(workload) == name) return workload;
  }
  throw Error("a benchmark measures \"" + name.substr(0, 40) + "\", which is not known", "it may be of a newer quaver");
}

// A benchmark's file may come from anywhere, and its texts reach terminals.
std::string checked_text(const nlohmann::json& object, const char* key) {
  constexpr std::size_t longest = 1U << 16U;
  std::string text = object.at(key).get<std::string>();
  const bool printable = std::ranges::none_of(
      text, [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F; });
  if (printable && text.size() <= longest) return text;
  throw Error(std::string("a benchmark's ") + key + " is no plain text", "measure it again");
}

double measured_number(const nlohmann::json& object, const char* key) {
  constexpr double largest = 1e24;
  const nlohmann::json& found = object.at(key);
  if (found.is_number()) {
    const double value = found.get<double>();
    if (std::isfinite(value) && value >= 0 && value <= largest) return value;
  }
  throw Error(std::string("a benchmark's ") + key + " is not a number that can be measured", "measure it again");
}

// Medians of the sweeps of a measurement; none in files of older versions.
std::vector<double> sweeps_of(const nlohmann::json& measurement) {
  constexpr std::size_t most = 1000;
  if (!measurement.contains("sweeps")) return {};
  const nlohmann::json& list = measurement.at("sweeps");
  if (!list.is_array() || list.size() > most) throw Error("a benchmark's sweeps are no list", "measure it again");
  std::vector<double> sweeps;
  for (const nlohmann::json& seconds : list) {
    sweeps.push_back(measured_number(nlohmann::json{{"sweeps", seconds}}, "sweeps"));
    if (sweeps.back() == 0) throw Error("a benchmark's sweep took no time", "measure it again");
  }
  return sweeps;
}

Size whole_number(const nlohmann::json& object, const char* key, Size least) {
  constexpr Size largest = Size{1} << 50;
  const nlohmann::json& value = object.at(key);
  if (value.is_number_integer() && value >= least && value <= largest) return value.get<Size>();
  throw Error(std::string("a benchmark's ") + key + " is not a number that can be counted", "measure it again");
}

Measurement measurement_of(const nlohmann::json& object) {
  constexpr double most_units = 0x1p50;
  constexpr Size most_rounds = 1'000'000'000;
  Measurement m{
      .workload = workload_of(object.at("workload")),
      .subject = checked_text(object, "subject"),
      .part = checked_text(object, "part"),
      .recipe = checked_text(object, "recipe"),
      .support = checked_text(object, "support"),
      .time = {measured_number(object, "seconds"), measured_number(object, "p95"), measured_number(object, "noise"),
               static_cast<int>(std::min(whole_number(object, "rounds", 0), most_rounds))},
      .flops = measured_number(object, "flops"),
      .bytes = measured_number(object, "bytes"),
      .units = measured_number(object, "units")};
  m.time.sweeps = sweeps_of(object);
  if (m.units > most_units) throw Error("a benchmark's units are too many to be counted", "measure it again");
  if (!object.at("joules").is_null()) m.joules = measured_number(object, "joules");
  if (m.time.median <= 0 && m.workload != Workload::phase) throw Error("a benchmark took no time", "measure it again");
  return m;
}

BenchLayer layer_of(const nlohmann::json& object) {
  return {.name = checked_text(object, "name"),
          .in = whole_number(object, "in", 1),
          .out = whole_number(object, "out", 1),
          .count = whole_number(object, "count", 1),
          .tokens = whole_number(object, "tokens", 1),
          .pixels = object.contains("pixels") ? whole_number(object, "pixels", 1) : 1};
}

std::vector<MemoryPart> memory_of(const nlohmann::json& parts) {
  std::vector<MemoryPart> memory;
  for (const auto& part : parts) memory.push_back({checked_text(part, "purpose"), whole_number(part, "bytes", 0)});
  return memory;
}

ordered_json json_of(const std::vector<MemoryPart>& memory) {
  ordered_json parts = ordered_json::array();
  for (const MemoryPart& part : memory) parts.push_back({{"purpose", part.purpose}, {"bytes", part.bytes}});
  return parts;
}

StepVerdict step_of(const nlohmann::json& object) {
  const double share = object.at("loss_share").get<double>();
  if (!std::isfinite(share)) throw Error("a benchmark's loss_share is no number", "measure it again");
  return {.recipe = checked_text(object, "recipe"),
          .speedup = measured_number(object, "speedup"),
          .noise = measured_number(object, "noise"),
          .peak_memory = whole_number(object, "peak_memory", std::numeric_limits<Size>::min()),
          .loss_share = share,
          .memory = object.contains("memory") ? memory_of(object.at("memory")) : std::vector<MemoryPart>{}};
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
                     {"loss_share", step.loss_share},
                     {"memory", json_of(step.memory)}});
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
      {"measurements", measurements},
      {"settings", bench.settings}};
  return object.dump(1);
}

Bench bench_from_json(const std::string& text) {
  try {
    const auto object = nlohmann::json::parse(text);
    if (object.at("quaver_bench") != layout_version) {
      throw Error("the benchmark has another layout than this quaver writes", "measure again with one version");
    }
    const nlohmann::json& machine = object.at("machine");
    Bench bench{
        .version = checked_text(object, "version"),
        .date = checked_text(object, "date"),
        .machine = {checked_text(machine, "engine"), checked_text(machine, "host"), checked_text(machine, "energy")},
        .model = checked_text(object, "model"),
        .tokens = whole_number(object, "tokens", 0),
        .context = whole_number(object, "context", 0),
        .seconds = measured_number(object, "seconds")};
    if (object.contains("settings")) bench.settings = checked_text(object, "settings");
    if (object.contains("unit")) bench.unit = checked_text(object, "unit");
    for (const auto& layer : object.at("layers")) {
      bench.layers.push_back(layer_of(layer));
      bench.layers.back().unit = bench.unit;
    }
    for (const auto& step : object.at("steps")) bench.steps.push_back(step_of(step));
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
