// A store in a folder of its own, a small run to record in it, and values that follow from step, site and statistic.
#pragma once

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <sqlite3.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "support/temporary_folder.h"

#include "store/reader.h"
#include "store/recorder.h"

namespace quaver::test {

namespace fs = std::filesystem;

inline constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    static std::atomic<int> counter{0};
    // In memory where that is possible: the tests sync often, and a busy disk would be all they measure.
    const fs::path base = access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::path(testing::TempDir());
    folder_ = base / fmt::format("quaver_store_{}_{}", getpid(), counter++);
    fs::create_directories(folder_);
    store_ = folder_ / store_file_name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  RunRecorder::Warning collect() {
    return [this](const std::string& text) { warnings_.push_back(text); };
  }

  fs::path folder_;
  fs::path store_;
  std::vector<std::string> warnings_;
};

// Quick transactions, so that tests need not wait.
inline RecorderLimits quick() {
  RecorderLimits limits;
  limits.transaction_every = std::chrono::milliseconds(1);
  limits.busy_timeout = std::chrono::milliseconds(5000);
  return limits;
}

// Three sites a layer: x, w and dy, interleaved as a plan lists them.
inline RunDescription small_run(const std::string& id, std::size_t layers = 3) {
  RunDescription run;
  run.id = id;
  run.name = "run " + id;
  run.model = "tiny";
  run.recipe = "fp8-delayed";
  run.group = "group";
  run.seed = 7;
  run.directory = "/somewhere/" + id;
  run.config_toml = "[train]\nsteps = 100\n";
  run.config = {{"train.steps", "100"}, {"model.width", "64"}};
  run.environment_json = R"({"engine":"cpu"})";
  run.steps = 100;
  run.tokens_per_step = 2048;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (const char* role : {"x", "w", "dy"}) {
      const std::string name = fmt::format("blocks.{}.up", layer);
      run.sites.push_back({name + "/" + role, name, role, {"e4m3", "e4m3", "tensor", "delayed", "fp8", "recipe"}});
    }
  }
  run.statistics = {{"amax", "", "largest magnitude", WorseWay::higher},
                    {"sqnr_db", "dB", "signal to noise", WorseWay::lower},
                    {"mean", "", "mean", WorseWay::larger_magnitude}};
  run.memory = {{"weights", 1U << 20U}, {"gradients", 5}};
  run.shares = {{"e4m3", 0.9}, {"bf16", 0.1}};
  return run;
}

// Without pattern in any direction; a tenth is not measured.
inline float figure(std::uint64_t step, std::size_t site, std::size_t statistic) {
  std::uint64_t x = step * 1000003 + site * 8191 + statistic * 131 + 12345;
  x = (x ^ (x >> 13U)) * 0x9E3779B97F4A7C15ULL;
  x ^= x >> 29U;
  if (x % 10 == 0) return nan_value;
  return static_cast<float>(static_cast<std::int64_t>(x % 200001) - 100000) / 16.0F;
}

inline std::vector<float> values_of(const RunDescription& run, std::uint64_t step) {
  std::vector<float> values;
  for (std::size_t site = 0; site < run.sites.size(); ++site) {
    for (std::size_t i = 0; i < run.statistics.size(); ++i) values.push_back(figure(step, site, i));
  }
  return values;
}

inline bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

inline void record_metric(RunRecorder& recorder, std::uint64_t step, double loss) {
  const MetricValue values[] = {{"loss", loss}, {"learning_rate", 0.001}};
  recorder.metrics(step, values);
}

// Straight to SQLite, for what no public call does; gives the first column of the first row as text.
inline std::string sql(const fs::path& store, const std::string& text) {
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open(store.c_str(), &database), SQLITE_OK);
  sqlite3_busy_timeout(database, 5000);
  std::string result;
  const auto take = [](void* into, int columns, char** values, char**) {
    auto* first = static_cast<std::string*>(into);
    if (first->empty() && columns > 0 && values[0] != nullptr) *first = values[0];
    return 0;
  };
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(database, text.c_str(), take, &result, &error), SQLITE_OK) << (error ? error : "");
  sqlite3_free(error);
  sqlite3_close(database);
  return result;
}

}  // namespace quaver::test
