// What `compare` says of runs whose results are made up: the table, the JSON and the report say the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/compare.h"

namespace quaver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Cells = std::vector<std::string>;

SeedRun made_up(std::uint64_t seed, double validation_loss) {
  SeedRun run;
  run.seed = seed;
  run.result.final_train_loss = 9;
  run.result.final_validation_loss = validation_loss;
  run.result.format_shares = {{"bf16", 1.0}};
  return run;
}

Contender contender_of(const std::string& recipe, std::vector<SeedRun> runs) {
  Contender contender{recipe, {}, std::move(runs)};
  contender.config.precision.recipe = recipe;
  return contender;
}

Contender contender_of(const std::string& recipe, double validation_loss) {
  return contender_of(recipe, {made_up(1, validation_loss)});
}

std::string table_of(const std::vector<Contender>& contenders) { return comparison_table(compare(contenders, "")); }
std::string page_of(const std::vector<Contender>& contenders) {
  return comparison_report(contenders, compare(contenders, ""));
}
nlohmann::json json_of(const std::vector<Contender>& contenders) {
  return nlohmann::json::parse(comparison_json(compare(contenders, "")));
}

Cells cells_of(const std::string& table, std::size_t line) {
  std::istringstream lines(table);
  std::string text;
  for (std::size_t i = 0; i <= line; ++i) std::getline(lines, text);
  Cells cells;
  for (std::size_t at = text.find_first_not_of(' '); at < text.size();) {  // columns are two spaces apart, or more
    const std::size_t end = std::min(text.find("  ", at), text.size());
    if (end > at) cells.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(' ', end);
  }
  return cells;
}

SeedRun full_run(std::uint64_t seed) {
  SeedRun run = made_up(seed, 2.5);
  RunResult& result = run.result;
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
  return run;
}

TEST(ComparisonTable, HasEveryFigureInItsUnit) {
  const std::string table = table_of({contender_of("fp32", 2.0), contender_of("fp8-delayed", {full_run(1)})});
  EXPECT_EQ(cells_of(table, 2), (Cells{"fp8-delayed", "2.5000", "+25.00", "4.00 MiB", "7.00 MiB", "6.00 MiB", "75",
                                       "42.1", "48.6k", "3", "2"}))
      << table;
  EXPECT_EQ(cells_of(table, 1).at(2), "base");
  EXPECT_THAT(table, AllOf(HasSubstr("base: fp32 (the highest precision)\n"), Not(HasSubstr("±"))));
}

TEST(ComparisonTable, MarksAnotherParametrization) {
  EXPECT_THAT(table_of({contender_of("fp32", 2.0), contender_of("fp8-unit", 3.0)}),
              AllOf(HasSubstr("+50.00*"), HasSubstr("* another parametrization")));
  EXPECT_THAT(table_of({contender_of("fp32", 2.0), contender_of("mxfp8", 3.0)}), Not(HasSubstr("*")));
}

TEST(ComparisonTable, NamesTheBestPossibleLossWhereItIsKnown) {
  Contender contender = contender_of("fp32", 2.0);
  EXPECT_THAT(table_of({contender}), Not(HasSubstr("best possible")));
  contender.runs[0].result.best_loss = 1.23456;
  EXPECT_THAT(table_of({contender}), HasSubstr("best possible loss: 1.2346\n"));
}

TEST(ComparisonTable, SaysWhichBaseWasChosenAndWhichARecipeHasOfItsOwn) {
  std::vector<Contender> contenders{contender_of("fp32", 2.0), contender_of("bf16", 2.0),
                                    contender_of("fp8-unit", 3.0)};
  EXPECT_THAT(comparison_table(compare(contenders, "bf16")), HasSubstr("base: bf16 (chosen with --base)\n"));
  contenders[1].label = "bf16@umup";
  contenders[1].config.model.parametrization = Parametrization::umup;
  EXPECT_THAT(table_of(contenders), HasSubstr("base: fp32 (the highest precision); fp8-unit against bf16@umup"));
}

// 3 and 5 have mean 4 and σ √2; against 2 and 4 they are worse by 50 and 25 %: mean 37.5, σ 12.5 √2 = 17.68.
std::vector<Contender> two_seeds() {
  std::vector<Contender> contenders{contender_of("fp32", {made_up(1, 2), made_up(7, 4)}),
                                    contender_of("fp8-delayed", {full_run(1), full_run(7)})};
  contenders[1].runs[0].result.final_validation_loss = 3;
  contenders[1].runs[1].result.final_validation_loss = 5;
  contenders[1].runs[1].result.seconds_per_step = 0.0621;
  return contenders;
}

TEST(Seeds, AreMeanAndDeviationInTheTableWithARowEach) {
  const std::string table = table_of(two_seeds());
  EXPECT_EQ(cells_of(table, 4), (Cells{"fp8-delayed", "4.0000 ± 1.4142", "+37.50 ± 17.68", "4.00 MiB", "7.00 MiB",
                                       "6.00 MiB", "75", "52.1 ± 14.1", "48.6k", "6", "4"}))
      << table;
  EXPECT_EQ(cells_of(table, 5), (Cells{"seed 1", "3.0000", "+50.00", "42.1", "48.6k", "3", "2"}));
  EXPECT_EQ(cells_of(table, 6), (Cells{"seed 7", "5.0000", "+25.00", "62.1", "48.6k", "3", "2"}));
  EXPECT_THAT(table, AllOf(HasSubstr("mean ± σ (n − 1) of 2 seeds"), HasSubstr("at the same seed")));
}

TEST(Seeds, AreTheSameNumbersInTheJson) {
  const auto list = json_of(two_seeds());
  EXPECT_EQ(list[0]["is_base"], true);
  const auto& object = list[1];
  EXPECT_EQ(object["is_base"], false);
  EXPECT_EQ(object["baseline"], "fp32");
  EXPECT_EQ(object["loss_kind"], "validation");
  EXPECT_EQ(object["final_loss"], 4.0);
  EXPECT_NEAR(object["final_loss_deviation"], std::sqrt(2), 1e-12);
  EXPECT_EQ(object["final_losses"], (std::vector<double>{3, 5}));
  EXPECT_NEAR(object["gap_percent"], 37.5, 1e-12);
  EXPECT_NEAR(object["gap_percent_deviation"], 12.5 * std::sqrt(2), 1e-12);
  EXPECT_NEAR(object["seconds_per_step"], 0.0521, 1e-12);
  EXPECT_EQ(object["overflows"], 6);
  EXPECT_EQ(object["skipped"], 4);
  ASSERT_EQ(object["seeds"].size(), 2U);
  EXPECT_EQ(object["seeds"][1]["seed"], 7);
  EXPECT_EQ(object["seeds"][1]["status"], "completed");
  EXPECT_EQ(object["seeds"][1]["final_loss"], 5.0);
  EXPECT_EQ(object["seeds"][1]["final_train_loss"], 9.0);
  EXPECT_EQ(object["seeds"][1]["gap_percent"], 25.0);
}

TEST(Seeds, AreTheSameNumbersOnThePageAndHaveABandInItsChart) {
  std::vector<Contender> contenders = two_seeds();
  for (Contender& contender : contenders) {
    for (SeedRun& run : contender.runs) {
      const double loss = *run.result.final_validation_loss;
      run.result.losses = {{1, loss}, {2, loss}};
    }
  }
  const std::string page = page_of(contenders);
  EXPECT_THAT(page, AllOf(HasSubstr(">4.0000 ± 1.4142<"), HasSubstr(">+37.50 ± 17.68<"), HasSubstr(">base<")));
  EXPECT_THAT(page, AllOf(HasSubstr("Every seed"), HasSubstr(">fp8-delayed, seed 7<"), HasSubstr(">5.0000<")));
  EXPECT_THAT(page, HasSubstr("base: fp32 (the highest precision)"));
  EXPECT_THAT(page, AllOf(HasSubstr("class=\"band s0\""), HasSubstr("class=\"band s1\"")));
  EXPECT_THAT(page, HasSubstr("line: mean of up to 2 seeds, band: ± σ"));
  EXPECT_THAT(page, AllOf(HasSubstr("fp32 (base) ± σ: 2 points, from 3 to 3."),
                          HasSubstr("fp8-delayed ± σ: 2 points, from 4 to 4.")));
}

TEST(Seeds, ThatDidNotCompleteAreListedEverywhere) {
  std::vector<Contender> contenders = two_seeds();
  contenders[1].runs[1].status = SeedStatus::diverged;
  contenders[1].runs[1].failure = "the run diverged at step 12";
  const std::string table = table_of(contenders);
  EXPECT_EQ(cells_of(table, 4).at(1), "3.0000 (1 of 2)");
  EXPECT_EQ(cells_of(table, 6), (Cells{"seed 7", "diverged"}));
  const std::string note = "fp8-delayed, seed 7: diverged and left out of the means: the run diverged at step 12";
  EXPECT_THAT(table, HasSubstr(note));
  EXPECT_THAT(page_of(contenders), AllOf(HasSubstr(note), HasSubstr(">diverged<")));
  const auto object = json_of(contenders)[1];
  EXPECT_EQ(object["completed"], 1);
  EXPECT_EQ(object["final_loss"], 3.0);
  EXPECT_TRUE(object["final_loss_deviation"].is_null());
  EXPECT_TRUE(object["final_losses"][1].is_null());
  EXPECT_EQ(object["seeds"][1]["status"], "diverged");
  EXPECT_EQ(object["seeds"][1]["failure"], "the run diverged at step 12");
}

TEST(Seeds, MayAllFailInAllRecipes) {
  std::vector<Contender> contenders = two_seeds();
  for (Contender& contender : contenders) {
    for (SeedRun& run : contender.runs) run.status = SeedStatus::failed;
  }
  EXPECT_EQ(cells_of(table_of(contenders), 1).at(1), "– (0 of 2)");
  EXPECT_THAT(page_of(contenders), HasSubstr("no data"));
}

TEST(Seeds, MayAllFail) {
  std::vector<Contender> contenders = two_seeds();
  for (SeedRun& run : contenders[1].runs) run.status = SeedStatus::failed;
  EXPECT_EQ(cells_of(table_of(contenders), 4).at(1), "– (0 of 2)");
  EXPECT_THAT(page_of(contenders), HasSubstr("fp8-delayed"));
  EXPECT_TRUE(json_of(contenders)[1]["final_loss"].is_null());
}

TEST(ComparisonJson, HasTheFiguresInPlainUnits) {
  const auto list = json_of({contender_of("fp32", 2.0), contender_of("fp8-delayed", {full_run(1)})});
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["baseline"], "fp32");
  EXPECT_EQ(list[0]["gap_percent"], 0.0);
  const auto& object = list[1];
  EXPECT_EQ(object["recipe"], "fp8-delayed");
  EXPECT_EQ(object["final_loss"], 2.5);
  EXPECT_EQ(object["gap_percent"], 25.0);
  EXPECT_TRUE(object["gap_percent_deviation"].is_null());
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
  const std::string page = page_of(contenders);
  const std::size_t begin = page.find("Validation loss against the base");
  if (begin == std::string::npos) return "";
  return page.substr(begin, page.find("</svg>", begin) - begin);
}

TEST(ComparisonReport, DrawsWhatIsWorseAboveZero) {
  std::vector<Contender> contenders{contender_of("fp32", 2.0), contender_of("fp8-delayed", 2.5)};
  contenders[0].runs[0].result.validation = {{10, {.loss = 3.0}}, {20, {.loss = 2.0}}};
  contenders[1].runs[0].result.validation = {{10, {.loss = 3.25}}, {20, {.loss = 2.5}}, {30, {.loss = 9.0}}};
  const std::string worse = gap_figure(contenders);
  ASSERT_FALSE(worse.empty());
  EXPECT_THAT(worse, HasSubstr(">0.5<"));
  EXPECT_THAT(worse, Not(HasSubstr(">-0."))) << worse;
  EXPECT_THAT(worse, Not(HasSubstr(">−0."))) << worse;
  std::swap(contenders[0].runs[0].result.validation, contenders[1].runs[0].result.validation);
  const std::string better = gap_figure(contenders);
  EXPECT_TRUE(better.find(">-0.") != std::string::npos || better.find(">−0.") != std::string::npos) << better;
  EXPECT_THAT(better, Not(HasSubstr(">0.5<")));
}

// Steps of 100 tokens. The loss falls by one a step: fp32 from 4 to 1 in a second each, fp8 from 3 in half of one.
std::vector<Contender> falling() {
  std::vector<Contender> contenders{contender_of("fp32", {made_up(1, 2), made_up(7, 2)}),
                                    contender_of("fp8-delayed", {made_up(1, 2), made_up(7, 2)})};
  for (SeedRun& run : contenders[0].runs) run.result.losses = {{1, 4, 1}, {2, 3, 2}, {3, 2, 3}, {4, 1, 4}};
  for (SeedRun& run : contenders[1].runs) run.result.losses = {{1, 3, 0.5}, {2, 2, 1}, {3, 1, 1.5}, {4, 1, 2}};
  for (Contender& contender : contenders) {
    for (SeedRun& run : contender.runs) {
      run.result.steps = 4;
      run.result.tokens_per_step = 100;
    }
  }
  return contenders;
}

TEST(TimeToLoss, IsASecondTableWithRatiosToTheBase) {
  std::vector<Contender> contenders = falling();
  const std::string table = table_of(contenders);
  const std::string below = table.substr(table.find("\n\n") + 2);
  EXPECT_EQ(cells_of(below, 0),
            (Cells{"recipe", "tokens to base loss", "of base's", "time to base loss", "of base's"}));
  EXPECT_EQ(cells_of(below, 1), (Cells{"fp32", "400", "1.00× ± 0.00", "4.0s", "1.00× ± 0.00"}));
  EXPECT_EQ(cells_of(below, 2), (Cells{"fp8-delayed", "300", "0.75× ± 0.00", "1.5s", "0.38× ± 0.00"}));
  EXPECT_THAT(table, HasSubstr("the base's final training loss at the same seed"));
  const auto object = json_of(contenders)[1];
  EXPECT_EQ(object["to_base_loss"]["reached"], 2);
  EXPECT_EQ(object["to_base_loss"]["tokens_ratio"], 0.75);
  EXPECT_EQ(object["to_base_loss"]["seconds_ratio_deviation"], 0.0);
  EXPECT_EQ(object["seeds"][0]["to_base_loss"]["steps"], 3);
  EXPECT_EQ(object["seeds"][0]["to_base_loss"]["seconds"], 1.5);
  const std::string page = page_of(contenders);
  EXPECT_THAT(page,
              AllOf(HasSubstr("Time to loss"), HasSubstr(">0.75× ± 0.00<"), HasSubstr("Training loss against time")));
}

TEST(TimeToLoss, OfLessThanASecondIsInMilliseconds) {
  std::vector<Contender> contenders = falling();
  for (Contender& contender : contenders) {
    for (SeedRun& run : contender.runs) {
      for (LossPoint& point : run.result.losses) point.seconds /= 100;
    }
  }
  EXPECT_THAT(table_of(contenders), AllOf(HasSubstr(" 40ms "), HasSubstr(" 15ms ")));
}

TEST(TimeToLoss, SaysWhichSeedsDidNotReachIt) {
  std::vector<Contender> contenders = falling();
  contenders[1].runs[1].result.losses.back().loss = contenders[1].runs[1].result.losses[2].loss = 1.5;
  EXPECT_THAT(table_of(contenders), AllOf(HasSubstr("300 (1 of 2)"), HasSubstr("over the seeds that reached it")));
  EXPECT_TRUE(json_of(contenders)[1]["seeds"][1]["to_base_loss"].is_null());
  for (LossPoint& point : contenders[1].runs[0].result.losses) point.loss += 1;
  EXPECT_THAT(table_of(contenders), HasSubstr("not reached"));
  EXPECT_EQ(json_of(contenders)[1]["to_base_loss"]["reached"], 0);
  EXPECT_TRUE(json_of(contenders)[1]["to_base_loss"]["tokens"].is_null());
  EXPECT_THAT(page_of(contenders), HasSubstr(">not reached<"));
}

TEST(TimeToLoss, IsLeftOutWhereThereIsNothingToCompare) {
  std::vector<Contender> contenders = falling();
  contenders.pop_back();
  EXPECT_THAT(table_of(contenders), Not(HasSubstr("to base loss")));
  EXPECT_THAT(table_of({contender_of("fp32", 2.0), contender_of("bf16", 2.0)}), Not(HasSubstr("to base loss")));
}

TEST(ComparisonReport, SaysWhatWasCompared) {
  Contender contender = contender_of("fp32", {made_up(1, 2.0), made_up(2, 2.0)});
  contender.config.preset = "small";
  contender.config.train.steps = 77;
  contender.config.train.batch = 6;
  contender.config.train.accumulation = 4;
  EXPECT_THAT(page_of({contender}), HasSubstr("small · 77 steps of 24 sequences · 2 seeds"));
}

TEST(ComparisonTable, ClassifiersHaveAColumnOfAccuracies) {
  std::vector<Contender> contenders;
  for (const char* recipe : {"fp32", "fp8-block"}) {
    SeedRun first = made_up(1, 0.5);
    SeedRun second = made_up(2, 0.5);
    first.result.final_validation_accuracy = 0.75;
    second.result.final_validation_accuracy = 0.875;
    first.result.best_accuracy = 0.96875;
    first.result.validation = {{50, {.loss = 1, .accuracy = 0.5}}, {100, {.loss = 0.5, .accuracy = 0.75}}};
    second.result.validation = first.result.validation;
    contenders.push_back(contender_of(recipe, {first, second}));
    contenders.back().config.model.family = Family::mlp;
    contenders.back().config.data.kind = DataKind::synthetic_images;
  }
  const std::string table = table_of(contenders);
  EXPECT_EQ(cells_of(table, 0).at(3), "accuracy %");
  EXPECT_EQ(cells_of(table, 1).at(3), "81.25 ± 8.84");
  EXPECT_EQ(cells_of(table, 2).at(3), "75.00") << "the first seed";
  EXPECT_THAT(table,
              AllOf(HasSubstr("nats per image"), HasSubstr("images/s"), HasSubstr("best possible accuracy: 96.88 %")));
  EXPECT_EQ(json_of(contenders)[1]["final_validation_accuracy"], 0.8125);
  EXPECT_EQ(json_of(contenders)[1]["seeds"][1]["final_validation_accuracy"], 0.875);
  EXPECT_NEAR(json_of(contenders)[1]["final_validation_accuracy_deviation"], 0.125 / std::sqrt(2), 1e-12);
  EXPECT_THAT(page_of(contenders), AllOf(HasSubstr("accuracy %"), HasSubstr("blocks.0.linear")));
  EXPECT_THAT(page_of(contenders),
              AllOf(HasSubstr("Validation accuracy"), HasSubstr(">87.50<"), HasSubstr(" images · ")));
  EXPECT_THAT(page_of({contender_of("fp32", 2.0)}), Not(HasSubstr("Validation accuracy")));
  EXPECT_THAT(table_of({contender_of("fp32", 2.0)}), Not(HasSubstr("accuracy")));
}

}  // namespace
}  // namespace quaver
