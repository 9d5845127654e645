// kill -9 at random moments: whatever was being written, the run resumes and ends where an undisturbed one ends.
#include <random>
#include <signal.h>
#include <sys/wait.h>
#include <thread>

#include "support/every.h"

#include "train/support.h"

namespace quaver::test {
namespace {

Config killed_config(const std::filesystem::path& directory) {
  Config config = small_config("fp8-delayed", directory);
  config.train.steps = 40;
  config.train.keep = 2;
  config.train.eval_every = 0;
  return config;
}

// Starts or resumes the run in a process of its own.
pid_t start(const Config& config) {
  const pid_t child = fork();
  if (child != 0) return child;
  RunOptions options;
  const bool begun = std::filesystem::exists(std::filesystem::path(config.run.dir) / "config.toml");
  options.start = begun ? RunStart::resume : RunStart::fresh;
  try {
    run_training(config, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    _exit(1);
  }
  _exit(0);
}

TEST(Kill, FiftyRandomMomentsLoseNothing) {
  const TemporaryFolder folder;
  const Config straight = killed_config(folder.path() / "straight");
  const Config killed = killed_config(folder.path() / "killed");
  const auto begin = std::chrono::steady_clock::now();
  int status = 0;
  ASSERT_EQ(waitpid(start(straight), &status, 0) > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::mt19937 random(1);
  // Short lives, so that fifty of them fit into the forty steps.
  std::uniform_real_distribution<double> life(0.2 * whole / 40, whole / 12);
  int kills = 0;
  bool finished = false;
  while (kills < 50 / test::every_nth) {
    if (finished) std::filesystem::remove_all(killed.run.dir);
    const pid_t child = start(killed);
    std::this_thread::sleep_for(std::chrono::duration<double>(life(random)));
    kill(child, SIGKILL);
    ASSERT_GT(waitpid(child, &status, 0), 0);
    finished = WIFEXITED(status);
    if (finished) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
    } else {
      ++kills;
    }
  }
  while (!finished) {
    ASSERT_GT(waitpid(start(killed), &status, 0), 0);
    finished = WIFEXITED(status);
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
  for (const char* part : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const auto file = std::filesystem::path("checkpoints") / "step-000040" / part;
    EXPECT_EQ(contents(folder.path() / "straight" / file), contents(folder.path() / "killed" / file)) << part;
  }
}

}  // namespace
}  // namespace quaver::test
