// Signals while a verb runs and after it.
#include "cli/interrupt.h"

#include <csignal>
#include <gtest/gtest.h>

namespace quaver::test {
namespace {

using Handler = void (*)(int);

Handler handler_of(int number) {
  const Handler handler = std::signal(number, SIG_DFL);
  std::signal(number, handler);
  return handler;
}

// Nothing is ignored to begin with, as it may be where tests run in the background.
class InterruptFlag : public ::testing::Test {
 protected:
  InterruptFlag() {
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(number, SIG_DFL);
  }
};

TEST_F(InterruptFlag, IsSetByTheFirstSignalAndFreshForEveryVerb) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const Interrupt interrupt;
    EXPECT_FALSE(*interrupt.flag()) << number;
    std::raise(number);
    EXPECT_TRUE(*interrupt.flag()) << number;
  }
}

TEST_F(InterruptFlag, HandlersLastAsLongAsTheVerb) {
  {
    const Interrupt interrupt;
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      EXPECT_NE(handler_of(number), SIG_DFL) << number;
      EXPECT_NE(handler_of(number), SIG_IGN) << number;
    }
    EXPECT_EQ(handler_of(SIGPIPE), SIG_IGN);
  }
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) EXPECT_EQ(handler_of(number), SIG_DFL) << number;
}

TEST_F(InterruptFlag, SignalsThatWereIgnoredStayIgnored) {
  std::signal(SIGHUP, SIG_IGN);  // as nohup does
  {
    const Interrupt interrupt;
    EXPECT_EQ(handler_of(SIGHUP), SIG_IGN);
    std::raise(SIGHUP);
    EXPECT_FALSE(*interrupt.flag());
  }
  EXPECT_EQ(handler_of(SIGHUP), SIG_IGN);
  std::signal(SIGHUP, SIG_DFL);
}

// The second signal ends the process, whatever the verb is doing.
TEST(InterruptFlagDeathTest, TheSecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        const Interrupt interrupt;
        std::raise(SIGTERM);
        std::raise(SIGTERM);
        std::_Exit(0);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace quaver::test
