// What `compare` says of runs whose results are made up: losses, gaps, baselines, the table, the JSON and the report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/compare.h"

namespace quaver {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunResult result_of(double train_loss, std::optional<double> validation_loss) {
  RunResult result;
  result.final_train_loss = train_loss;
  result.final_validation_loss = validation_loss;
  result.format_shares = {{"bf16", 1.0}};
  return result;
}

Contender contender_of(const std::string& recipe, std::vector<RunResult> runs) {
  Contender contender{recipe, {}, std::move(runs)};
  contender.config.precision.recipe = recipe;
  return contender;
}

Contender contender_of(const std::string& recipe, double validation_loss) {
  return contender_of(recipe, {result_of(9, validation_loss)});
}

std::vector<std::string> cells_of(const std::string& table, std::size_t line) {
  std::istringstream lines(table);
  std::string text;
  for (std::size_t i = 0; i <= line; ++i) std::getline(lines, text);
  std::vector<std::string> cells;
  for (std::size_t at = 0; at < text.size();) {  // columns are two spaces apart, or more
    const std::size_t end = std::min(text.find("  ", at), text.size());
    if (end > at) cells.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(' ', end);
  }
  return cells;
}

TEST(Contender, IsJudgedByItsValidationLossWhereItHasOne) {
  EXPECT_EQ(contender_of("bf16", {result_of(1, 3.0)}).final_loss(), 3);
  EXPECT_EQ(contender_of("bf16", {result_of(1, std::nullopt)}).final_loss(), 1);
}

TEST(Contender, IsTheMeanOverItsSeeds) {
  const Contender contender = contender_of("bf16", {result_of(7, 2.0), result_of(8, 2.5), result_of(9, 3.6)});
  EXPECT_NEAR(contender.final_loss(), 2.7, 1e-12);
  EXPECT_NEAR(contender.loss_spread(), 1.6, 1e-12);
  EXPECT_EQ(contender_of("bf16", 2.0).loss_spread(), 0);
}

TEST(Gap, IsPositiveWhereTheLossIsHigherAndAShareOfTheBaselines) {
  const std::vector<Contender> contenders{contender_of("fp32", 2.0), contender_of("fp8-delayed", 2.5),
                                          contender_of("mxfp8", 1.9)};
  EXPECT_EQ(gap_percent(contenders, 0), 0);
  EXPECT_NEAR(gap_percent(contenders, 1), 25, 1e-12);
  EXPECT_NEAR(gap_percent(contenders, 2), -5, 1e-12);
}

TEST(Baseline, IsTheWidestOfAll) {
  const std::vector<const char*> widths{"fp32", "tf32", "fp16", "bf16", "fp8-delayed"};
  for (std::size_t widest = 0; widest + 1 < widths.size(); ++widest) {
    std::vector<Contender> contenders;
    for (std::size_t i = widths.size(); i-- > widest;) contenders.push_back(contender_of(widths[i], 2));
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      EXPECT_EQ(contenders[baseline_of(contenders, i)].label, widths[widest]);
    }
  }
  const std::vector<Contender> narrow{contender_of("mxfp8", 2), contender_of("fp8-delayed", 2)};
  EXPECT_EQ(baseline_of(narrow, 1), 0U) << "where none is wide, the first";
}

// Unit-scaled runs are compared among themselves, if one of them is wide.
TEST(Baseline, IsOfTheSameParametrizationWhereThereIsOne) {
  std::vector<Contender> contenders{contender_of("fp32", 2.0), contender_of("bf16", 2.0),
                                    contender_of("fp8-unit", 3.0)};
  EXPECT_EQ(baseline_of(contenders, 2), 0U);
  EXPECT_THAT(comparison_table(contenders), HasSubstr("+50.00*"));
  EXPECT_THAT(comparison_table(contenders), HasSubstr("* another parametrisation"));
  contenders[1].config.model.parametrization = Parametrization::umup;
  EXPECT_EQ(baseline_of(contenders, 2), 1U);
  EXPECT_EQ(baseline_of(contenders, 1), 1U);
  EXPECT_EQ(baseline_of(contenders, 0), 0U);
  EXPECT_THAT(comparison_table(contenders), Not(HasSubstr("*")));
}

RunResult full_result() {
  RunResult result = result_of(9, 2.5);
  result.memory.weights = 3 << 20;
  result.memory.quantized_weights = 1 << 20;
  result.memory.gradients = 5 << 20;
  result.memory.optimizer = 6 << 20;
  result.memory.activations = 7 << 20;
  result.memory.scratch = 8 << 20;
  result.seconds_per_step = 0.0421;
  result.tokens_per_second = 48'600;
  result.overflows = 3;
  result.skipped = 2;
  result.format_shares = {{"e4m3", 0.75}, {"bf16", 0.25}};
  return result;
}

TEST(ComparisonTable, HasEveryFigureInItsUnit) {
  Contender narrow = contender_of("fp8-delayed", {full_result(), full_result()});
  const std::string table = comparison_table({contender_of("fp32", 2.0), narrow});
  EXPECT_EQ(cells_of(table, 2), (std::vector<std::string>{"fp8-delayed", "2.5000", "+25.00", "4.00 MiB", "7.00 MiB",
                                                          "6.00 MiB", "75", "42.1", "48.6k", "6", "4"}))
      << table;
  EXPECT_EQ(cells_of(table, 1).at(2), "–");
}

TEST(ComparisonTable, NamesTheBestPossibleLossWhereItIsKnown) {
  Contender contender = contender_of("fp32", 2.0);
  EXPECT_THAT(comparison_table({contender}), Not(HasSubstr("best possible")));
  contender.runs[0].best_loss = 1.23456;
  EXPECT_THAT(comparison_table({contender}), HasSubstr("best possible loss: 1.2346\n"));
}

TEST(ComparisonJson, HasTheFiguresInPlainUnits) {
  Contender narrow = contender_of("fp8-delayed", {full_result(), result_of(9, 3.5)});
  const auto list = nlohmann::json::parse(comparison_json({contender_of("fp32", 2.0), narrow}));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["baseline"], "fp32");
  EXPECT_EQ(list[0]["gap_percent"], 0.0);
  const auto& object = list[1];
  EXPECT_EQ(object["recipe"], "fp8-delayed");
  EXPECT_EQ(object["baseline"], "fp32");
  EXPECT_EQ(object["final_loss"], 3.0);
  EXPECT_EQ(object["final_losses"], (std::vector<double>{2.5, 3.5}));
  EXPECT_EQ(object["gap_percent"], 50.0);
  EXPECT_EQ(object["seconds_per_step"], 0.0421);
  EXPECT_EQ(object["tokens_per_second"], 48'600.0);
  EXPECT_EQ(object["weights_bytes"], 4 << 20);
  EXPECT_EQ(object["activations_bytes"], 7 << 20);
  EXPECT_EQ(object["optimizer_bytes"], 6 << 20);
  EXPECT_EQ(object["flops_by_format"]["e4m3"], 0.75);
  EXPECT_EQ(object["overflows"], 3);
  EXPECT_EQ(object["skipped"], 2);
}

// The chart of gaps between the first heading of its kind and the next figure.
std::string gap_figure(const std::vector<Contender>& contenders) {
  const std::string page = comparison_report(contenders);
  const std::size_t begin = page.find("Validation loss against the baseline");
  if (begin == std::string::npos) return "";
  return page.substr(begin, page.find("</svg>", begin) - begin);
}

TEST(ComparisonReport, DrawsWhatIsWorseAboveZero) {
  std::vector<Contender> contenders{contender_of("fp32", 2.0), contender_of("fp8-delayed", 2.5)};
  contenders[0].runs[0].validation = {{10, 3.0}, {20, 2.0}};
  contenders[1].runs[0].validation = {{10, 3.25}, {20, 2.5}, {30, 9.0}};
  const std::string worse = gap_figure(contenders);
  ASSERT_FALSE(worse.empty());
  EXPECT_THAT(worse, HasSubstr(">0.5<"));
  EXPECT_THAT(worse, Not(HasSubstr(">-0."))) << worse;
  EXPECT_THAT(worse, Not(HasSubstr(">−0."))) << worse;
  std::swap(contenders[0].runs[0].validation, contenders[1].runs[0].validation);
  const std::string better = gap_figure(contenders);
  EXPECT_TRUE(better.find(">-0.") != std::string::npos || better.find(">−0.") != std::string::npos) << better;
  EXPECT_THAT(better, Not(HasSubstr(">0.5<")));
}

TEST(ComparisonReport, SaysWhatWasCompared) {
  Contender contender = contender_of("fp32", {result_of(1, 2.0), result_of(1, 2.0)});
  contender.config.preset = "small";
  contender.config.train.steps = 77;
  contender.config.train.batch = 6;
  contender.config.train.accumulation = 4;
  EXPECT_THAT(comparison_report({contender}), HasSubstr("small · 77 steps of 24 sequences · 2 seeds"));
}

}  // namespace
}  // namespace quaver
