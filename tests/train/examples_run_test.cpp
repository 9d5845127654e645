// Fine-tuning on examples: the mean over a step's tokens with loss, whatever the division into micro-batches and among
// ranks; and a run that resumes in the middle of an epoch.
#include <cmath>
#include <gmock/gmock.h>

#include "support/temporary_folder.h"
#include "support/thread_ranks.h"

#include "train/support.h"
#include "train/trainer.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;

// Completions of very different lengths.
std::string examples_text() {
  std::string text;
  for (int i = 0; i < 24; ++i) {
    text += R"({"prompt": ")" + std::string(static_cast<std::size_t>(1 + i % 5), 'a') + R"(", "completion": ")" +
            std::string(static_cast<std::size_t>(1 + i * i % 13), static_cast<char>('b' + i % 7)) + "\"}\n";
  }
  return text;
}

Config examples_config(const fs::path& file, const fs::path& directory = "unused") {
  Config config = miniature_config("fp32", directory);
  config.model.context = 16;
  config.train.batch = 2;
  config.train.accumulation = 2;
  config.data.kind = DataKind::examples;
  config.data.path = file.string();
  config.data.tokenizer = "bytes";
  config.data.valid_share = 0.2;
  return config;
}

struct Steps {
  std::vector<double> losses;
  std::vector<float> weights;
};

Steps steps_of(const Config& config, Communicator& ranks = single_process()) {
  const auto engine = make_cpu_engine(1);
  const TrainingData data = open_training_data(config.data, config.train.seed, config.model.context);
  Trainer trainer(
      config, data, *engine, [](const std::string&) {}, ranks);
  Steps steps;
  for (int i = 0; i < 3; ++i) steps.losses.push_back(trainer.step().loss);
  steps.losses.push_back(*trainer.evaluate(100));
  const View weight = trainer.model().parameters().find("norm.weight").weight;
  steps.weights.assign(weight.f32(), weight.f32() + weight.count());
  return steps;
}

class ExamplesRun : public testing::Test {
 protected:
  TemporaryFolder folder_;
  fs::path file_ = folder_.write("examples.jsonl", examples_text());
};

// The same eight rows in one micro-batch, in two, in eight.
TEST_F(ExamplesRun, TheDivisionIntoMicroBatchesDoesNotMatter) {
  for (const bool pack : {true, false}) {
    std::vector<Steps> runs;
    for (const Size accumulation : {1, 2, 8}) {
      Config config = examples_config(file_);
      config.data.pack = pack;
      config.train.batch = 8 / accumulation;
      config.train.accumulation = accumulation;
      runs.push_back(steps_of(config));
    }
    for (const Steps& run : runs) {
      for (std::size_t i = 0; i < run.losses.size(); ++i) EXPECT_NEAR(run.losses[i], runs[0].losses[i], 2e-5) << i;
      for (std::size_t i = 0; i < run.weights.size(); ++i) {
        EXPECT_NEAR(run.weights[i], runs[0].weights[i], 2e-4) << i;
      }
    }
  }
}

TEST_F(ExamplesRun, RanksEndInTheBitsOfOneProcess) {
  Config config = examples_config(file_);
  config.train.accumulation = config.train.reduction_groups = 6;
  const Steps alone = steps_of(config);
  ThreadRanks(3).run([&](Communicator& ranks) {
    const Steps shared = steps_of(config, ranks);
    EXPECT_EQ(shared.losses, alone.losses);
    EXPECT_EQ(shared.weights, alone.weights);
  });
}

// The loss of the first step is the mean over tokens with loss, of a model that was not trained: near log of the
// vocabulary, which padding and prompts must not dilute.
TEST_F(ExamplesRun, TheLossIsAMeanOverTokensWithLoss) {
  for (const bool pack : {true, false}) {
    Config config = examples_config(file_);
    config.data.pack = pack;
    EXPECT_NEAR(steps_of(config).losses.front(), std::log(257.0), 0.3);
  }
}

TEST_F(ExamplesRun, ResumesInTheMiddleOfAnEpochWithTheSameBytes) {
  const auto run_until = [&](const Config& config, RunStart start, Size steps) {
    std::atomic<bool> stop{false};
    RunOptions options;
    options.start = start;
    options.stop = &stop;
    options.observer.stepped = [&](const StepReport& report, std::optional<double>) { stop = report.step >= steps; };
    return run_training(config, options);
  };
  const Config straight = examples_config(file_, folder_.path() / "straight");
  const Config halted = examples_config(file_, folder_.path() / "halted");
  const RunResult whole = run_training(straight, {});
  EXPECT_EQ(run_until(halted, RunStart::fresh, 2).end, RunEnd::interrupted);
  const RunResult resumed = run_until(halted, RunStart::resume, 100);
  EXPECT_EQ(resumed.final_validation_loss, whole.final_validation_loss);
  const fs::path model = fs::path("checkpoints") / "step-000006" / "model.safetensors";
  EXPECT_EQ(contents(folder_.path() / "halted" / model), contents(folder_.path() / "straight" / model));
}

TEST_F(ExamplesRun, SaysOnceWhatWasCut) {
  const fs::path file = folder_.write(
      "long.jsonl", examples_text() + R"({"prompt": "a", "completion": ")" + std::string(99, 'x') + "\"}\n");
  Config config = examples_config(file, folder_.path() / "run");
  config.data.valid_share = 0;
  config.model.context = 24;
  config.train.steps = 1;
  std::vector<std::string> notices;
  RunOptions options;
  options.observer.warning = [&](const std::string& text) { notices.push_back(text); };
  run_training(config, options);
  EXPECT_EQ(std::ranges::count(notices, "1 of 25 training examples are longer than train.context = 24 and were cut"),
            1);
}

// An example is its tokens, not its file.
TEST_F(ExamplesRun, OtherExamplesAreOtherData) {
  const Config config = examples_config(file_);
  const auto identity = [&](const DataConfig& data) { return open_training_data(data, 1, 16).identity; };
  DataConfig moved = config.data;
  moved.path = folder_.write("moved.jsonl", examples_text()).string();
  EXPECT_EQ(identity(moved), identity(config.data));
  moved.path = folder_.write("other.jsonl", examples_text() + R"({"text": "more"})").string();
  EXPECT_NE(identity(moved), identity(config.data));
}

}  // namespace
}  // namespace quaver::test
