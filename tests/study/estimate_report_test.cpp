// An estimate whose numbers are made up, as text and as JSON: every number in its unit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "quaver/error.h"
#include "study/estimate.h"

namespace quaver {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Estimate made_up() {
  Estimate estimate;
  estimate.config.preset = "small";
  estimate.config.precision.recipe = "fp8-delayed";
  estimate.config.train.steps = 1000;
  estimate.config.train.batch = 4;
  estimate.config.train.accumulation = 8;
  estimate.config.train.context = 512;
  estimate.device = "a machine";
  estimate.plan.weights = 3 << 20;
  estimate.plan.optimizer = 5 << 20;
  estimate.plan.checkpoint = 8 << 20;
  estimate.overhead = 2 << 20;
  estimate.needed = Size{3} << 30;
  estimate.available = Size{4} << 30;
  estimate.available_how = "as said";
  estimate.host_needed = 7 << 20;
  estimate.parameters = 1'500'000;
  estimate.tokens_per_step = 16'384;
  estimate.flops_per_token = 1e9;
  estimate.low_precision_share = 0.875;
  estimate.time = TimeEstimate{.seconds_per_step = 0.5, .origin = Origin::measured, .how = "a clock"};
  return estimate;
}

TEST(EstimateText, HasEveryFigureInItsUnit) {
  const std::string text = estimate_text(made_up());
  for (const char* part : {"small · 1.50M parameters · fp8-delayed · a machine", "weights                    3.0 MiB",
                           "optimizer                  5.0 MiB", "checkpoint copy            8.0 MiB",
                           "program, libraries         2.0 MiB   measured", "total                     3.00 GiB",
                           "available                 4.00 GiB   as said", "it fits, and 1.00 GiB are left",
                           "tokens per step              16.4k   8 micro-batches of 4 × 512", "1000   16.38M tokens",
                           "1.64e+16   87.5 % of the matrix products in 8 bits or fewer", "time, measured",
                           "per step                  500.0 ms   32.8k tokens/s, 32.8 TFLOP/s",
                           "the run                      8 min   without validation and checkpoints", "from a clock"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("on the host")));
}

TEST(EstimateText, SaysHowMuchIsMissing) {
  Estimate estimate = made_up();
  estimate.available = Size{2} << 30;
  EXPECT_THAT(estimate_text(estimate), HasSubstr("it does not fit: 1.00 GiB too much"));
  estimate.change = FittingChange{{"train.batch=2", "train.accumulation=16"}, "time", {}, 1536 << 20};
  estimate.change->plan.weights = 100 << 20;
  estimate.change->plan.activations = 50 << 20;
  const std::string text = estimate_text(estimate);
  EXPECT_THAT(text, HasSubstr("fits with --train.batch=2 --train.accumulation=16: 1.50 GiB\n    cost: time"));
  EXPECT_THAT(text, HasSubstr("weights and optimizer 100.0 MiB, activations 50.0 MiB"));
  estimate.available.reset();
  EXPECT_TRUE(estimate.fits());
  EXPECT_THAT(estimate_text(estimate), HasSubstr("what is free is not known"));
}

TEST(EstimateText, WhatIsJustEnoughFits) {
  Estimate estimate = made_up();
  estimate.available = estimate.needed;
  EXPECT_TRUE(estimate.fits());
  estimate.available = estimate.needed - 1;
  EXPECT_FALSE(estimate.fits());
}

TEST(EstimateText, OfAGpuNamesTheHostsPartAndNoCheckpoint) {
  Estimate estimate = made_up();
  estimate.kind = HardwareKind::gpu;
  const std::string text = estimate_text(estimate);
  EXPECT_THAT(text, HasSubstr("on the host, with the copy a checkpoint is written from: 7.0 MiB"));
  EXPECT_THAT(text, HasSubstr("CUDA and libraries"));
  EXPECT_THAT(text, Not(HasSubstr("checkpoint copy")));
}

TEST(EstimateText, TellsTimesInTheUnitThatSuits) {
  const auto told = [](double seconds) {
    Estimate estimate = made_up();
    estimate.config.train.steps = 1;
    estimate.time->seconds_per_step = seconds;
    const std::string text = estimate_text(estimate);
    const std::size_t at = text.find("the run") + 7;
    const std::size_t begin = text.find_first_not_of(' ', at);
    return text.substr(begin, text.find("   ", begin) - begin);
  };
  EXPECT_EQ(told(0.0123), "12.3 ms");
  EXPECT_EQ(told(0.9994), "999.4 ms");
  EXPECT_EQ(told(1), "1.0 s");
  EXPECT_EQ(told(119.9), "119.9 s");
  EXPECT_EQ(told(120), "2 min");
  EXPECT_EQ(told(7199), "120 min");
  EXPECT_EQ(told(7200), "2.0 h");
  EXPECT_EQ(told(48 * 3600 - 1), "48.0 h");
  EXPECT_EQ(told(48 * 3600), "2.0 days");
}

TEST(EstimateText, CountsInThousandsMillionsAndBillions) {
  const auto told = [](Size parameters) {
    Estimate estimate = made_up();
    estimate.parameters = parameters;
    const std::string text = estimate_text(estimate);
    return text.substr(sizeof("small · ") - 1, text.find(" parameters") - sizeof("small · ") + 1);
  };
  EXPECT_EQ(told(999), "999");
  EXPECT_EQ(told(1000), "1.0k");
  EXPECT_EQ(told(999'900), "999.9k");
  EXPECT_EQ(told(1'000'000), "1.00M");
  EXPECT_EQ(told(1'240'000'000), "1.24B");
}

TEST(EstimateJson, HasPlainUnits) {
  const auto json = nlohmann::json::parse(estimate_json(made_up()));
  EXPECT_EQ(json["parameters"], 1'500'000);
  EXPECT_EQ(json["tokens_per_step"], 16'384);
  EXPECT_EQ(json["flops_per_token"], 1e9);
  EXPECT_NEAR(json["total_flops"].get<double>(), 16'384e12, 1);
  EXPECT_EQ(json["narrow_share"], 0.875);
  EXPECT_EQ(json["time"]["seconds_per_step"], 0.5);
  EXPECT_EQ(json["time"]["tokens_per_second"], 32'768.0);
  EXPECT_EQ(json["time"]["seconds"], 500.0);
  EXPECT_EQ(json["memory_bytes"]["needed"], Size{3} << 30);
  EXPECT_EQ(json["memory_bytes"]["available"], Size{4} << 30);
  EXPECT_EQ(json["memory_bytes"]["parts"]["checkpoint"], 8 << 20);
  EXPECT_EQ(json["device_kind"], "cpu");
}

TEST(ParseBytes, KnowsEveryUnit) {
  EXPECT_EQ(parse_bytes("3"), 3);
  EXPECT_EQ(parse_bytes("3B"), 3);
  EXPECT_EQ(parse_bytes("1.5KiB"), 1536);
  EXPECT_EQ(parse_bytes("1K"), 1024);
  EXPECT_EQ(parse_bytes("2M"), 2 << 20);
  EXPECT_EQ(parse_bytes("3G"), Size{3} << 30);
  EXPECT_EQ(parse_bytes("1T"), Size{1} << 40);
  EXPECT_EQ(parse_bytes("1TiB"), Size{1} << 40);
  EXPECT_EQ(parse_bytes("7KB"), 7000);
  EXPECT_EQ(parse_bytes("7MB"), 7'000'000);
  EXPECT_EQ(parse_bytes("1TB"), 1'000'000'000'000);
  EXPECT_EQ(parse_bytes("1"), 1);
  EXPECT_THROW(parse_bytes("0.4"), Error);
}

// As their maker publishes them: dense TFLOP/s in BF16 and FP8, and memory in GiB.
TEST(GpuTable, IsAsPublished) {
  EXPECT_EQ(find_gpu_model("a100-80gb").bf16_tflops, 312);
  EXPECT_EQ(find_gpu_model("a100-80gb").fp8_tflops, 0);
  EXPECT_EQ(find_gpu_model("a100-40gb").memory_gib, 40);
  EXPECT_EQ(find_gpu_model("h100").bf16_tflops, 989);
  EXPECT_EQ(find_gpu_model("h100").fp8_tflops, 1979);
  EXPECT_EQ(find_gpu_model("h100-pcie").bf16_tflops, 756);
  EXPECT_EQ(find_gpu_model("h100-pcie").fp8_tflops, 1513);
  EXPECT_EQ(find_gpu_model("h200").memory_gib, 139.8);
  EXPECT_EQ(find_gpu_model("l40s").memory_gib, 45);
  EXPECT_EQ(find_gpu_model("l4").architecture, 89);
  EXPECT_EQ(find_gpu_model("l4").memory_gib, 22.5);
  EXPECT_EQ(find_gpu_model("b200").architecture, 100);
  EXPECT_EQ(find_gpu_model("b200").memory_gib, 179);
  EXPECT_EQ(find_gpu_model("b200").fp8_tflops, 4500);
  EXPECT_EQ(find_gpu_model("rtx-4090").bf16_tflops, 165);
  EXPECT_EQ(gpu_models().size(), 9U);
}

}  // namespace
}  // namespace quaver
