// `quaver estimate --gpus`: many GPUs that are not here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Words half_a_billion(const Words& more) {
  return Words{"estimate",   "--preset=qwen2.5-0.5b", "--recipe=fp8-delayed",
               "--batch=32", "--train.context=1024",  "--gpu",
               "h200",       "--tokens-per-second",   "200000"} +
         more;
}

json scaling_of(const TemporaryFolder& folder, const Words& more) {
  const Outcome outcome = quaver(folder, half_a_billion({"--json"}) + more);
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  return json::parse(outcome.out, nullptr, false)["scaling"];
}

TEST(EstimateGpus, PrintsAStagePerLineTheAdviceAndTheAssumptions) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, half_a_billion({"--gpus", "8"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  for (const char* part :
       {"\ntime, given\n", "\n8 GPUs, predicted: 1 machine of 8, nvlink; 4 micro-batches per GPU and step\n",
        "\n  none ", "\n  optimizer ", "\n  gradients ", "\n  weights ", "\n  advised: shard ", "\nassumptions\n",
        "\n  nvlink: 360 GB/s in each direction per GPU", "\n  not counted: "}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("  ib: ")));
}

TEST(EstimateGpus, FlagsChangeWhatIsPredicted) {
  const TemporaryFolder folder;
  const auto seconds = [](const json& of) { return of["stages"][0]["exchange_seconds"].get<double>(); };
  const json nvlink = scaling_of(folder, {"--gpus", "8"});
  EXPECT_EQ(nvlink["links"].size(), 1U);
  EXPECT_DOUBLE_EQ(nvlink["seconds_alone"].get<double>(), 4 * 32 * 1024 / 200e3);
  constexpr double exact = 2 * 7.0 / 8 * 4 * 494'032'768;
  const auto sent = nvlink["stages"][0]["sent_bytes"]["gradients"].get<double>();
  EXPECT_GE(sent, exact);
  EXPECT_LT(sent, exact * 1.00001) << "with padding";
  const json pcie = scaling_of(folder, {"--gpus", "8", "--link", "pcie"});
  EXPECT_GT(seconds(pcie), seconds(nvlink));
  EXPECT_LT(seconds(scaling_of(folder, {"--gpus", "8", "--gradients", "bf16"})), seconds(nvlink));
  const json machines = scaling_of(folder, {"--gpus", "8", "--nodes", "2", "--link", "pcie,ethernet"});
  EXPECT_EQ(machines["nodes"], 2);
  EXPECT_EQ(machines["links"][0]["name"], "pcie");
  EXPECT_EQ(machines["links"][1]["name"], "ethernet");
  EXPECT_GT(seconds(machines), seconds(pcie));
  const std::string file = folder.write("c.toml", "train.accumulation = 64\n").string();
  EXPECT_EQ(scaling_of(folder, {"--gpus", "8", "--link", "pcie", file})["micro_batches_per_gpu"], 8);
  const json never = scaling_of(folder, {"--gpus", "8", "--overlap", "0"});
  EXPECT_EQ(never["stages"][0]["with_overlap"], never["stages"][0]["without_overlap"]);
  EXPECT_GT(nvlink["stages"][0]["with_overlap"]["efficiency"], never["stages"][0]["with_overlap"]["efficiency"]);
}

TEST(EstimateGpus, RefusalsNameTheRemedy) {
  const TemporaryFolder folder;
  const auto refusal = [&](const Words& more) {
    const Outcome outcome = quaver(folder, half_a_billion(more));
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_THAT(outcome.error, HasSubstr("\n  → "));
    return outcome.error;
  };
  EXPECT_THAT(refusal({"--gpus", "64"}), HasSubstr("a multiple of 64"));
  EXPECT_THAT(refusal({"--gpus", "8", "--nodes", "3"}), HasSubstr("--gpus 6 and 9"));
  EXPECT_THAT(refusal({"--gpus", "8", "--link", "ib"}), HasSubstr("--nodes"));
  EXPECT_THAT(refusal({"--nodes", "2"}), HasSubstr("--gpus"));
  EXPECT_THAT(refusal({"--gpus", "8", "--train.reduction_groups=4"}), HasSubstr("train.reduction_groups = 8"));
  EXPECT_THAT(refusal({"--no-time"}), HasSubstr("--no-time"));
}

}  // namespace
}  // namespace quaver::test
