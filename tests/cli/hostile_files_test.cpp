// A file from outside that never ends, or never begins, is refused in a moment and by name, whatever it is given as.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "support/variable.h"

#include "cli/command.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A pipe without a writer, a folder, a device that never ends, a file far larger than memory.
std::vector<std::string> make_traps(const TemporaryFolder& folder) {
  EXPECT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_directories(folder / "folder");
  folder.write("huge", "x");
  fs::resize_file(folder / "huge", std::uintmax_t{100} << 30U);  // sparse
  return {"pipe", "folder", "/dev/zero", "huge"};
}

// Memory without end would take the machine with it: the program gets a few GiB for the time of a test.
class HostileFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    getrlimit(RLIMIT_AS, &before_);
#ifndef QUAVER_SANITIZED  // the sanitizers reserve terabytes
    rlimit limit = before_;
    limit.rlim_cur = std::min(limit.rlim_cur, rlim_t{4} << 30U);
    setrlimit(RLIMIT_AS, &limit);
#endif
  }
  void TearDown() override { setrlimit(RLIMIT_AS, &before_); }

  void expect_refusal(const Words& words, const std::string& trap) const {
    const Outcome outcome = quaver(folder_, words);
    EXPECT_EQ(outcome.status, 1) << ::testing::PrintToString(words) << outcome.out << outcome.error;
    EXPECT_THAT(outcome.error, HasSubstr(trap)) << ::testing::PrintToString(words);
    EXPECT_THAT(outcome.error, HasSubstr("\n  → "));
    EXPECT_THAT(outcome.error, Not(HasSubstr("out of memory")));
  }

  // Puts the trap where the program looks for a file of its own.
  void plant(const std::string& trap, const fs::path& place) const {
    fs::remove_all(place);
    fs::create_symlink(trap.front() == '/' ? fs::path(trap) : folder_ / trap, place);
  }

  TemporaryFolder folder_;
  const Variable threads_{"OMP_NUM_THREADS", "2"};  // each takes address space
  rlimit before_{};
};

TEST_F(HostileFiles, AreRefusedAsConfigAndScales) {
  for (const std::string& trap : make_traps(folder_)) {
    expect_refusal(tiny_training({trap}), trap);
    expect_refusal({"inspect", "plan", trap}, trap);
    expect_refusal(tiny_training({"--recipe=fp8-static", "--precision.scales=" + trap}), trap);
    Words calibrate = tiny_training({"--recipe=fp8-static", "--against", trap, "--out", "scales.json"});
    calibrate.front() = "calibrate";
    expect_refusal(calibrate, trap);
    EXPECT_FALSE(fs::exists(folder_ / "runs")) << "a refused run leaves nothing";
  }
}

TEST_F(HostileFiles, AreRefusedAsTokenizer) {
  write_text(folder_);
  for (const std::string& trap : make_traps(folder_)) {
    expect_refusal({"data", "text", "--out", "data", "--tokenizer", (folder_ / trap).string()}, trap);
    expect_refusal({"data", "text", trap, "--out", "data", "--tokenizer", trap}, trap);
    EXPECT_FALSE(fs::exists(folder_ / "data"));
  }
}

TEST_F(HostileFiles, AreRefusedOrReplacedInTheFolderOfARun) {
  ASSERT_EQ(quaver(folder_, tiny_training({"--dir=run"})).status, 0);
  const std::string id = contents(folder_ / "run/run_id");
  for (const std::string& trap : make_traps(folder_)) {
    // The checkpoints know the id too: the trap is replaced, with a word about it.
    plant(trap, folder_ / "run/run_id");
    const Outcome outcome = quaver(folder_, {"train", "--resume", "run"});
    EXPECT_THAT(outcome.out + outcome.error, HasSubstr("run_id")) << trap;
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(contents(folder_ / "run/run_id"), id) << trap;

    const std::string scales = contents(folder_ / "run/scales.json");
    plant(trap, folder_ / "run/scales.json");
    expect_refusal({"inspect", "run", "--against", "run"}, "scales.json");
    fs::remove(folder_ / "run/scales.json");
    folder_.write("run/scales.json", scales);
  }
}

// The map of sensitivities is only shown, so a run goes on without it.
TEST_F(HostileFiles, ALocalizationThatIsNoneIsLeftOutWithANotice) {
  folder_.write("number.json", "3");
  folder_.write("half.json", "{\"sites\": [");
  std::vector<std::string> traps = make_traps(folder_);
  traps.insert(traps.end(), {"number.json", "half.json", "nowhere.json"});
  for (std::size_t i = 0; i < traps.size(); ++i) {
    const Outcome outcome = quaver(
        folder_, tiny_training({"--precision.localization=" + traps[i], "--dir=run-" + std::to_string(i), "--json"}));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_THAT(outcome.out + outcome.error, HasSubstr("map of sensitivities")) << traps[i];
    EXPECT_THAT(outcome.out + outcome.error, HasSubstr(traps[i]));
  }
}

}  // namespace
}  // namespace quaver::test
