// Scales of two runs side by side, with numbers that are made up.
#include "cli/scale_table.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <sstream>

#include "formats/quant_spec.h"
#include "precision/recipe.h"

namespace quaver {
namespace {

TEST(ScaleTable, HasBothScalesAndTheBinadesBetweenThem) {
  const SiteSpec fp8 = make_recipe("fp8-delayed", {}).of(Role::x);
  const SiteSpec bf16 = make_recipe("bf16", {}).of(Role::x);
  const std::string fp8_text = describe(fp8.rows);
  const std::string bf16_text = describe(bf16.rows);
  const std::string table = scale_table({{"a/x", StoredSite{8, fp8}, StoredSite{2, fp8}},
                                         {"b/x", StoredSite{1, fp8}, StoredSite{0, bf16}},
                                         {"c/x", StoredSite{3, fp8}, std::nullopt},
                                         {"d/x", std::nullopt, StoredSite{0.75F, fp8}}});
  std::vector<std::vector<std::string>> cells;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string>& row = cells.emplace_back();
    for (std::size_t at = 0; (at = line.find_first_not_of(' ', at)) != std::string::npos;) {
      const std::size_t end = std::min(line.find("  ", at), line.size());
      row.push_back(line.substr(at, end - at));
      at = end;
    }
  }
  const std::vector<std::vector<std::string>> expected{
      {"site", "scale A", "scale B", "Δ binades", "format A", "format B"},
      {"a/x", "8", "2", "-2.00", fp8_text, "same"},
      {"b/x", "1", "0", "–", fp8_text, bf16_text},
      {"c/x", "3", "–", "–", fp8_text, "–"},
      {"d/x", "–", "0.75", "–", "–", fp8_text}};
  EXPECT_EQ(cells, expected) << table;
}

}  // namespace
}  // namespace quaver
