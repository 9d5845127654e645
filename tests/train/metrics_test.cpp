// metrics.jsonl: nothing that was written is lost to a bad line, a full disk or a removed folder.
#include "train/metrics.h"

#include <csignal>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include "train/support.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string step_line(int step) { return fmt::format(R"({{"step":{},"loss":1.5}})", step) + "\n"; }

StepReport report_of(Size step) {
  StepReport report;
  report.step = step;
  report.loss = 2;
  return report;
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

class MetricsLogTest : public testing::Test {
 protected:
  MetricsLog open(Size last_step) {
    return {path_, last_step, [this](const std::string& text) { warnings_.push_back(text); }};
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "metrics.jsonl";
  std::vector<std::string> warnings_;
};

TEST(ReadMetrics, KeepsEveryReadableLineUpToTheStep) {
  const std::string torn = R"({"step":3,"lo)";
  const std::string text = step_line(1) + step_line(2) + torn + "\n" + step_line(4) + step_line(5) +
                           R"({"step":4,"event":"notice","text":"x"})" + "\n" + step_line(6) + "[1]\n";
  const MetricsHistory history = read_metrics(text, 5);
  EXPECT_EQ(history.kept, step_line(1) + step_line(2) + step_line(4) + step_line(5) +
                              R"({"step":4,"event":"notice","text":"x"})" + "\n");
  EXPECT_EQ(history.unreadable, torn + "\n[1]\n");
  EXPECT_EQ(history.lines, 8);
  EXPECT_EQ(history.unreadable_lines, 2);
  EXPECT_EQ(history.first_unreadable, 3);
}

TEST(ReadMetrics, TheLastStepItselfStays) {
  EXPECT_EQ(read_metrics(step_line(7), 7).kept, step_line(7));
  EXPECT_THAT(read_metrics(step_line(7), 6).kept, IsEmpty());
  EXPECT_EQ(read_metrics(R"({"step":1})", 1).kept, "{\"step\":1}\n");  // without the line's end too
}

TEST_F(MetricsLogTest, ABadLineIsMovedAsideAndTheRestStays) {
  std::string text;
  for (int step = 1; step <= 900; ++step) text += step == 86 ? "{\"step\":86,\"los\n" : step_line(step);
  std::ofstream(path_) << text;
  {
    MetricsLog log = open(900);
    log.step(report_of(901), std::nullopt);
  }
  EXPECT_THAT(lines_of(path_), SizeIs(900));
  ASSERT_THAT(warnings_, SizeIs(1));
  EXPECT_THAT(warnings_[0], HasSubstr("1 of 900 lines cannot be read, the first is line 86"));
  EXPECT_EQ(contents(folder_.path() / "metrics.unreadable.txt"), "{\"step\":86,\"los\n");
  std::ofstream(path_, std::ios::app) << "torn";
  { const MetricsLog again = open(901); }
  EXPECT_EQ(contents(folder_.path() / "metrics.unreadable.txt"), "{\"step\":86,\"los\ntorn\n");
}

// A file size limit fails like a full disk: in the middle of a line.
TEST_F(MetricsLogTest, WhatADiskDoesNotTakeIsWrittenLater) {
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  {
    MetricsLog log = open(0);
    for (Size step = 1; step <= 3; ++step) log.step(report_of(step), std::nullopt);
    const rlimit full{std::filesystem::file_size(path_) + 20, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
    for (Size step = 4; step <= 6; ++step) log.step(report_of(step), std::nullopt);
    EXPECT_FALSE(log.sync());
    EXPECT_THAT(warnings_, SizeIs(1));
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    log.step(report_of(7), std::nullopt);
    EXPECT_TRUE(log.sync());
  }
  std::signal(SIGXFSZ, previous);
  const MetricsHistory history = read_metrics(contents(path_), 100);
  EXPECT_EQ(history.lines, 7);
  EXPECT_EQ(history.unreadable_lines, 0);
  ASSERT_THAT(warnings_, SizeIs(2));
  EXPECT_THAT(warnings_[0], HasSubstr("wait in memory"));
  EXPECT_THAT(warnings_[1], HasSubstr("no line is missing"));
}

TEST_F(MetricsLogTest, ARemovedFileIsPutBackWhole) {
  MetricsLog log = open(0);
  log.step(report_of(1), std::nullopt);
  std::filesystem::remove(path_);
  log.step(report_of(2), std::nullopt);
  log.put_back();
  log.step(report_of(3), 4.5);
  const std::vector<std::string> lines = lines_of(path_);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[0], HasSubstr("\"step\":1"));
  EXPECT_THAT(lines[2], HasSubstr("\"validation_loss\":4.5"));
}

TEST_F(MetricsLogTest, SomethingThatIsNoFileIsRefused) {
  std::filesystem::create_directory(path_);
  EXPECT_THROW(open(0), Error);
}

}  // namespace
}  // namespace quaver::test
