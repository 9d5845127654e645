// What all tests share: the headers that are compiled beforehand, and a failure that ctest would not see.
#include <cstdlib>
#include <gtest/gtest.h>

namespace {

// GoogleTest skips the tests of a suite whose SetUpTestSuite failed, and ctest counts what was skipped as passed.
class EndAtFailureOutsideOfTests : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { in_test_ = true; }
  void OnTestEnd(const testing::TestInfo&) override { in_test_ = false; }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (in_test_ || !result.failed()) return;
    std::fflush(stdout);
    std::_Exit(EXIT_FAILURE);
  }
  bool in_test_ = false;
};

[[maybe_unused]] const bool listening = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new EndAtFailureOutsideOfTests);
  return true;
}();

}  // namespace
