// The scale book as a file: exact round trips, imports by name, and damaged text that ends in an Error and nothing
// else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/every.h"

#include "precision/layers.h"
#include "precision/scale_book.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

ScaleBook empty_book(const std::string& recipe, Size blocks = 1) {
  ScaleBook book;
  PrecisionConfig config;
  config.recipe = recipe;
  config.wide_tail = 0;
  for (const PlanRow& row : make_plan(config, some_layers(blocks)).rows) book.add(row);
  return book;
}

// A book after some steps, some of them unusual.
ScaleBook used_book(const std::string& recipe) {
  ScaleBook book = empty_book(recipe);
  for (std::uint64_t step = 0; step < 20; ++step) {
    std::uint64_t i = 0;
    for (const auto& entry : book.entries()) {
      CastStatistics& seen = entry->site.seen;
      seen.count = 100;
      seen.amax = 0.1F * static_cast<float>(random_word({1, 0, 0}, step * 100 + i++) % 1000);
      seen.saturated = step % 3;
      seen.underflowed = step % 7;
    }
    if (step == 7) {
      book.discard_step();
    } else {
      book.end_step(step);
    }
  }
  book.set_scale("blocks.0.mlp.up/x", 3.3F, 21, "by \"hand\" – ½");
  book.set_spec("blocks.0.mlp.up/dy", {{.format = Format::bf16}, {.format = Format::bf16}}, 22, "overflowed");
  book.entry("blocks.0.mlp.down/x").site.seen.count = 12;  // in the middle of a step
  book.entry("blocks.0.mlp.down/x").site.seen.amax = 0.1F;
  return book;
}

constexpr auto everything = ScaleBook::Import::everything;
constexpr auto scales_only = ScaleBook::Import::scales_only;

TEST(ScaleBookJson, RoundTripIsByteIdentical) {
  for (const RecipeInfo& info : recipes()) {
    const std::string text = used_book(std::string(info.name)).to_json();
    ScaleBook restored = empty_book(std::string(info.name));
    EXPECT_TRUE(restored.from_json(text, everything, 0).empty());
    EXPECT_EQ(restored.to_json(), text) << info.name;
  }
}

TEST(ScaleBookJson, ARestoredBookContinuesAsTheOriginalDoes) {
  ScaleBook original = used_book("fp8-delayed");
  ScaleBook restored = empty_book("fp8-delayed");
  restored.from_json(original.to_json(), everything, 0);
  for (ScaleBook* book : {&original, &restored}) {
    for (const auto& entry : book->entries()) {
      entry->site.seen.count += 10;
      entry->site.seen.amax = std::max(entry->site.seen.amax, 1.25F);
    }
    book->end_step(30);
  }
  EXPECT_EQ(restored.to_json(), original.to_json());
}

TEST(ScaleBookJson, ScalesOnlyTakesScalesAndHistoriesAndLogsThem) {
  const ScaleBook source = used_book("fp8-delayed");
  ScaleBook target = empty_book("fp8-static");
  const SiteSpec spec = target.entry("blocks.0.mlp.up/x").site.spec;
  EXPECT_TRUE(target.from_json(source.to_json(), scales_only, 17).empty());
  const ScaleEntry& entry = target.entry("blocks.0.mlp.up/x");
  EXPECT_EQ(entry.site.scale, 3.3F);
  EXPECT_EQ(entry.site.spec, spec) << "how it is stored stays the plan's";
  EXPECT_EQ(entry.elements, 0U);
  EXPECT_EQ(entry.history.size(), 16U);
  ASSERT_EQ(entry.changes.size(), 1U);
  EXPECT_EQ(entry.changes[0].reason, "imported");
  EXPECT_EQ(entry.changes[0].step, 17U);
}

TEST(ScaleBookJson, NamesTheSitesTheFileDoesNotHave) {
  ScaleBook target = empty_book("fp8-delayed", 2);
  const std::vector<std::string> missing = target.from_json(used_book("fp8-delayed").to_json(), scales_only, 0);
  EXPECT_EQ(missing.size(), 12U);
  EXPECT_THAT(missing, testing::Contains("blocks.1.attn.qkv/x"));
}

TEST(ScaleBookJson, ALongerHistoryIsCutToTheNewest) {
  ScaleBook source = used_book("fp8-delayed");
  ScaleBook target(ScaleRules{.history = 3});
  PrecisionConfig config;
  config.recipe = "fp8-delayed";
  for (const PlanRow& row : make_plan(config, some_layers(1)).rows) target.add(row);
  target.from_json(source.to_json(), scales_only, 0);
  const auto& from = source.entry("blocks.0.attn.out/w").history;
  EXPECT_THAT(target.entry("blocks.0.attn.out/w").history, testing::ElementsAre(from[13], from[14], from[15]));
}

TEST(ScaleBookJson, TextThatIsNoScaleFileIsAnError) {
  const char* texts[] = {"",
                         "null",
                         "[]",
                         "7",
                         "{}",
                         R"({"version": 2})",
                         R"({"version": 1, "sites": {}})",
                         R"({"version": "2", "sites": {}})",
                         R"({"version": 2, "sites": []})",
                         R"({"version": 2, "sites": {"blocks.0.mlp.up/x": 5}})",
                         R"({"version": 2, "sites": {"blocks.0.mlp.up/x": {}}})",
                         R"({"version": 2, "sites": {"blocks.0.mlp.up/x": {"scale": -1, "history": []}}})",
                         R"({"version": 2, "sites": {"blocks.0.mlp.up/x": {"scale": 1e300, "history": []}}})",
                         R"({"version": 2, "sites": {"blocks.0.mlp.up/x": {"scale": 1, "history": [-3]}}})",
                         R"({"version": 2, "sites": {"blocks.0.mlp.up/x": {"scale": "1", "history": []}}})"};
  for (const char* text : texts) {
    for (const auto what : {everything, scales_only}) {
      ScaleBook book = empty_book("fp8-delayed");
      EXPECT_THROW(book.from_json(text, what, 0), Error) << text;
    }
  }
}

TEST(ScaleBookJson, AChangeThatCannotBeTakenBackSafelyIsAnError) {
  const std::string site = "blocks.0.mlp.up/x";
  nlohmann::json file = nlohmann::json::parse(used_book("fp8-delayed").to_json());
  ASSERT_FALSE(file["sites"][site]["changes"].empty());
  const auto damaged = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json copy = file;
    copy["sites"][site]["changes"][0][key] = value;
    return copy.dump();
  };
  for (const std::string& text :
       {damaged("scale_before", -1), damaged("scale_after", 1e300), damaged("cause", "whim")}) {
    ScaleBook book = empty_book("fp8-delayed");
    EXPECT_THROW(book.from_json(text, everything, 0), Error) << text;
  }
}

// Success or quaver::Error: any other exception fails the test.
template <class Action>
void survives(const Action& action) {
  try {
    action();
  } catch (const Error&) {  // the right answer to damage
  }
}

// A book of one site, so that thousands of damaged texts are read in a second.
ScaleBook small_book() {
  ScaleBook book;
  PrecisionConfig config;
  config.recipe = "fp8-delayed";
  book.add(make_plan(config, {{"blocks.0.mlp.up", 64, 256, 0}}).at("blocks.0.mlp.up/x"));
  return book;
}

std::string small_valid_text() {
  ScaleBook book = small_book();
  book.entry("blocks.0.mlp.up/x").site.seen.count = 5;
  book.entry("blocks.0.mlp.up/x").site.seen.amax = 3;
  book.end_step(0);
  return book.to_json();
}

void read_in_every_way(const std::string& text, const std::string& whole) {
  for (const auto what : {everything, scales_only}) {
    ScaleBook book = small_book();
    survives([&] { book.from_json(text, what, 0); });
    survives([&] { book.to_json(); });
  }
  survives([&] { compare_books(text, whole); });
  survives([&] { compare_books(whole, text); });
}

TEST(ScaleBookJson, EveryTruncationIsSurvived) {
  const std::string whole = small_valid_text();
  for (std::size_t length = 0; length < whole.size(); length += 3) {
    ASSERT_NO_THROW(read_in_every_way(whole.substr(0, length), whole)) << length;
  }
}

TEST(ScaleBookJson, EveryBitFlipIsSurvived) {
  const std::string whole = small_valid_text();
  for (std::size_t i = 0; i < whole.size(); i += test::every_nth) {
    for (const unsigned bit : {0U, 1U, 4U, 7U}) {
      if ((i + bit) % 2 == 0) continue;
      std::string damaged = whole;
      damaged[i] = static_cast<char>(static_cast<unsigned char>(damaged[i]) ^ (1U << bit));
      ASSERT_NO_THROW(read_in_every_way(damaged, whole)) << "byte " << i << " bit " << bit;
    }
  }
}

// Valid JSON whose values are of other types: what flips and cuts rarely reach.
TEST(ScaleBookJson, EveryReplacedValueIsSurvived) {
  const std::string whole = small_valid_text();
  for (std::size_t colon = whole.find(": "); colon != std::string::npos; colon = whole.find(": ", colon + 1)) {
    const std::size_t end = whole.find_first_of(",\n", colon);
    const char last = whole[end - 1];
    if (last == '{' || last == '[') continue;
    for (const char* value : {"null", "true", "\"x\"", "-1", "1e300", "[]", "{}", "99999999999999999999"}) {
      const std::string damaged = whole.substr(0, colon + 2) + value + whole.substr(end);
      ASSERT_NO_THROW(read_in_every_way(damaged, whole)) << damaged;
    }
  }
}

TEST(CompareBooks, EqualBooksHaveNothingToSay) {
  const std::string text = used_book("fp8-delayed").to_json();
  EXPECT_THAT(compare_books(text, text), testing::IsEmpty());
}

TEST(CompareBooks, NamesWhatDiffers) {
  ScaleBook book = used_book("fp8-delayed");
  const std::string before = book.to_json();
  const float scale = book.entry("blocks.0.attn.out/w").site.scale;
  book.set_scale("blocks.0.attn.out/w", 7, 50, "test");
  const auto differences = compare_books(before, book.to_json());
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].site, "blocks.0.attn.out/w");
  EXPECT_EQ(differences[0].first.value().scale, scale);
  EXPECT_EQ(differences[0].second.value().scale, 7);
  EXPECT_EQ(differences[0].first->spec, differences[0].second->spec);
}

TEST(CompareBooks, NamesSitesOfOneBookOnly) {
  const std::string one = empty_book("fp8-delayed", 1).to_json();
  const std::string two = empty_book("fp8-delayed", 2).to_json();
  const auto has = [](const std::vector<SiteDifference>& all, bool in_first) {
    return std::any_of(all.begin(), all.end(), [&](const SiteDifference& difference) {
      return difference.site == "blocks.1.mlp.up/w" && difference.first.has_value() == in_first &&
             difference.second.has_value() != in_first;
    });
  };
  EXPECT_TRUE(has(compare_books(one, two), false));
  EXPECT_TRUE(has(compare_books(two, one), true));
}

TEST(CompareBooks, SitesWithoutTheirFieldsAreAnError) {
  const std::string good = R"({"version": 2, "sites": {"a/x": {"scale": 1, "spec": {"rows": 1}}}})";
  for (const char* bad : {R"({"version": 2, "sites": {"a/x": {}}})", R"({"version": 2, "sites": {"a/x": 7}})",
                          R"({"version": 2, "sites": {"a/x": {"scale": 1, "spec": 3}}})"}) {
    EXPECT_THROW(compare_books(bad, good), Error) << bad;
    EXPECT_THROW(compare_books(good, bad), Error) << bad;
  }
}

}  // namespace
}  // namespace quaver::test
