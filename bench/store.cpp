// How much the store costs: the trainer's thread for each sample of numerics, the writing itself, and the reader for a
// picture. The store it measures on is made first, in a folder of its own that is removed at the end.
//   bench_store [--layers=100] [--samples=1000] [--folder=/tmp/quaver-bench-store] [--keep=yes] [Google Benchmark's
//   flags]
// --layers=1000 --samples=10000 is the size the store is designed for: 12 sites per layer, 18 statistics, about 10 GB.
// --keep=yes leaves the store, for `quaver dash` and web/test/draw-time.mjs.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include "numerics/statistics.h"
#include "store/reader.h"
#include "store/recorder.h"

namespace quaver {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t statistics = statistic_count;
constexpr const char* layer_names[] = {"attn.qkv", "attn.out", "mlp.up", "mlp.down"};
constexpr const char* role_names[] = {"x", "w", "dy"};

struct Settings {
  std::size_t layers = 100;
  std::size_t samples = 1000;
  fs::path folder = "/tmp/quaver-bench-store";
  bool keep = false;
};
Settings settings;

fs::path store_path() { return settings.folder / store_file_name; }
double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

RunDescription description(const std::string& id) {
  RunDescription run;
  run.id = run.name = id;
  run.steps = settings.samples;
  for (std::size_t block = 0; block < settings.layers; ++block) {
    for (const char* name : layer_names) {
      for (const char* role : role_names) {
        const std::string layer = fmt::format("blocks.{}.{}", block, name);
        run.sites.push_back({layer + "/" + role, layer, role, {"e4m3", "e4m3", "tensor", "delayed", "fp8", "recipe"}});
      }
    }
  }
  for (const StatisticInfo& one : all_statistics()) {
    run.statistics.push_back(
        {std::string(one.name), std::string(one.unit), std::string(one.doc), static_cast<WorseWay>(one.worse)});
  }
  return run;
}

// Noise is drawn once: making it would take longer than recording it.
const std::vector<float>& figures(std::size_t step) {
  static const std::vector<std::vector<float>> pool = [] {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> samples(8, std::vector<float>(settings.layers * 12 * statistics));
    for (auto& sample : samples) {
      for (float& value : sample) value = normal(random);
    }
    return samples;
  }();
  return pool[step % pool.size()];
}

std::vector<BinadeCounts> binades() {
  static const std::vector<BinadeCounts> pool = [] {
    std::mt19937 random(2);
    std::vector<BinadeCounts> sites(settings.layers * 12);
    for (auto& site : sites) {
      for (std::size_t i = 20; i < 45; ++i) site[i] = random() % 100000;
    }
    return sites;
  }();
  return pool;
}

void warn(const std::string& text) { fmt::print(stderr, "store: {}\n", text); }

struct Making {
  double worst_call_ms = 0;
  double mean_call_ms = 0;
  double samples_per_second = 0;
  double bytes = 0;
};

// Records all samples as fast as the store takes them, four to a transaction: a 60 ms step. Every sixteenth sample has
// histograms.
Making make_store() {
  fs::remove_all(settings.folder);
  fs::create_directories(settings.folder);
  figures(0);
  RunRecorder recorder(store_path(), description("bench"), 0, warn);
  Making made;
  const auto start = Clock::now();
  for (std::size_t step = 1; step <= settings.samples; ++step) {
    auto counts = step % 16 == 0 ? binades() : std::vector<BinadeCounts>();
    const auto before = Clock::now();
    recorder.numerics(step, figures(step), std::move(counts));
    const double call = milliseconds(Clock::now() - before);
    made.worst_call_ms = std::max(made.worst_call_ms, call);
    made.mean_call_ms += call / static_cast<double>(settings.samples);
    if (step % 4 == 0) recorder.flush();
    if (step % 1000 == 0) fmt::print(stderr, "{} samples, {:.0f} s\n", step, milliseconds(Clock::now() - start) / 1000);
  }
  recorder.status(RunStatus::finished);
  recorder.flush();
  made.samples_per_second = 1000 * static_cast<double>(settings.samples) / milliseconds(Clock::now() - start);
  if (recorder.dropped() > 0) warn(fmt::format("{} records dropped", recorder.dropped()));
  made.bytes = static_cast<double>(fs::file_size(store_path()));
  return made;
}

// Forgets the file's pages in memory as well; clean ones only, which is all of them once synced.
void drop_file_cache() {
  const int file = open(store_path().c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  fdatasync(file);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
}

enum class Cache : std::int64_t { warm, cold };

// One statistic of one role over the whole run, by a reader that has just been opened.
void view(benchmark::State& state) {
  for (auto _ : state) {
    if (static_cast<Cache>(state.range(0)) == Cache::cold) {
      state.PauseTiming();
      drop_file_cache();
      state.ResumeTiming();
    }
    const StoreReader reader(store_path());
    const NumericsView found = reader.numerics("bench", {.statistic = "underflow_percent", .role = "dy"});
    benchmark::DoNotOptimize(found.values.data());
    state.counters["rows"] = static_cast<double>(found.rows.size());
    state.counters["columns"] = static_cast<double>(found.steps.size());
  }
}

// A tenth of the run, as after zooming in.
void zoomed_view(benchmark::State& state) {
  const StoreReader reader(store_path());
  for (auto _ : state) {
    const NumericsView found = reader.numerics("bench", {.statistic = "underflow_percent",
                                                         .role = "dy",
                                                         .from = settings.samples / 2,
                                                         .to = settings.samples * 6 / 10});
    benchmark::DoNotOptimize(found.values.data());
    state.counters["columns"] = static_cast<double>(found.steps.size());
  }
}

void history(benchmark::State& state) {
  const StoreReader reader(store_path());
  for (auto _ : state) {
    const SiteHistory found = reader.history("bench", fmt::format("blocks.{}.mlp.up/dy", settings.layers / 2));
    benchmark::DoNotOptimize(found.statistics.data());
    state.counters["points"] = static_cast<double>(found.step.size());
  }
}

void histogram(benchmark::State& state) {
  const StoreReader reader(store_path());
  for (auto _ : state) {
    const SiteHistogram found = reader.histogram("bench", fmt::format("blocks.{}.mlp.up/dy", settings.layers / 2));
    benchmark::DoNotOptimize(found.counts.data());
  }
}

// What the trainer's thread pays for a sample while the writer is at work, histograms included.
void record_call(benchmark::State& state) {
  const fs::path path = settings.folder / "calls.db";
  RunRecorder recorder(path, description("calls"), 0, warn);
  std::uint64_t step = 0;
  for (auto _ : state) {
    auto counts = binades();
    ++step;
    const auto before = Clock::now();
    recorder.numerics(step, figures(step), std::move(counts));
    state.SetIterationTime(milliseconds(Clock::now() - before) / 1000);
    if (step % 4 == 0) recorder.flush();
  }
  recorder.flush();
}

void metrics_call(benchmark::State& state) {
  const fs::path path = settings.folder / "metrics.db";
  RunRecorder recorder(path, description("metrics"), 0, warn);
  std::vector<std::string> names;
  for (int i = 0; i < 30; ++i) names.push_back(fmt::format("phase.some_metric_{}", i));
  std::vector<MetricValue> values;
  for (const std::string& name : names) values.push_back({name, 1.5});
  std::uint64_t step = 0;
  for (auto _ : state) {
    recorder.metrics(++step, values);
    if (step % 1000 == 0) {
      state.PauseTiming();
      recorder.flush();
      state.ResumeTiming();
    }
  }
}

bool take_flag(std::string_view argument, std::string_view name, std::string& value) {
  if (!argument.starts_with(name)) return false;
  value = argument.substr(name.size());
  return true;
}

std::vector<char*> parse(int argc, char** argv) {
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    std::string value;
    if (take_flag(argv[i], "--layers=", value)) {
      settings.layers = std::stoul(value);
    } else if (take_flag(argv[i], "--samples=", value)) {
      settings.samples = std::stoul(value);
    } else if (take_flag(argv[i], "--folder=", value)) {
      settings.folder = value;
    } else if (take_flag(argv[i], "--keep=", value)) {
      settings.keep = value == "yes";
    } else {
      rest.push_back(argv[i]);
    }
  }
  return rest;
}

}  // namespace
}  // namespace quaver

int main(int argc, char** argv) {
  using namespace quaver;
  std::vector<char*> rest = parse(argc, argv);
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 1;
  const Making made = make_store();
  fmt::print(
      "{} sites, {} samples: {:.1f} samples/s written ({:.0f} MB/s of figures), {:.2f} GB; a call {:.3f} ms in "
      "the mean, {:.3f} ms at worst\n",
      settings.layers * 12, settings.samples, made.samples_per_second,
      made.samples_per_second * static_cast<double>(settings.layers * 12 * statistics * 4) / 1e6, made.bytes / 1e9,
      made.mean_call_ms, made.worst_call_ms);
  const auto in_ms = [](benchmark::internal::Benchmark* registered) {
    return registered->Unit(benchmark::kMillisecond)->UseRealTime();
  };
  in_ms(benchmark::RegisterBenchmark("view/new reader", view))->Arg(0);
  in_ms(benchmark::RegisterBenchmark("view/new reader, file not in memory", view))->Arg(1)->Iterations(5);
  in_ms(benchmark::RegisterBenchmark("view/a tenth of the run", zoomed_view));
  in_ms(benchmark::RegisterBenchmark("history", history));
  in_ms(benchmark::RegisterBenchmark("histogram", histogram));
  benchmark::RegisterBenchmark("record/numerics call", record_call)
      ->Unit(benchmark::kMillisecond)
      ->UseManualTime()
      ->Iterations(64);
  benchmark::RegisterBenchmark("record/metrics call", metrics_call)->Unit(benchmark::kMicrosecond)->Iterations(4000);
  benchmark::RunSpecifiedBenchmarks();
  if (!settings.keep) std::filesystem::remove_all(settings.folder);
  return 0;
}
