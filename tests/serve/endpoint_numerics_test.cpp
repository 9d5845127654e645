// The matrix of a statistic, the history and the histogram of a site, and series of metrics: headers, limits, defaults.
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "numerics/statistics.h"
#include "serve/client.h"
#include "serve/endpoints.h"
#include "serve/sample_store.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

struct Matrix {
  json header;
  std::string padding;  // behind the header's JSON
  std::vector<float> values;
};

Matrix matrix_of(const std::string& answer) {
  std::uint32_t length = 0;
  std::memcpy(&length, answer.data(), sizeof length);
  const std::string header = answer.substr(4, length);
  const std::size_t end = header.find_last_not_of(' ') + 1;
  Matrix matrix{json::parse(header), header.substr(end), {}};
  matrix.values.resize((answer.size() - 4 - length) / sizeof(float));
  if (matrix.values.empty()) return matrix;
  std::memcpy(matrix.values.data(), answer.data() + 4 + length, matrix.values.size() * sizeof(float));
  return matrix;
}

// Five layers of role x; statistics that are worse when they are higher, lower and larger.
class AnswerNumerics : public ::testing::Test {
 protected:
  static RunDescription run_of_five() {
    RunDescription run = describe_run("one");
    run.sites.clear();
    for (const char* layer : {"a", "b", "c", "d", "e"}) {
      run.sites.push_back({std::string(layer) + "/x", layer, "x", {"e4m3", "e5m2", "tensor", "delayed", "fp8", ""}});
    }
    run.statistics = {{"amax", "", "", WorseWay::higher},
                      {"sqnr_db", "", "", WorseWay::lower},
                      {"mean", "", "", WorseWay::larger_magnitude}};
    return run;
  }
  // 10 step + site, the same negative, and zero.
  void SetUp() override {
    RunRecorder recorder(folder_.store(), run_of_five(), 0, [](const std::string& text) { ADD_FAILURE() << text; });
    for (const std::uint64_t step : {2U, 5U, 8U, 11U, 14U, 17U}) {
      std::vector<float> figures;
      for (std::size_t site = 0; site < 5; ++site) {
        const float value = 10.0F * static_cast<float>(step) + static_cast<float>(site);
        figures.insert(figures.end(), {value, -value, 0});
      }
      recorder.numerics(step, figures);
    }
    ASSERT_TRUE(recorder.flush());
  }
  Matrix ask_for(const std::string& query) const {
    const std::string answer = numerics_body(StoreReader(folder_.store()), "one", Query(query));
    std::uint32_t length = 0;
    std::memcpy(&length, answer.data(), sizeof length);
    EXPECT_EQ(length % 4, 0U);
    return matrix_of(answer);
  }
  bool refuses(const std::string& query) const {
    try {
      numerics_body(StoreReader(folder_.store()), "one", Query(query));
      return false;
    } catch (const BadParameter&) {
      return true;
    }
  }

  StoreFolder folder_;
};

TEST_F(AnswerNumerics, AWholeMatrixHasAColumnASampleAndARowALayer) {
  const Matrix matrix = ask_for("statistic=amax&role=x");
  const json expected = json::parse(R"({"statistic":"amax","role":"x","row_names":["a","b","c","d","e"],
      "rows":[{"layer":"a","first":0,"count":1},{"layer":"b","first":1,"count":1},{"layer":"c","first":2,"count":1},
              {"layer":"d","first":3,"count":1},{"layer":"e","first":4,"count":1}],
      "steps":[2,5,8,11,14,17],"last_step":17,"steps_per_column":3,"samples_per_column":1,"layers_per_row":1,
      "aggregate":"max"})");
  EXPECT_EQ(matrix.header, expected);
  ASSERT_EQ(matrix.values.size(), 30U);
  EXPECT_EQ(matrix.values[0], 20);
  EXPECT_EQ(matrix.values[5], 170);
  EXPECT_EQ(matrix.values[6], 21);
  EXPECT_EQ(matrix.values[29], 174);
}

TEST_F(AnswerNumerics, FewerColumnsAndRowsShowTheWorst) {
  const Matrix matrix = ask_for("statistic=amax&role=x&columns=2&rows=3");
  EXPECT_THAT(matrix.header["steps"], ElementsAre(2, 11));
  EXPECT_EQ(matrix.header["last_step"], 17);
  EXPECT_EQ(matrix.header["steps_per_column"], 9);
  EXPECT_EQ(matrix.header["samples_per_column"], 3);
  EXPECT_EQ(matrix.header["layers_per_row"], 2);
  EXPECT_EQ(matrix.header["rows"], json::parse(R"([{"layer":"a","first":0,"count":2},{"layer":"c","first":2,"count":2},
                                                   {"layer":"e","first":4,"count":1}])"));
  EXPECT_THAT(matrix.values, ElementsAre(81, 171, 83, 173, 84, 174));
  const Matrix lowest = ask_for("statistic=sqnr_db&role=x&columns=2&rows=1");
  EXPECT_EQ(lowest.header["aggregate"], "min");
  EXPECT_THAT(lowest.values, ElementsAre(-84, -174));
  EXPECT_EQ(ask_for("statistic=mean&role=x").header["aggregate"], "absmax");
}

TEST_F(AnswerNumerics, OneColumnStandsForAllItsSteps) {
  const Matrix matrix = ask_for("statistic=amax&role=x&columns=1&rows=1");
  EXPECT_THAT(matrix.header["steps"], ElementsAre(2));
  EXPECT_EQ(matrix.header["steps_per_column"], 16) << "2 to 17";
  EXPECT_EQ(matrix.header["samples_per_column"], 6);
  EXPECT_THAT(matrix.values, ElementsAre(174));
  EXPECT_EQ(ask_for("statistic=amax&role=x&from=5&to=5").header["steps_per_column"], 1);
}

TEST_F(AnswerNumerics, FromAndToAreBothPartOfIt) {
  EXPECT_THAT(ask_for("statistic=amax&role=x&from=5&to=11").header["steps"], ElementsAre(5, 8, 11));
  EXPECT_THAT(ask_for("statistic=amax&role=x&from=6&to=10").header["steps"], ElementsAre(8));
  EXPECT_EQ(ask_for("statistic=amax&role=x&from=0").header["steps"].size(), 6U);
  EXPECT_EQ(ask_for("statistic=amax&role=x&to=9223372036854775807").header["steps"].size(), 6U);
  const Matrix none = ask_for("statistic=amax&role=x&from=18&to=0");
  EXPECT_EQ(none.header["steps"], json::array());
  EXPECT_EQ(none.header["steps_per_column"], 1);
  EXPECT_EQ(none.header["last_step"], 0);
  EXPECT_TRUE(none.values.empty());
}

TEST_F(AnswerNumerics, ColumnsRowsAndStepsHaveLimits) {
  const std::string base = "statistic=amax&role=x&";
  for (const char* good : {"columns=1", "columns=4096", "rows=1", "rows=4096", "from=0&to=0"}) {
    EXPECT_FALSE(refuses(base + good)) << good;
  }
  for (const char* bad : {"columns=0", "columns=4097", "rows=0", "rows=4097", "from=9223372036854775808",
                          "to=9223372036854775808", "columns=", "rows=-1"}) {
    EXPECT_TRUE(refuses(base + bad)) << bad;
  }
  EXPECT_TRUE(refuses("role=x"));
  EXPECT_TRUE(refuses("statistic=amax"));
}

// The header's length depends on its numbers: wherever it ends, the matrix begins at a multiple of four.
TEST_F(AnswerNumerics, TheHeaderIsPaddedToFourBytes) {
  std::vector<bool> seen(4);
  for (int columns = 1; columns <= 6; ++columns) {
    for (int rows = 1; rows <= 5; ++rows) {
      const std::string sizes = fmt::format("&columns={}&rows={}", columns, rows);
      for (const char* statistic : {"amax", "sqnr_db"}) {
        const Matrix matrix = ask_for(fmt::format("statistic={}&role=x{}", statistic, sizes));
        ASSERT_LT(matrix.padding.size(), 4U);
        seen[matrix.padding.size()] = true;
        const std::size_t cells = matrix.header["rows"].size() * matrix.header["steps"].size();
        ASSERT_EQ(matrix.values.size(), cells) << sizes;
      }
    }
  }
  EXPECT_GT(std::count(seen.begin(), seen.end(), true), 2) << "the test meets different lengths";
}

TEST_F(AnswerNumerics, AHistoryIsTheSitesAlone) {
  const std::string answer = history_body(StoreReader(folder_.store()), "one", Query("site=b%2Fx"));
  EXPECT_EQ(answer, R"({"site":"b/x","step":[2,5,8,11,14,17],"statistics":{"amax":[21,51,81,111,141,171],)"
                    R"("sqnr_db":[-21,-51,-81,-111,-141,-171],"mean":[0,0,0,0,0,0]}})");
  const json thinned = json::parse(history_body(StoreReader(folder_.store()), "one", Query("site=b/x&points=4")));
  EXPECT_THAT(thinned["step"], ElementsAre(2, 8, 14));
  EXPECT_THAT(thinned["statistics"]["amax"], ElementsAre(51, 111, 171));
  EXPECT_THAT(thinned["statistics"]["sqnr_db"], ElementsAre(-51, -111, -171));
}

TEST_F(AnswerNumerics, PointsOfSeriesHaveLimitsAndADefault) {
  RunDescription longer = describe_run("long");
  RunRecorder recorder(folder_.store(), longer, 0, [](const std::string& text) { ADD_FAILURE() << text; });
  for (std::uint64_t step = 1; step <= 2400; ++step) {
    const MetricValue value{"loss", static_cast<double>(step * 7919 % 2400)};
    recorder.metrics(step, {&value, 1});
  }
  ASSERT_TRUE(recorder.flush());
  const StoreReader reader(folder_.store());
  const auto points = [&](const std::string& query) {
    return json::parse(metrics_body(reader, "long", Query(query)))["series"]["loss"]["step"].size();
  };
  EXPECT_EQ(points("names=loss&points=20000"), 2400U);
  EXPECT_GT(points("names=loss"), 1500U);
  EXPECT_LE(points("names=loss"), 2000U);
  EXPECT_LE(points("names=loss&points=4"), 4U);
  EXPECT_EQ(points("names=loss&after=2390"), 10U);
  EXPECT_EQ(points("names=loss&after=0&points=20000"), 2400U);
  EXPECT_EQ(points("names=loss&after=9223372036854775807"), 0U);
  for (const char* query : {"points=3", "points=20001", "after=9223372036854775808"}) {
    EXPECT_THROW(metrics_body(reader, "long", Query(query)), BadParameter) << query;
  }
  for (const char* query : {"site=b/x&points=3", "site=b/x&points=20001", "points=4"}) {
    EXPECT_THROW(history_body(reader, "one", Query(query)), BadParameter) << query;
  }
  EXPECT_NO_THROW(history_body(reader, "one", Query("site=b/x&points=20000")));
}

TEST_F(AnswerNumerics, SixtyFourNamesOfMetricsAreLookedAt) {
  const MetricValue values[] = {{"loss", 1.5}, {"norm", std::numeric_limits<double>::quiet_NaN()}};
  {
    RunRecorder recorder(folder_.store(), describe_run("two"), 0,
                         [](const std::string& text) { ADD_FAILURE() << text; });
    recorder.metrics(3, values);
    ASSERT_TRUE(recorder.flush());
  }
  const StoreReader reader(folder_.store());
  std::string names;
  for (int i = 0; i < 63; ++i) names += fmt::format("absent{},", i);
  const auto series = [&](const std::string& list) {
    return json::parse(metrics_body(reader, "two", Query("names=" + list)))["series"];
  };
  EXPECT_EQ(series(names + "loss").size(), 64U);
  EXPECT_THAT(series(names + "loss")["loss"]["value"], ElementsAre(1.5));
  EXPECT_EQ(series(names + "another,loss").size(), 64U);
  EXPECT_FALSE(series(names + "another,loss").contains("loss"));
  EXPECT_EQ(metrics_body(reader, "two", Query("")),
            R"({"series":{"loss":{"step":[3],"value":[1.5]},"norm":{"step":[3],"value":[null]}}})");
}

// A site whose elements lie between 2^20 and 2^21: too large for F16 without a scale.
class AnswerHistogram : public ::testing::Test {
 protected:
  // `scale` NaN: not recorded. Histograms at steps 4 and 9.
  json ask_for(const SiteState& state, float scale, const std::string& query = "site=a/x") {
    RunDescription run = describe_run("one");
    run.sites = {{"a/x", "a", "x", state}};
    {
      RunRecorder recorder(folder_.store(), run, 0, [](const std::string& text) { ADD_FAILURE() << text; });
      for (const std::uint64_t step : {4U, 9U}) {
        std::vector<float> figures(run.statistics.size(), std::numeric_limits<float>::quiet_NaN());
        figures[static_cast<std::size_t>(Statistic::scale)] = scale;
        figures[static_cast<std::size_t>(Statistic::amax)] = 0x1.cp20F;
        BinadeCounts counts{};
        counts[60] = 1000 + step;  // 2^20 … 2^21
        recorder.numerics(step, figures, {counts});
      }
      EXPECT_TRUE(recorder.flush());
    }
    return json::parse(histogram_body(StoreReader(folder_.store()), "one", Query(query)));
  }
  static constexpr float none = std::numeric_limits<float>::quiet_NaN();

  StoreFolder folder_;
};

TEST_F(AnswerHistogram, HasItsStepFormatAndScale) {
  const json newest = ask_for({"e4m3", "e5m2", "tensor", "delayed", "fp8", ""}, 0.25F);
  EXPECT_EQ(newest["site"], "a/x");
  EXPECT_EQ(newest["step"], 9);
  EXPECT_THAT(newest["steps"], ElementsAre(4, 9));
  EXPECT_EQ(newest["counts"][60], 1009);
  EXPECT_EQ(newest["counts"][59], 0);
  EXPECT_EQ(newest["counts"].size(), 64U);
  EXPECT_EQ(newest["first_binade"], -40);
  EXPECT_EQ(newest["format"], "e4m3");
  EXPECT_EQ(newest["scale"], 0.25);
  // E4M3: largest 448, smallest normal 2^-6, half the smallest subnormal 2^-10; a scale of 2^-2 moves all by 2.
  EXPECT_NEAR(newest["range"]["max"].get<double>(), std::log2(448.0) + 2, 1e-6);
  EXPECT_EQ(newest["range"]["subnormal_below"], -4.0);
  EXPECT_EQ(newest["range"]["zero_below"], -8.0);
  EXPECT_EQ(newest["range"].size(), 3U);
  EXPECT_EQ(json::parse(histogram_body(StoreReader(folder_.store()), "one", Query("site=a/x&step=5")))["step"], 4);
  EXPECT_EQ(json::parse(histogram_body(StoreReader(folder_.store()), "one", Query("site=a/x&step=0")))["step"], 4);
  EXPECT_THROW(histogram_body(StoreReader(folder_.store()), "one", Query("site=a/x&step=-1")), BadParameter);
  EXPECT_THROW(histogram_body(StoreReader(folder_.store()), "one", Query("step=4")), BadParameter);
}

TEST_F(AnswerHistogram, WithoutAScaleHasTheRangeOfOneThatFits) {
  const json fitted = ask_for({"e5m2", "e4m3", "tensor", "current", "fp8", ""}, none);
  EXPECT_TRUE(fitted["scale"].is_null());
  EXPECT_NEAR(fitted["range"]["max"].get<double>(), std::log2(0x1.cp20), 1e-6) << "the largest value is the end";
  for (const float scale : {0.0F, -1.0F, std::numeric_limits<float>::infinity()}) {
    EXPECT_NEAR(ask_for({"e5m2", "", "tensor", "", "", ""}, scale)["range"]["max"].get<double>(), std::log2(0x1.cp20),
                1e-6);
  }
  EXPECT_TRUE(ask_for({"e5m2", "", "1x128", "", "", ""}, none)["range"].is_null());
  EXPECT_TRUE(ask_for({"no format", "", "tensor", "", "", ""}, none)["range"].is_null());
  const json bf16 = ask_for({"bf16", "", "1x128", "none", "bf16", ""}, none);
  EXPECT_NEAR(bf16["range"]["max"].get<double>(), 128, 0.01);
  EXPECT_EQ(bf16["range"]["subnormal_below"], -126.0);
}

TEST_F(AnswerHistogram, SaysWhatOtherFormatsWouldLose) {
  const json rows = ask_for({"e4m3", "e5m2", "tensor", "delayed", "fp8", ""}, 1)["what_if"];
  ASSERT_EQ(rows.size(), 5U);
  const char* names[] = {"e2m1", "e4m3", "e5m2", "f16", "bf16"};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(rows[i]["format"], names[i]);
    EXPECT_EQ(rows[i].size(), 5U);
    EXPECT_EQ(rows[i]["underflow_percent"], 0.0) << names[i];
    EXPECT_NEAR(rows[i]["saturated_percent"].get<double>(), i == 3 ? 100 : 0, 1e-3) << names[i];
  }
  EXPECT_NEAR(rows[1]["scale"].get<double>(), 448 / 0x1.cp20, 1e-9);
  EXPECT_EQ(rows[3]["scale"], 1.0);
  EXPECT_LT(rows[3]["sqnr_db"].get<double>(), 1) << "65504 in place of a million";
  EXPECT_GT(rows[4]["sqnr_db"].get<double>(), 40);
}

}  // namespace
}  // namespace quaver::test
