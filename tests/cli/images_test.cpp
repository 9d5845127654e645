// A classifier of images as a user trains and looks at it, on generated images and on IDX files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "store/reader.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

Words tiny_classifier(const Words& more = {}) {
  return Words{"train",
               "--preset",
               "mlp-tiny",
               "--recipe",
               "fp8-delayed",
               "--dir=run",
               "--steps",
               "4",
               "--train.batch",
               "16",
               "--model.width=32",
               "--train.threads=1",
               "--train.eval_batches=3"} +
         more;
}

TEST(Images, AClassifierIsTrainedEvaluatedAndInspected) {
  const TemporaryFolder folder;
  const Outcome trained = quaver(folder, tiny_classifier());
  ASSERT_EQ(trained.status, 0) << trained.error;
  EXPECT_THAT(trained.out, AllOf(HasSubstr("16 images per step"), HasSubstr("validation accuracy "),
                                 HasSubstr("% (best possible 97.")));
  const Outcome evaluated = quaver(folder, {"eval", "run", "--json"});
  ASSERT_EQ(evaluated.status, 0) << evaluated.error;
  const json metrics = json::parse(evaluated.out);
  EXPECT_EQ(metrics.at("images"), 48);
  EXPECT_GE(metrics.at("validation_accuracy"), 0);
  EXPECT_THAT(quaver(folder, {"inspect", "run"}).out, HasSubstr("blocks.2.linear/dy"));
  const Outcome calibrated = quaver(folder, {"calibrate", "--run", "run", "--batches", "2", "--out", "scales.json"});
  EXPECT_EQ(calibrated.status, 0) << calibrated.error;
  EXPECT_THAT(calibrated.out, HasSubstr("32 images"));
}

TEST(Images, TheStoreHasTheAccuracyItsUnitAndTheBestThatIsPossible) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny_classifier()).status, 0);
  const StoreReader store(folder.path() / store_file_name);
  const std::vector<RunSummary> runs = store.runs();
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].unit, "images");
  EXPECT_EQ(runs[0].tokens_per_step, 16U);
  ASSERT_TRUE(runs[0].validation_accuracy);
  EXPECT_LE(*runs[0].validation_accuracy, 1);
  const json best = json::parse(store.document(runs[0].id, "best").value());
  EXPECT_NEAR(best.at("accuracy").get<double>(), 0.97, 0.01);
  EXPECT_GT(best.at("loss").get<double>(), 0);
}

TEST(Images, AConvolutionNetworkIsTrainedEvaluatedAndPlanned) {
  const TemporaryFolder folder;
  const Words small{"--preset",        "convnet-small",    "--model.stage_widths=8,16", "--model.stage_blocks=1,1",
                    "--train.batch=8", "--train.threads=1"};
  const Outcome trained = quaver(
      folder, Words{"train", "--recipe", "fp8-block", "--dir=run", "--steps=3", "--train.eval_batches=2"} + small);
  ASSERT_EQ(trained.status, 0) << trained.error;
  EXPECT_THAT(trained.out, AllOf(HasSubstr("8 images per step"), HasSubstr("validation accuracy ")));
  const Outcome evaluated = quaver(folder, {"eval", "run", "--json"});
  ASSERT_EQ(evaluated.status, 0) << evaluated.error;
  EXPECT_EQ(json::parse(evaluated.out).at("images"), 16);
  EXPECT_THAT(quaver(folder, {"inspect", "run"}).out, HasSubstr("blocks.1.shortcut/dy"));
  const Outcome calibrated = quaver(folder, {"calibrate", "--run", "run", "--batches", "2", "--out", "scales.json"});
  EXPECT_EQ(calibrated.status, 0) << calibrated.error;
  const Outcome localized = quaver(folder, {"localize", "--run", "run", "--batches", "2", "--out", "map"});
  EXPECT_EQ(localized.status, 0) << localized.error;
  EXPECT_EQ(quaver(folder, Words{"estimate"} + small).status, 0);
  const Outcome wrong = quaver(folder, Words{"train", "--dir=other"} + small + Words{"--model.stage_blocks=1,x"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.error, HasSubstr("model.stage_blocks = \"1,x\" is not a list of numbers"));
}

TEST(Images, WhatNeedsTokensSaysSo) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny_classifier()).status, 0);
  const Outcome sampled = quaver(folder, {"sample", "run"});
  EXPECT_EQ(sampled.status, 1);
  EXPECT_THAT(sampled.error, HasSubstr("classifies images"));
  const Outcome text = quaver(folder, {"eval", "run", "--text", "x"});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.error, HasSubstr("trained on images"));
  const Outcome bench = quaver(folder, {"bench", "step", "--preset", "mlp-tiny"});
  EXPECT_EQ(bench.status, 1);
  EXPECT_THAT(bench.error, HasSubstr("language models"));
}

TEST(Images, IdxFilesAreReadAndDamagedOnesNamed) {
  const TemporaryFolder folder;
  const std::string sizes("\0\0\0\x20\0\0\0\2\0\0\0\2", 12);  // 32 images of 2 × 2
  std::string pixels;
  std::string labels;
  for (int i = 0; i < 32; ++i) {
    labels += static_cast<char>(i % 4);
    for (int p = 0; p < 4; ++p) pixels += static_cast<char>(p == i % 4 ? 200 : i);
  }
  for (const std::string split : {"train", "t10k"}) {
    folder.write("mnist/" + split + "-images-idx3-ubyte", std::string("\0\0\x08\x03", 4) + sizes + pixels);
    folder.write("mnist/" + split + "-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x20", 8) + labels);
  }
  const Words idx{"--data.kind=idx", "--data", "mnist"};
  const Outcome trained = quaver(folder, tiny_classifier(idx));
  ASSERT_EQ(trained.status, 0) << trained.error;
  EXPECT_EQ(json::parse(quaver(folder, {"eval", "run", "--json"}).out).at("images"), 32);
  folder.write("mnist/t10k-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x20", 8) + labels.substr(1));
  const Outcome refused = quaver(folder, tiny_classifier(idx + Words{"--dir=other"}));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.error, HasSubstr("t10k-labels-idx1-ubyte: its header announces 40 bytes and it has 39"));
}

}  // namespace
}  // namespace quaver::test
