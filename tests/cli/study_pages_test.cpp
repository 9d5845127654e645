// The pages that `calibrate`, `localize` and `compare` write: every figure, table and chart, from results made up.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <regex>

#include "cli/calibrate.h"
#include "cli/compare.h"
#include "cli/localize.h"
#include "precision/recipe.h"

namespace quaver {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The chart of a title, as SVG; empty where there is none.
std::string chart_titled(const std::string& page, const std::string& title) {
  const std::size_t begin = page.find("<title>" + title + "</title><desc>");
  return begin == std::string::npos ? "" : page.substr(begin, page.find("</svg>", begin) - begin);
}

// What the chart says to readers who cannot see it.
std::string words_of_chart(const std::string& page, const std::string& title) {
  const std::string chart = chart_titled(page, title);
  const std::size_t begin = chart.find("<desc>");
  return begin == std::string::npos ? "" : chart.substr(begin + 6, chart.find("</desc>") - begin - 6);
}

// Cells of the rows of a table, by what their first one is.
std::vector<std::string> cells_of_row(const std::string& page, const std::string& first) {
  const std::regex row("<th scope=\"row\"[^>]*>" + std::regex_replace(first, std::regex(R"([.()+])"), R"(\$&)") +
                       "</th>((?:<td[^>]*>[^<]*</td>)*)");
  std::smatch found;
  if (!std::regex_search(page, found, row)) return {};
  const std::string cells = found[1];
  std::vector<std::string> texts;
  const std::regex cell("<td[^>]*>([^<]*)</td>");
  for (std::sregex_iterator at(cells.begin(), cells.end(), cell), end; at != end; ++at) texts.push_back((*at)[1]);
  return texts;
}

// Magnitudes of a hundred elements in each binade below 1.
SiteRange seen_range(const std::string& layer, Role role, float amax) {
  SiteRange range;
  range.site = layer + "/" + std::string(name_of(role));
  range.layer = layer;
  range.role = role;
  range.spec = make_recipe("fp8-static", {}).of(role);
  range.seen.full = true;
  for (int i = 1; i <= 4; ++i) range.seen.binades[static_cast<std::size_t>(-i - lowest_binade)] = 100;
  range.seen.count = 400;
  range.seen.amax = amax;
  range.seen.min_nonzero = 0.0625F;
  range.batch_amax = {amax / 4, amax / 2, amax};
  range.threshold = 0.75F * amax;
  range.scale = 224;
  return range;
}

Calibration seen_ranges() {
  Calibration calibration;
  calibration.recipe = "fp8-static";
  calibration.source = "tiny, seed 1";
  calibration.hash = "0123abcd";
  calibration.first_step = 10;
  calibration.last_step = 30;
  calibration.steps = {10, 20, 30};
  calibration.losses = {3.5, 3, 2.25};
  calibration.tokens = 1536;
  calibration.percentile = 99.9;
  calibration.margin = 2;
  for (const char* layer : {"a", "b"}) {
    for (const Role role : {Role::x, Role::w, Role::dy}) calibration.sites.push_back(seen_range(layer, role, 1));
  }
  calibration.sites[1].scale = 0;  // kept in high precision
  calibration.sites[3].seen.amax = 8;
  calibration.sites[3].threshold = 6;
  calibration.sites[5].seen.amax = 0;
  return calibration;
}

TEST(CalibrationPage, SaysWhatWasMeasured) {
  const std::string page = calibration_report(seen_ranges(), std::nullopt, "");
  for (const char* part :
       {"tiny, seed 1 · 3 batches, 1.54k tokens · for fp8-static", "10 to 30, trained in between", "3 (1536 tokens)",
        "3.5000 first, 2.2500 last batch", "for fp8-static: percentile 99.9, 2^2 of headroom", "0123abcd"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr("Drift")));
  Calibration still = seen_ranges();
  still.last_step = still.first_step;
  const std::string still_page = calibration_report(still, std::nullopt, "");
  EXPECT_THAT(still_page, Not(HasSubstr("trained in between")));
  EXPECT_THAT(words_of_chart(still_page, "Largest magnitude, batch by batch"), HasSubstr("against batch."));
}

TEST(CalibrationPage, HasARowOfEachSite) {
  const Calibration calibration = seen_ranges();
  const std::string page = calibration_report(calibration, std::nullopt, "");
  const PercentileEffect effect = effect_of(calibration.sites[3], 99.9, 2);
  const std::vector<std::string> scaled = cells_of_row(page, "b/x");
  ASSERT_EQ(scaled.size(), 8U) << page;
  EXPECT_EQ(scaled[0], "e4m3");
  EXPECT_EQ(scaled[1], "8");
  EXPECT_EQ(scaled[2], "6");
  EXPECT_EQ(scaled[3], "224");
  EXPECT_EQ(scaled[4], fmt::format("{:.4g}", calibration.sites[3].seen.rms()));
  EXPECT_EQ(scaled[5], fmt::format("{:.4f}", effect.saturated_percent));
  EXPECT_EQ(scaled[6], fmt::format("{:.3f}", effect.underflow_percent));
  EXPECT_EQ(scaled[7], fmt::format("{:.1f}", effect.sqnr_db));
  const std::vector<std::string> uncast = cells_of_row(page, "a/w");
  ASSERT_EQ(uncast.size(), 8U);
  EXPECT_EQ(uncast[3], "high precision");
  EXPECT_EQ(uncast[7], "–");
}

TEST(CalibrationPage, DrawsRangesInTheFormat) {
  const std::string page = calibration_report(seen_ranges(), std::nullopt, "");
  // The largest of layer a is 224, 2^7.8; of layer b eight times that.
  const std::string words = words_of_chart(page, "x: inputs in e4m3");
  EXPECT_THAT(words,
              HasSubstr("log2 of |x| · scale against layer, in the order they run. largest: 2 points, from 7.8"));
  EXPECT_THAT(words, HasSubstr("to 10.8"));
  const std::string chart = chart_titled(page, "x: inputs in e4m3");
  EXPECT_THAT(chart, AllOf(HasSubstr("largest value"), HasSubstr("smallest normal"), HasSubstr("smallest value")));
  EXPECT_THAT(words_of_chart(page, "w: weights in e4m3"), HasSubstr("largest: 1 point")) << "of a none is scaled";
}

TEST(CalibrationPage, DrawsTheLargestOfEverySite) {
  const std::string page = calibration_report(seen_ranges(), std::nullopt, "");
  const std::string grid = chart_titled(page, "Largest magnitude, log2");
  EXPECT_EQ(words_of_chart(page, "Largest magnitude, log2"), "A grid of 2 rows and 3 columns.");
  EXPECT_THAT(grid, HasSubstr("b · x: 3.0 — b/x: amax 8, rms "));
  EXPECT_THAT(grid, HasSubstr("a · x: 0.0 — a/x: amax 1, rms "));
  EXPECT_THAT(grid, HasSubstr(", scale 224"));
  EXPECT_THAT(grid, HasSubstr("a · w: 0.0 — a/w: "));
  EXPECT_THAT(grid, HasSubstr(", kept in high precision"));
  EXPECT_THAT(grid, HasSubstr("b · dy: 0 — b/dy: amax 0")) << "its logarithm is none";
}

TEST(CalibrationPage, DrawsHowRangesMovedAgainstTheFirst) {
  const std::string title = "Largest magnitude, batch by batch";
  const std::string page = calibration_report(seen_ranges(), std::nullopt, "");
  EXPECT_THAT(words_of_chart(page, title),
              HasSubstr("binades against the first against step. x, median over layers: 3 points, from 0 to 2."));
  Calibration two = seen_ranges();
  two.steps = {10, 30};
  EXPECT_THAT(words_of_chart(calibration_report(two, std::nullopt, ""), title), HasSubstr("2 points, from 0 to 1."));
  two.steps = {10};
  EXPECT_EQ(chart_titled(calibration_report(two, std::nullopt, ""), title), "") << "one batch does not move";
}

TEST(CalibrationPage, DrawsDrift) {
  Drift drift;
  for (int i = 0; i < 30; ++i) drift.sites.push_back({"s" + std::to_string(i), 1, 4, 2, i == 0 ? -0.5 : 0.5});
  drift.sites[1].binades = -1.25;
  const std::string page = calibration_report(seen_ranges(), drift, "before.json");
  EXPECT_THAT(page, HasSubstr("Ranges against before.json."));
  const std::string chart = chart_titled(page, "Drift of the ranges");
  EXPECT_THAT(chart, HasSubstr("s0: 2. s1: −1.25. s2: 2."));
  EXPECT_THAT(chart, HasSubstr("s23: 2."));
  EXPECT_THAT(chart, Not(HasSubstr("s24")));
  const std::size_t marked = chart.find("beyond the earlier scale");
  EXPECT_NE(marked, std::string::npos);
  EXPECT_EQ(chart.find("beyond the earlier scale", marked + 1), std::string::npos) << "the first alone saturates";
  EXPECT_THAT(cells_of_row(page, "s0"), ElementsAre("1", "4", "+2.00", "-0.50"));
  EXPECT_THAT(cells_of_row(page, "s29"), ElementsAre("1", "4", "+2.00", "+0.50")) << "all of them are in the table";
}

TEST(CalibrationWords, TellTheHeadroom) {
  Calibration calibration = seen_ranges();
  EXPECT_THAT(calibration_table(calibration), HasSubstr("with 2 binades of headroom"));
  calibration.margin = 1;
  EXPECT_THAT(calibration_table(calibration), HasSubstr("with 1 binade of headroom"));
  calibration.margin = 0;
  EXPECT_THAT(calibration_table(calibration), HasSubstr("with 0 binades of headroom"));
}

TEST(CalibrationEffects, HaveTheMedianOfThreeLayers) {
  Calibration calibration = seen_ranges();
  calibration.sites = {seen_range("a", Role::dy, 1), seen_range("b", Role::dy, 1), seen_range("c", Role::dy, 1)};
  for (std::size_t i = 0; i < 3; ++i) {
    for (int binade = 5; binade < 20 + 4 * static_cast<int>(i); ++binade) {
      calibration.sites[i].seen.binades[static_cast<std::size_t>(-binade - lowest_binade)] = 100;
      calibration.sites[i].seen.count += 100;
    }
  }
  const std::vector<RoleEffect> effects = role_effects(calibration);
  ASSERT_EQ(effects.size(), 4U);
  std::vector<double> ratios;
  for (const SiteRange& site : calibration.sites) ratios.push_back(effect_of(site, 100, 2).sqnr_db);
  std::sort(ratios.begin(), ratios.end());
  EXPECT_EQ(effects[0].role, Role::dy);
  EXPECT_EQ(effects[0].median_sqnr_db, ratios[1]);
  EXPECT_EQ(effects[0].worst_sqnr_db, ratios[0]);
  EXPECT_LT(ratios[0], ratios[1]);
  const auto json = nlohmann::json::parse(calibration_json(calibration, std::nullopt));
  EXPECT_EQ(json["effects"][0]["median_sqnr_db"], ratios[1]);
  EXPECT_EQ(json["effects"][0]["worst_sqnr_db"], ratios[0]);
  EXPECT_EQ(json["effects"][0]["role"], "dy");
  EXPECT_EQ(json["effects"][0]["worst_site"], effects[0].worst_site);
  EXPECT_EQ(json["effects"][3]["percentile"], 99.0);
  EXPECT_EQ(json["recipe"], "fp8-static");
  EXPECT_EQ(json["source"], "tiny, seed 1");
}

// Layers a … each with x, w and dy; the harm falls from one operand to the next.
Localization many_operands(int layers) {
  Localization found;
  found.recipe = "fp8-current";
  found.source = "tiny, seed 1";
  found.step = 7;
  found.batches = 4;
  found.tokens = 4096;
  found.baseline_loss = 2.5;
  found.baseline_error = 0.125;
  found.budget = 0.0025;
  for (int i = 0; i < 3 * layers; ++i) {
    const Role role = static_cast<Role>(i % 3);
    SiteSensitivity site{.site = "", .layer = std::string("l") + std::to_string(i / 3), .role = role, .recipe = "fp8"};
    site.group = site.site = site.layer + "/" + std::string(name_of(role));
    site.tried = true;
    site.placement = i == 0 ? Placement::high_precision : Placement::as_tried;
    site.harm = 0.02 / (1 << i);
    site.effect = {.loss_change = 0.0123, .loss_error = 0.004, .gradient_cosine = 0.75, .gradient_error = 0.5};
    site.own = {0.625, 1};
    site.sqnr_db = 30.25;
    found.ranking.push_back(found.sites.size());
    found.sites.push_back(site);
  }
  const PlanTrial all{.low_precision_sites = 6,
                      .low_precision_share = 0.9,
                      .effect = found.sites[0].effect,
                      .harm = 0.03,
                      .holds = false};
  const PlanTrial some{.low_precision_sites = 5,
                       .low_precision_share = 0.6,
                       .effect = found.sites[0].effect,
                       .harm = 0.002,
                       .holds = true};
  found.trials = {all, some};
  found.chosen = some;
  return found;
}

TEST(LocalizationWords, ListTwelveOperandsAndCountTheRest) {
  EXPECT_THAT(localization_table(many_operands(4)), Not(HasSubstr("that harm less")));
  const std::string table = localization_table(many_operands(5));
  EXPECT_THAT(table, HasSubstr("\nl3/dy "));
  EXPECT_THAT(table, Not(HasSubstr("\nl4/x ")));
  EXPECT_THAT(table, HasSubstr("… and 3 that harm less\n"));
}

TEST(LocalizationPage, SaysWhatThePlanCosts) {
  const std::string page = localization_report(many_operands(2), "the = \"plan\"");
  for (const char* part :
       {"tiny, seed 1 · fp8-current · 4 batches, 4.10k tokens", "<span>in low precision</span><strong>60.0 %</strong>",
        "<span>harm at most</span><strong>0.2000 %</strong><span>of the loss; budget 0.2500 %</span>",
        "<span>kept in high precision</span><strong>1 of 6</strong>", "<span>loss</span><strong>2.5000</strong>",
        "± 0.1250, in high precision at step 7", "Each operand stored as the recipe says", "the = &quot;plan&quot;"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(cells_of_row(page, "l0/x"), ElementsAre("2.0000", "+1.23e-02", "4.0e-03", "0.750000", "0.5000",
                                                      "0.625000", "30.2", "high precision"));
  EXPECT_EQ(cells_of_row(page, "l1/dy").back(), "fp8");
  EXPECT_THAT(cells_of_row(page, "6 sites in low precision"),
              ElementsAre("90.0", "+1.23e-02", "4.0e-03", "0.750000", "3.0000", "exceeded"));
  EXPECT_EQ(cells_of_row(page, "5 sites in low precision").back(), "holds");
}

TEST(LocalizationPage, DrawsTheMap) {
  Localization found = many_operands(3);
  found.sites[1].tried = false;
  found.sites[1].placement = Placement::high_precision;
  found.sites[4].harm = std::nan("");
  found.sites[8].harm = 0;
  const std::string page = localization_report(found, "");
  const std::string title = "Harm of each operand alone, % of the loss";
  const std::string harm = chart_titled(page, title);
  EXPECT_EQ(words_of_chart(page, title), "A grid of 3 rows and 3 columns.");
  EXPECT_THAT(harm, HasSubstr("l0 · x: 2 — l0/x: harm 2.0000 %, loss +1.23e-02 ± 4.0e-03, gradient cosine 0.750000, of "
                              "its own weight 0.625000, SQNR 30.2 dB, kept in high precision"));
  EXPECT_THAT(harm, HasSubstr("l1 · x: 0.25 — l1/x: harm 0.2500 %"));
  EXPECT_THAT(harm, HasSubstr("l0 · w — l0/w: high precision in the recipe&#39;s own plan"));
  EXPECT_THAT(harm, HasSubstr("l1 · w: not finite — l1/w: harm –"));
  EXPECT_THAT(harm, HasSubstr("l2 · dy: 0 — l2/dy: harm 0.0000 %"));
  const std::string plan = chart_titled(page, "The plan proposed");
  EXPECT_THAT(plan, HasSubstr("l0 · x: kept in high precision — "));
  EXPECT_THAT(plan, HasSubstr("l0 · w: high precision in the recipe — "));
  EXPECT_THAT(plan, HasSubstr("l0 · dy: fp8 — "));
}

TEST(LocalizationPage, DrawsTheTwentyMostHarmfulInPercent) {
  Localization found = many_operands(8);
  found.sites[2].harm = INFINITY;
  const std::string page = localization_report(found, "");
  const std::string words = words_of_chart(page, "Most harmful operands");
  EXPECT_THAT(words, HasSubstr("% of the loss. l0/x: 2. l0/w: 1. l1/x: 0.25."));
  EXPECT_THAT(words, HasSubstr("l6/w: "));
  EXPECT_THAT(words, Not(HasSubstr("l6/dy")));
  EXPECT_THAT(words, Not(HasSubstr("l0/dy"))) << "infinite";
  EXPECT_THAT(chart_titled(page, "Most harmful operands"), HasSubstr("kept in high precision"));
  found.grouping = Grouping::block;
  EXPECT_NE(chart_titled(localization_report(found, ""), "Most harmful blocks"), "");
}

RunResult result_by_hand(double seconds) {
  RunResult result;
  result.final_train_loss = 2.5;
  result.seconds_per_step = seconds;
  result.tokens_per_second = 100 / seconds;
  result.memory.weights = 1 << 20;
  result.memory.quantized_weights = 2 << 20;
  result.memory.gradients = 3 << 20;
  result.memory.optimizer = 4 << 20;
  result.memory.activations = 5 << 20;
  result.memory.scratch = 6 << 20;
  result.losses = {{1, 4.5}, {2, 3.5}, {3, 2.5}};
  result.format_shares = {{"bf16", 1.0}};
  return result;
}

std::vector<Contender> compared_by_hand() {
  std::vector<Contender> contenders(2);
  contenders[0] = {"bf16", {}, {{1, SeedStatus::completed, "", result_by_hand(0.5)}}};
  contenders[0].config.precision.recipe = "bf16";
  contenders[1] = {"fp8-delayed", {}, {{1, SeedStatus::completed, "", result_by_hand(0.25)}}};
  contenders[1].config.precision.recipe = "fp8-delayed";
  contenders[1].runs[0].result.format_shares = {{"bf16", 0.25}, {"e4m3", 0.75}};
  for (Contender& contender : contenders) {
    contender.config.preset = "tiny";
    contender.config.model.layers = 1;
  }
  return contenders;
}

std::string page_about(const std::vector<Contender>& contenders) {
  return comparison_report(contenders, compare(contenders, ""));
}

TEST(ComparisonPage, DrawsLossesAndTheBestPossible) {
  std::vector<Contender> contenders = compared_by_hand();
  EXPECT_EQ(
      words_of_chart(page_about(contenders), "Training loss"),
      "nats per token against step. bf16 (base): 3 points, from 4.5 to 2.5. fp8-delayed: 3 points, from 4.5 to 2.5.");
  EXPECT_THAT(chart_titled(page_about(contenders), "Training loss"), Not(HasSubstr("best possible")));
  contenders[0].runs[0].result.best_loss = 1.75;
  const std::string page = page_about(contenders);
  EXPECT_THAT(chart_titled(page, "Training loss"), HasSubstr("best possible"));
  EXPECT_THAT(page, HasSubstr("best possible loss: 1.7500"));
  EXPECT_EQ(chart_titled(page, "Validation loss against the base"), "") << "nothing was validated";
}

TEST(ComparisonPage, DrawsCosts) {
  const std::string page = page_about(compared_by_hand());
  const std::string time = chart_titled(page, "Time per step");
  EXPECT_THAT(time, HasSubstr("bf16: 500 ms. fp8-delayed: 250 ms."));
  EXPECT_THAT(time, HasSubstr("1.00×"));
  EXPECT_THAT(time, HasSubstr("0.50×"));
  const std::string memory = chart_titled(page, "Memory");
  EXPECT_THAT(memory, HasSubstr("bf16: 21 MiB. fp8-delayed: 21 MiB."));
  for (const char* part : {"bf16 · weights: 1 MiB", "bf16 · weights as codes: 2 MiB", "bf16 · gradients: 3 MiB",
                           "bf16 · optimizer: 4 MiB", "bf16 · activations: 5 MiB", "bf16 · scratch: 6 MiB"}) {
    EXPECT_THAT(memory, HasSubstr(part));
  }
  const std::string formats = chart_titled(page, "Operations of the matrix products by format");
  EXPECT_THAT(formats, HasSubstr("bf16: 100 %. fp8-delayed: 100 %."));
  EXPECT_THAT(formats, HasSubstr("fp8-delayed · e4m3: 75 %"));
  EXPECT_THAT(formats, Not(HasSubstr("bf16 · e4m3")));
}

TEST(ComparisonPage, DrawsThePrecisionOfRowsAndColumns) {
  std::vector<Contender> contenders = compared_by_hand();
  contenders[1].label = contenders[1].config.precision.recipe = "mxfp8";
  const std::string page = page_about(contenders);
  const std::string grid = chart_titled(page, "mxfp8");
  EXPECT_THAT(grid, HasSubstr(" · x: e4m3 — "));
  EXPECT_THAT(grid, HasSubstr(" · dy columnwise: "));
  EXPECT_THAT(chart_titled(page, "bf16"), Not(HasSubstr("e4m3")));
}

TEST(ComparisonPage, HasSamplesWhereThereAreSome) {
  std::vector<Contender> contenders = compared_by_hand();
  EXPECT_THAT(page_about(contenders), Not(HasSubstr("Samples")));
  contenders[1].runs[0].result.sample = "once upon a time";
  EXPECT_THAT(page_about(contenders), AllOf(HasSubstr("Samples"), HasSubstr("once upon a time")));
}

TEST(ComparisonRows, AreTheSameOnThePage) {
  std::vector<Contender> contenders = compared_by_hand();
  contenders[1].runs[0].result.overflows = 3;
  contenders[1].runs[0].result.skipped = 2;
  contenders[1].runs[0].result.final_train_loss = 2.55;
  EXPECT_THAT(cells_of_row(page_about(contenders), "fp8-delayed"),
              ElementsAre("2.5500", "+2.00", "3.00 MiB", "5.00 MiB", "4.00 MiB", "75", "250.0", "400", "3", "2"));
  EXPECT_EQ(cells_of_row(page_about(contenders), "bf16")[1], "base");
}

}  // namespace
}  // namespace quaver
