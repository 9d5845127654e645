// Studies on several ranks: each measures some of the batches, and all come to what one process would say.
#include <gtest/gtest.h>

#include "support/thread_ranks.h"

#include "quaver/error.h"
#include "study/calibrate.h"
#include "study/localize.h"
#include "study/support.h"
#include "train/support.h"

namespace quaver {
namespace {

// What the first rank says, after every rank was seen to say the same.
std::string said_by(int size, const std::string& recipe, const std::function<std::string(Subject&)>& study) {
  test::ThreadRanks ranks(size);
  std::vector<std::string> said(static_cast<std::size_t>(size));
  ranks.run([&](Communicator& rank) {
    const auto subject = open_subject(test::miniature_config(recipe), test::ignore);
    subject->ranks = &rank;
    said[static_cast<std::size_t>(rank.rank())] = study(*subject);
  });
  for (const std::string& words : said) EXPECT_EQ(words, said.front());
  return said.front();
}

std::string calibrated(Subject& subject) {
  const StudyProgress progress{.ranks = subject.ranks};
  return to_scale_file(calibrate(subject, {.batches = 5, .warmup_steps = 3, .progress = progress}));
}

std::string localized(Subject& subject) {
  const StudyProgress progress{.ranks = subject.ranks};
  const LocalizeOptions options{.batches = 3, .warmup_steps = 1, .grouping = Grouping::block, .progress = progress};
  return to_json(localize(subject, options));
}

TEST(StudyOnRanks, CalibratesAsOneProcessDoes) {
  const std::string alone = said_by(1, "fp8-static", calibrated);
  EXPECT_EQ(said_by(2, "fp8-static", calibrated), alone);
  EXPECT_EQ(said_by(7, "fp8-static", calibrated), alone) << "more ranks than batches";
}

TEST(StudyOnRanks, LocalizesAsOneProcessDoes) {
  const std::string alone = said_by(1, "fp8-current", localized);
  EXPECT_EQ(said_by(2, "fp8-current", localized), alone);
  EXPECT_EQ(said_by(4, "fp8-current", localized), alone) << "more ranks than batches";
}

TEST(StudyOnRanks, EndsOnAllOfThemWhereOneIsAskedToStop) {
  test::ThreadRanks ranks(3);
  std::atomic<int> ended = 0;
  ranks.run([&](Communicator& rank) {
    const std::atomic<bool> stop = rank.rank() == 1;
    const auto subject = open_subject(test::miniature_config("fp8-static"), test::ignore);
    subject->ranks = &rank;
    const StudyProgress progress{.stop = &stop, .ranks = &rank};
    EXPECT_THROW(calibrate(*subject, {.batches = 4, .warmup_steps = 2, .progress = progress}), StudyInterrupted);
    ++ended;
  });
  EXPECT_EQ(ended, 3);
}

}  // namespace
}  // namespace quaver
