// What a user is told who does not know the verbs yet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;

constexpr const char* verbs[] = {"train",     "compare",  "eval",     "sample", "data", "inspect", "bench",
                                 "calibrate", "localize", "estimate", "doctor", "dash", "export",  "convert"};

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const std::size_t end_of_others = text.rfind('\n');
  return end_of_others == std::string::npos ? text : text.substr(end_of_others + 1);
}

// The verb's own line to type is the last thing that is read.
TEST(Help, OfEveryVerbHasItsUsageAndEndsWithAnExample) {
  const TemporaryFolder folder;
  std::vector<Words> asked;
  for (const char* verb : verbs) asked.push_back({verb});
  asked.insert(asked.end(), {{"bench", "step"}, {"bench", "attention"}, {"bench", "diff"}, {"inspect", "plan"}});
  for (const Words& words : asked) {
    std::string line = "quaver";
    for (const std::string& word : words) line += " " + word;
    const Outcome help = quaver(folder, words + Words{"--help"});
    EXPECT_EQ(help.status, 0) << line;
    EXPECT_THAT(help.out, HasSubstr("Usage: " + line + " "));
    EXPECT_EQ(last_line(help.out).rfind("  " + line, 0), 0U) << last_line(help.out);
  }
}

TEST(Help, AVerbThatDoesNotExistGetsASuggestion) {
  const TemporaryFolder folder;
  const auto told = [&](const Words& words) {
    const Outcome outcome = quaver(folder, words);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.out, "");
    return outcome.error;
  };
  EXPECT_EQ(told({"trian", "--preset", "tiny"}), "quaver: there is no verb 'trian'\n  → did you mean \"train\"?\n");
  EXPECT_EQ(told({"estimat"}), "quaver: there is no verb 'estimat'\n  → did you mean \"estimate\"?\n");
  const std::string all =
      "verbs are train, compare, eval, sample, data, inspect, bench, calibrate, localize, estimate, doctor, dash, "
      "export, convert\n";
  EXPECT_EQ(told({"xylophone"}), "quaver: there is no verb 'xylophone'\n  → " + all);
  EXPECT_THAT(told({}), HasSubstr("  → " + all));
}

}  // namespace
}  // namespace quaver::test
