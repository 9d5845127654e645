// The table of a localization by layers: one line a group, with the worst of its operands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "cli/localize.h"

namespace quaver {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> words_of(const std::string& table, const std::string& first) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(first + " ")) continue;
    std::istringstream words(line);
    std::vector<std::string> found;
    for (std::string word; words >> word;) found.push_back(word);
    return found;
  }
  return {};
}

SiteSensitivity site_of(const std::string& layer, Role role, double harm, double own_cosine, double sqnr_db) {
  SiteSensitivity site{.site = layer + "/" + std::string(name_of(role)), .layer = layer, .role = role, .recipe = "fp8"};
  site.group = layer;
  site.tried = true;
  site.harm = harm;
  site.effect = {.loss_change = 0.001, .loss_error = 0.0002, .gradient_cosine = 0.99, .gradient_error = 0.1};
  site.own = {.cosine = own_cosine, .error = 0};
  site.sqnr_db = sqnr_db;
  return site;
}

Localization two_groups() {
  Localization found;
  found.recipe = "fp8-current";
  found.grouping = Grouping::layer;
  found.budget = 0.0025;
  found.baseline_loss = 2.5;
  found.baseline_error = 0.125;
  found.sites = {site_of("low", Role::x, 0.0001, 0.9, 30),  site_of("low", Role::w, 0.0001, 0.95, 20),
                 site_of("low", Role::dy, 0.0001, 0.8, 25), site_of("high", Role::x, 0.02, 0.7, 15),
                 site_of("high", Role::w, 0.02, 0.75, 12),  site_of("high", Role::dy, 0.02, 0.72, 18)};
  for (std::size_t i = 0; i < 3; ++i) found.sites[i].placement = Placement::as_tried;
  found.ranking = {3, 4, 5, 0, 1, 2};
  PlanTrial all{.low_precision_sites = 6, .low_precision_share = 1, .effect = {}, .harm = 0.0201, .holds = false};
  PlanTrial half{.low_precision_sites = 3, .low_precision_share = 0.5, .effect = {}, .harm = 0.0002, .holds = true};
  found.trials = {all, half};
  found.chosen = half;
  return found;
}

// A group stands in one line, with the worst cosine and the worst SQNR of its operands; harm in percent.
TEST(LocalizedGroups, HaveTheWorstOperandOfEachGroup) {
  const std::string table = localization_table(two_groups());
  EXPECT_THAT(words_of(table, "high"), ElementsAre("high", "2.0000", "+1.00e-03", "2.0e-04", "0.990000", "0.1000",
                                                   "0.700000", "12.0", "high", "precision"));
  EXPECT_THAT(words_of(table, "low"),
              ElementsAre("low", "0.0100", "+1.00e-03", "2.0e-04", "0.990000", "0.1000", "0.800000", "20.0", "fp8"));
  EXPECT_LT(table.find("\nhigh"), table.find("\nlow")) << "most harmful first";
  EXPECT_THAT(table, HasSubstr("3 of 6 operands kept in high precision"));
  EXPECT_THAT(table, HasSubstr("loss in high precision 2.5000 ± 0.1250; each layer alone"));
}

TEST(LocalizedGroups, SayWhereNothingBearsTheRecipe) {
  Localization none = two_groups();
  none.chosen = {};
  EXPECT_THAT(localization_table(none), HasSubstr("No part of fp8-current stays within 0.2500 % of the loss"));
}

}  // namespace
}  // namespace quaver
