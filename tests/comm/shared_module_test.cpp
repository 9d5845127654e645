// Modules are loaded where they are of the program's own build.
#include "comm/shared_module.h"

#include <gmock/gmock.h>

#include "support/variable.h"

#include "quaver/error.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;
using Answer = int (*)();

constexpr SharedModule tried{.name = "tried.so",
                             .variable = "QUAVER_TRIED_MODULE",
                             .what = "a module",
                             .remedy_absent = "build it",
                             .remedy_broken = "mend it"};

std::string refusal_of(const std::string& file, const char* symbol = "answer") {
  const Variable path("QUAVER_TRIED_MODULE", file);
  try {
    tried.function<Answer>(symbol);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SharedModule, OfThisBuildIsUsed) {
  const Variable path("QUAVER_TRIED_MODULE", module_of_this_build);
  EXPECT_EQ(tried.function<Answer>("answer")(), 42);
}

TEST(SharedModule, OfAnotherBuildIsRefused) {
  EXPECT_THAT(refusal_of(module_of_another_build), HasSubstr("is a module of another build than this program"));
}

TEST(SharedModule, ThatIsNotThereIsRefused) {
  EXPECT_THAT(refusal_of("absent.so"), HasSubstr("is not beside the program"));
}

TEST(SharedModule, WithoutTheFunctionIsRefused) {
  EXPECT_THAT(refusal_of(module_of_this_build, "question"), HasSubstr("of another build"));
}

TEST(SharedModule, OfAnOlderBuildIsRefused) {
  EXPECT_THAT(refusal_of(module_of_older_build), HasSubstr("of another build"));
}

}  // namespace
}  // namespace quaver::test
