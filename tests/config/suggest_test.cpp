#include "config/suggest.h"

#include <gmock/gmock.h>

namespace quaver {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(EditDistance, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("widht", "width"), 1U);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2U);
}

TEST(EditDistance, IsSymmetric) {
  const std::vector<std::string> words = {"", "a", "ab", "ba", "model.width", "mdoel.widht", "optim"};
  for (const auto& a : words) {
    for (const auto& b : words) EXPECT_EQ(edit_distance(a, b), edit_distance(b, a)) << a << " " << b;
  }
}

TEST(Suggest, PrefersTheNearestAndListsTies) {
  const std::vector<std::string> names = {"model.context", "train.context", "train.keep", "optim.learning_rate"};
  EXPECT_THAT(closest_names("train.contxt", names), ElementsAre("train.context"));
  EXPECT_THAT(closest_names("data.context", names), ElementsAre("model.context", "train.context"));
  EXPECT_THAT(closest_names("lr", names), ElementsAre("optim.learning_rate"));
  EXPECT_THAT(closest_names("zebra", names), IsEmpty());
  EXPECT_EQ(did_you_mean("data.context", names), "did you mean \"model.context\" or \"train.context\"?");
  EXPECT_EQ(did_you_mean("zebra", names), "");
}

}  // namespace
}  // namespace quaver
