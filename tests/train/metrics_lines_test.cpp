// A line of metrics.jsonl, field by field.
#include <gmock/gmock.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "train/metrics.h"
#include "train/support.h"

namespace quaver::test {
namespace {

using nlohmann::json;

class MetricsLines : public testing::Test {
 protected:
  template <class Work>
  std::string written_by(Work work) {
    std::filesystem::remove(path_);
    {
      MetricsLog log(path_, 0, [](const std::string&) {});
      work(log);
    }
    return contents(path_);
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "metrics.jsonl";
};

TEST_F(MetricsLines, AStepHasEveryFigureUnderItsName) {
  StepReport report = made_up_report(12);
  const json plain = {{"step", 12},     {"loss", 2.5},         {"learning_rate", 0.125}, {"gradient_norm", 3.0},
                      {"seconds", 4.0}, {"tokens", 100},       {"saturated", 5},         {"underflowed", 6},
                      {"overflows", 7}, {"update_ratio", 0.5}, {"unmoved_percent", 8.0}, {"max_logit", 9.0}};
  EXPECT_EQ(json::parse(written_by([&](MetricsLog& log) { log.step(report, std::nullopt); })), plain)
      << "neither a loss scale of 1 nor a step that was not skipped";
  report.loss_scale = 16;
  report.skipped = true;
  json whole = plain;
  whole["loss_scale"] = 16.0;
  whole["skipped"] = true;
  whole["validation_loss"] = 2.25;
  EXPECT_EQ(json::parse(written_by([&](MetricsLog& log) { log.step(report, 2.25); })), whole);
}

TEST_F(MetricsLines, WhatIsNotFiniteIsNull) {
  StepReport report;
  report.loss = std::numeric_limits<double>::quiet_NaN();
  report.gradient_norm = std::numeric_limits<double>::infinity();
  report.update_ratio = report.unmoved_percent = report.loss;
  report.max_logit = -std::numeric_limits<float>::infinity();
  const double infinite = std::numeric_limits<double>::infinity();
  const json line = json::parse(written_by([&](MetricsLog& log) { log.step(report, infinite); }));
  for (const char* key : {"loss", "gradient_norm", "update_ratio", "unmoved_percent", "max_logit", "validation_loss"}) {
    EXPECT_TRUE(line.at(key).is_null()) << key;
  }
}

TEST_F(MetricsLines, AnEventHasItsStepKindAndText) {
  EXPECT_EQ(written_by([](MetricsLog& log) {
              log.event(3, "notice", "a \"word\"");
              log.event(4, "act", "bad \xFF byte");
            }),
            "{\"step\":3,\"event\":\"notice\",\"text\":\"a \\\"word\\\"\"}\n"
            "{\"step\":4,\"event\":\"act\",\"text\":\"bad \xEF\xBF\xBD byte\"}\n")
      << "what is not UTF-8 shows as such";
}

TEST_F(MetricsLines, ARunHasTrainedFromItsFirstStepOn) {
  EXPECT_FALSE(has_trained(path_)) << "no file";
  std::ofstream(path_) << "{\"step\":0,\"event\":\"notice\",\"text\":\"\"}\n";
  EXPECT_FALSE(has_trained(path_));
  std::ofstream(path_, std::ios::app) << "{\"step\":1,\"loss\":2}\n";
  EXPECT_TRUE(has_trained(path_));
}

TEST_F(MetricsLines, LaterStepsGoWhenTheLogIsOpenedAgain) {
  std::ofstream(path_) << "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n";
  std::vector<std::string> warnings;
  {
    MetricsLog log(path_, 2, [&](const std::string& text) { warnings.push_back(text); });
    log.event(2, "a", "b");
  }
  EXPECT_EQ(contents(path_), "{\"step\":1}\n{\"step\":2}\n{\"step\":2,\"event\":\"a\",\"text\":\"b\"}\n");
  EXPECT_TRUE(warnings.empty());
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "metrics.unreadable.txt"));
}

}  // namespace
}  // namespace quaver::test
