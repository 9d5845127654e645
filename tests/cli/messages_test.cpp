// Text of a run on the terminal: nothing in it may command it.
#include <gtest/gtest.h>

#include "cli/progress.h"
#include "cli/study.h"

namespace quaver {
namespace {

// A C1 control is two bytes in UTF-8, also where it ends the text; é is two bytes and none.
TEST(MessageText, HasNoControlsUpToItsEnd) {
  char* data = nullptr;
  std::size_t size = 0;
  ProgressOptions options;
  options.out = ::open_memstream(&data, &size);
  {
    Progress progress(options);
    progress.message("end \xc2\x9b");
    progress.message("\xc2\x80");
    progress.message("\xc2\xa0");
    progress.message("\xc2");
    progress.warning("caf\xc3\xa9 \x1b");
  }
  std::fclose(options.out);
  const std::string text(data, size);
  std::free(data);
  EXPECT_EQ(text, "end ?\n?\n\xc2\xa0\n\xc2\nwarning: caf\xc3\xa9 ?\n");
}

TEST(StudyDefaults, AFreshModelIsWarmedUpAndARunIsNot) {
  StudyArguments arguments;
  Subject subject;
  EXPECT_EQ(warmup_steps(arguments, subject), 20);
  subject.config.model.from = "folder";
  EXPECT_EQ(warmup_steps(arguments, subject), 0) << "pretrained";
  arguments.run = "runs/a";
  EXPECT_EQ(warmup_steps(arguments, subject), 0);
  arguments.warmup_steps = 3;
  EXPECT_EQ(warmup_steps(arguments, subject), 3);
  arguments.run.clear();
  EXPECT_EQ(warmup_steps(arguments, subject), 3);
}

}  // namespace
}  // namespace quaver
