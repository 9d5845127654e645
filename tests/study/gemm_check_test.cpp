// The doctor's product against engines that do nothing or fail, what it asks of a recipe, and how a localization
// counts.
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "support/variable.h"

#include "precision/recipe.h"
#include "quaver/error.h"
#include "study/calibrate.h"
#include "study/doctor.h"
#include "study/localize.h"
#include "study/support.h"
#include "train/support.h"

namespace quaver {
namespace {

using ::testing::HasSubstr;

// Computes nothing: what is read back from it is zero. Keeps what it was asked to support, in words by its number.
class AskedEngine final : public test::IdleEngine {
 public:
  Support support(const QuantSpec& a, const QuantSpec& b) override {
    asked.emplace_back(a, b);
    return {SupportLevel::emulated, asked.size() == different ? "otherwise" : "alike"};
  }
  void on_gemm(const Gemm&) override {
    if (fails) throw Error("no GEMM today");
  }

  bool fails = false;
  std::size_t different = 0;
  std::vector<std::pair<QuantSpec, QuantSpec>> asked;
};

TEST(ProductCheckByHand, CountsBothOperandsThatAreOther) {
  const auto engine = make_cpu_engine(1);
  AskedEngine idle;
  const GemmCheck check = check_gemm(*engine, idle, 64, 1);
  EXPECT_GT(check.different_values, 2 * 64 * 64 * 9 / 10) << "nearly all of two matrices are not zero";
  EXPECT_LE(check.different_values, 2 * 64 * 64);
  EXPECT_GT(check.error, 0);
  EXPECT_EQ(check.engine, engine->name());
  EXPECT_EQ(check.against, "sizing");
  EXPECT_FALSE(check.good());
}

TEST(ProductCheckByHand, AProductThatFailsSaysWhy) {
  AskedEngine idle;
  idle.fails = true;
  EXPECT_EQ(check_gemm(idle, 16, 1).failure, "no GEMM today");
  EXPECT_FALSE(check_gemm(idle, 16, 1).good());
  const auto engine = make_cpu_engine(1);
  EXPECT_EQ(check_gemm(*engine, idle, 16, 1).failure, "no GEMM today");
}

// Two operations a term: 2 n³ in the time that was taken.
TEST(ProductCheckByHand, TimeAndSpeedAgree) {
  const auto engine = make_cpu_engine(1);
  const GemmCheck check = check_gemm(*engine, 96, 1);
  EXPECT_EQ(check.extent, 96);
  ASSERT_GT(check.milliseconds, 0);
  EXPECT_LT(check.milliseconds, 2000);
  EXPECT_NEAR(check.tflops * check.milliseconds, 2.0 * 96 * 96 * 96 / 1e9, 1e-9);
}

TEST(RecipeSupportByHand, IsAskedOfTheThreeProducts) {
  AskedEngine idle;
  recipe_support(idle, "fp8-delayed");
  const Recipe table = make_recipe("fp8-delayed", {});
  ASSERT_EQ(idle.asked.size(), 3U);
  EXPECT_EQ(idle.asked[0], std::pair(table.x.rows, table.w.rows));
  EXPECT_EQ(idle.asked[1], std::pair(table.dy.rows, table.w.columns));
  EXPECT_EQ(idle.asked[2], std::pair(table.dy.columns, table.x.columns));
}

TEST(RecipeSupportByHand, IsInOneWordWhereAllThreeAreAlike) {
  AskedEngine alike;
  EXPECT_EQ(recipe_support(alike, "fp8-row").how, "alike");
  const std::array<std::string, 3> words = {"forward otherwise; input gradient alike; weight gradient alike",
                                            "forward alike; input gradient otherwise; weight gradient alike",
                                            "forward alike; input gradient alike; weight gradient otherwise"};
  for (std::size_t i = 0; i < 3; ++i) {
    AskedEngine one;
    one.different = i + 1;
    EXPECT_EQ(recipe_support(one, "fp8-row").how, words[i]);
  }
}

TEST(DoctorOfThisMachine, ReadsItsMemoryAndItsCacheAsTheyAre) {
  const test::Variable module("QUAVER_CUDA_MODULE", "/nowhere/quaver_cuda.so");
  const test::Variable cache("QUAVER_CACHE_DIR", "/proc");
  const DoctorReport report = examine();
  EXPECT_EQ(report.cache.folder, "/proc");
  EXPECT_EQ(report.cache.problem, "a file cannot be written there");
  std::ifstream file("/proc/meminfo");
  double total = 0, available = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double kilobytes = 0;
    words >> name >> kilobytes;
    if (name == "MemTotal:") total = 1024 * kilobytes;
    if (name == "MemAvailable:") available = 1024 * kilobytes;
  }
  EXPECT_EQ(static_cast<double>(report.cpu.memory), total);
  EXPECT_NEAR(static_cast<double>(report.cpu.memory_available), available, 0.1 * total);
}

TEST(LocalizeByHand, CountsStepsTokensSitesAndProgress) {
  const auto subject = open_subject(test::miniature_config("mxfp4"), [](const std::string&) {});
  subject->trainer().step();
  std::vector<std::pair<Size, Size>> told;
  LocalizeOptions options{.batches = 2, .warmup_steps = 3, .budget = 1, .grouping = Grouping::block};
  options.progress.told = [&](Size done, Size total) { told.emplace_back(done, total); };
  const Localization found = localize(*subject, options);
  EXPECT_EQ(found.step, 4) << "three steps from where it was";
  EXPECT_EQ(found.tokens, 2 * 2 * 8);
  EXPECT_EQ(found.batches, 2);
  ASSERT_EQ(found.trials.size(), 1U);
  EXPECT_EQ(found.trials[0].low_precision_sites, 24) << "two blocks of four layers of three operands";
  EXPECT_EQ(found.trials[0].harm, found.trials[0].effect.harm_at_most(Baseline(*subject, 2, 2).loss()));
  EXPECT_EQ(found.baseline_error, Baseline(*subject, 0, 2).loss_error());
  const PlanEffect first_block = [&] {
    Plan plan = high_precision_plan(subject->plan, subject->config.precision);
    for (std::size_t i = 0; i < 12; ++i) plan.rows[i] = subject->plan.rows[i];
    return Baseline(*subject, 0, 2).effect_of(plan);
  }();
  EXPECT_EQ(found.sites[0].effect.gradient_cosine, first_block.whole.gradient_cosine);
  EXPECT_EQ(found.sites[0].own.cosine, first_block.layers.at(found.sites[0].layer).cosine);
  EXPECT_EQ(found.sites[0].own.error, first_block.layers.at(found.sites[0].layer).error);
  for (const SiteSensitivity& site : found.sites) EXPECT_EQ(site.effect.batches, 2) << site.site;
  ASSERT_FALSE(told.empty());
  // Three steps, then batches of two: twice high precision, two blocks, and ⌈log2 3⌉ + 1 trials.
  for (const auto& [done, total] : told) {
    EXPECT_EQ(total, 3 + 2 * (2 + 2 + 3));
    EXPECT_LE(done, total);
  }
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.front().first, 1);
  EXPECT_EQ(told.back().first, told.back().second);
}

TEST(LocalizeByHand, AWarmUpCutShortByTheRunsEndCountsWhole) {
  Config config = test::miniature_config("mxfp4");
  config.train.steps = 1;
  const auto subject = open_subject(config, [](const std::string&) {});
  std::vector<Size> told;
  LocalizeOptions options{.batches = 1, .warmup_steps = 5, .budget = 1, .grouping = Grouping::block};
  options.progress.told = [&](Size done, Size) { told.push_back(done); };
  EXPECT_EQ(localize(*subject, options).step, 1);
  ASSERT_GE(told.size(), 2U);
  EXPECT_EQ(told[0], 1);
  EXPECT_EQ(told[1], 5 + 1) << "as if all five had been made";
}

TEST(StudyBaseline, AddsUpWhatItsBatchesShowAndRefusesABrokenModel) {
  const auto subject = open_subject(test::miniature_config("mxfp4"), [](const std::string&) {});
  const auto seen = [&](Size batches) {
    return Baseline(*subject, 0, batches).effect_of(subject->plan).sites.at("blocks.0.mlp.up/x").count;
  };
  EXPECT_EQ(seen(1), 2U * 8U * 32U);
  EXPECT_EQ(seen(3), 3U * 2U * 8U * 32U);
  Parameters& parameters = subject->trainer().model().parameters();
  parameters.find("blocks.0.norm1.weight").weight.f32()[0] = NAN;
  EXPECT_THROW(Baseline(*subject, 0, 1), Error);
}

TEST(CalibrationByHand, TakesAnotherBatchEachTimeWithoutAWarmUp) {
  const auto subject = open_subject(test::miniature_config("mxfp4"), [](const std::string&) {});
  const Calibration made = calibrate(*subject, {.batches = 2, .warmup_steps = 0});
  EXPECT_NE(made.losses[0], made.losses[1]);
}

TEST(DriftOfRanges, RangesThatAreNoPositiveNumberWereNotSeen) {
  Calibration now;
  now.sites.emplace_back().site = "a/x";
  now.sites[0].seen.amax = 2;
  EXPECT_TRUE(
      drift_since(R"({"sites": {"a/x": {"scale": 1, "calibration": {"amax": -4}}}})", "old", now).sites.empty());
  const auto negative = drift_since(R"({"sites": {"a/x": {"scale": -1, "calibration": {"amax": 4}}}})", "old", now);
  ASSERT_EQ(negative.sites.size(), 1U);
  EXPECT_TRUE(std::isnan(negative.sites[0].headroom_log2));
}

}  // namespace
}  // namespace quaver
