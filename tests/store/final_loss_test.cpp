// The final training loss as the store gives it: the mean over the last twentieth of the steps that were not skipped.
#include <gmock/gmock.h>

#include "store/store_fixture.h"

namespace quaver::test {
namespace {

using ::testing::Optional;

class StoredFinalLoss : public StoreTest {
 protected:
  struct Step {
    double loss = 9;
    bool skipped = false;
  };

  std::optional<double> of(const std::vector<Step>& steps) {
    {
      RunRecorder recorder(store_, small_run("a"), 0, collect(), quick());
      for (std::size_t i = 0; i < steps.size(); ++i) {
        std::vector<MetricValue> values{{"loss", steps[i].loss}};
        if (steps[i].skipped) values.push_back({"skipped", 1});
        recorder.metrics(i + 1, values);
      }
    }
    return StoreReader(store_).run("a").summary.final_train_loss;
  }
};

TEST_F(StoredFinalLoss, IsAbsentBeforeTheFirstStep) { EXPECT_EQ(of({}), std::nullopt); }

TEST_F(StoredFinalLoss, IsTheLastOfFewSteps) { EXPECT_THAT(of({{5}, {4}, {3}}), Optional(3.0)); }

TEST_F(StoredFinalLoss, IsTheMeanOfTheLastTwentieth) {
  std::vector<Step> steps(58);
  steps[56] = {100};
  steps[57] = {4};
  steps.push_back({3});
  steps.push_back({2});
  EXPECT_THAT(of(steps), Optional(3.0)) << "of 60 steps the last three";
}

TEST_F(StoredFinalLoss, LeavesSkippedStepsOut) {
  std::vector<Step> steps(57);
  steps.push_back({4});
  steps.push_back({1e9, true});
  steps.push_back({2});
  EXPECT_THAT(of(steps), Optional(3.0));
}

TEST_F(StoredFinalLoss, IsAbsentWhereAllWereSkipped) {
  std::vector<Step> steps(38);
  steps.push_back({std::nan(""), true});
  steps.push_back({7, true});
  EXPECT_EQ(of(steps), std::nullopt);
}

}  // namespace
}  // namespace quaver::test
