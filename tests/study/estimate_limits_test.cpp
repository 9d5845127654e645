// Where an estimate's numbers come from: units, limits, the least change that fits, and every field of its JSON.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/load.h"
#include "quaver/error.h"
#include "study/estimate.h"
#include "study/estimate_time.h"

namespace quaver {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Settings = std::vector<std::string>;

Estimate estimate_for(const Settings& flags, EstimateOptions options = {}) {
  Settings all{"data.kind=synthetic", "preset=tiny",   "model.layers=2",  "model.width=64", "model.heads=2",
               "model.context=64",    "train.batch=6", "train.threads=1", "train.steps=10"};
  all.insert(all.end(), flags.begin(), flags.end());
  options.timing = Timing::leave_out;
  return estimate(load_config({.files = {}, .texts = {}, .flags = all}), options);
}

TEST(EstimatedWork, IsThatOfTheStepsOfTheRun) {
  const Estimate result = estimate_for({"train.device=cpu", "train.accumulation=3"});
  EXPECT_EQ(result.tokens_per_step, 6 * 3 * 64);
  EXPECT_DOUBLE_EQ(result.total_flops(), result.flops_per_token * 6 * 3 * 64 * 10);
  EXPECT_EQ(result.kind, HardwareKind::cpu);
  EXPECT_EQ(result.available_how, "available on this machine");
  EXPECT_EQ(result.time_missing, "not asked for");
}

// A GPU that is not here: its whole memory, and an assumed overhead of 600 + 150 MiB.
TEST(AbsentGpu, HasItsTablesMemoryAndAnAssumedOverhead) {
  const Estimate named = estimate_for({}, {.gpu = "a100-40gb", .gpu_memory = std::nullopt});
  EXPECT_EQ(named.available, Size{40} << 30);
  EXPECT_EQ(named.overhead, Size{750} << 20);
  EXPECT_EQ(named.overhead_origin, Origin::assumed);
  EXPECT_EQ(named.device, "a100-40gb, not here");
  EXPECT_EQ(named.available_how, "the whole memory of a100-40gb");
  EXPECT_THAT(named.notes, IsEmpty());
  EXPECT_GT(named.host_needed, named.plan.checkpoint + (Size{1} << 20)) << "the program is on the host too";
}

TEST(AbsentGpu, IsAnH100WhereOnlyItsMemoryIsSaid) {
  const Estimate sized = estimate_for({"train.device=cpu"}, {.gpu = "", .gpu_memory = Size{3} << 30});
  EXPECT_EQ(sized.kind, HardwareKind::gpu);
  EXPECT_EQ(sized.available, Size{3} << 30);
  EXPECT_EQ(sized.available_how, "as asked");
  EXPECT_EQ(sized.device, "a GPU like h100, not here");
}

TEST(ConfigsLimit, CountsWhereItIsLowerThanWhatIsThere) {
  const EstimateOptions asked{.gpu = "h100", .gpu_memory = Size{3} << 30};
  const Estimate lower = estimate_for({"train.memory_limit_mb=2000"}, asked);
  EXPECT_EQ(lower.available, Size{2000} << 20);
  EXPECT_EQ(lower.available_how, "train.memory_limit_mb");
  const Estimate higher = estimate_for({"train.memory_limit_mb=4000"}, asked);
  EXPECT_EQ(higher.available, Size{3} << 30);
  EXPECT_EQ(higher.available_how, "as asked");
}

// Memory for exactly what a setting needs: it is found, and one byte less takes the next.
TEST(FittingChangeFound, IsTheMildestToTheByte) {
  const auto needed = [](const Settings& flags) {
    return estimate_for(flags, {.gpu = "h100", .gpu_memory = std::nullopt}).needed;
  };
  const auto found = [](const Settings& flags, Size memory) {
    const auto change = estimate_for(flags, {.gpu = "h100", .gpu_memory = memory}).change;
    return change ? change->settings : Settings{"nothing"};
  };
  const Size whole = needed({"train.batch=6"});
  EXPECT_EQ(found({}, whole), Settings{"nothing"}) << "it fits as it is";
  const Size three = needed({"train.batch=3", "train.accumulation=2"});
  const Size two = needed({"train.batch=2", "train.accumulation=3"});
  const Size one = needed({"train.batch=1", "train.accumulation=6"});
  ASSERT_LT(three, whole);
  ASSERT_LT(two, three);
  ASSERT_LT(one, two);
  EXPECT_THAT(found({}, three), ElementsAre("train.batch=3", "train.accumulation=2")) << "4 and 5 do not divide 6";
  EXPECT_THAT(found({}, three - 1), ElementsAre("train.batch=2", "train.accumulation=3"));
  EXPECT_THAT(found({}, one), ElementsAre("train.batch=1", "train.accumulation=6"));
  const Size small = needed({"train.batch=1", "train.accumulation=6", "train.memory=small"});
  ASSERT_LT(small, one);
  EXPECT_THAT(found({}, small), ElementsAre("train.memory=small", "train.batch=1", "train.accumulation=6"));
  const Estimate exact = estimate_for({}, {.gpu = "h100", .gpu_memory = one});
  EXPECT_EQ(exact.change.value().needed, one);
  EXPECT_EQ(exact.change->plan.engine_total() + exact.overhead, one);
}

TEST(FittingChangeFound, RoundsTheOptimizerOnlyInTheEnd) {
  const auto change = [](const Settings& flags, Size memory) {
    return estimate_for(flags, {.gpu = "h100", .gpu_memory = memory}).change;
  };
  const auto needed = [](const Settings& flags) {
    return estimate_for(flags, {.gpu = "h100", .gpu_memory = std::nullopt}).needed;
  };
  const Settings least{"train.batch=1", "train.memory=small"};
  const auto with = [&](const Settings& more) {
    Settings all = least;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Size eight = needed(with({"optim.moments=fp8"}));
  const Size sixteen = needed(with({"optim.moments=bf16"}));
  const Size all = needed(with({"optim.moments=fp8", "optim.master=bf16-stochastic"}));
  ASSERT_LT(sixteen, needed(least));
  ASSERT_LT(eight, sixteen);
  ASSERT_LT(all, eight);
  EXPECT_THAT(change(least, sixteen).value().settings, ElementsAre("optim.moments=bf16"));
  EXPECT_THAT(change(least, eight).value().settings, ElementsAre("optim.moments=fp8"));
  EXPECT_THAT(change(with({"optim.moments=bf16"}), eight).value().settings, ElementsAre("optim.moments=fp8"));
  EXPECT_THAT(change(least, all).value().settings, ElementsAre("optim.moments=fp8", "optim.master=bf16-stochastic"));
  EXPECT_FALSE(change(least, all - 1)) << "nothing is left to try";
  EXPECT_FALSE(change(with({"optim.moments=fp8", "optim.master=bf16-stochastic"}), all - 1));
}

TEST(EstimateJson, HasEveryFieldOfMemoryAndChange) {
  Estimate made_up;
  made_up.kind = HardwareKind::gpu;
  made_up.config.train.batch = 3;
  made_up.config.train.accumulation = 5;
  made_up.config.train.context = 7;
  made_up.config.train.steps = 11;
  made_up.device = "a device";
  made_up.plan = {.weights = 1,
                  .quantized_weights = 2,
                  .gradients = 3,
                  .optimizer = 4,
                  .activations = 5,
                  .scratch = 6,
                  .workspace = 7,
                  .transient = 8,
                  .checkpoint = 9};
  made_up.overhead = 10;
  made_up.overhead_origin = Origin::assumed;
  made_up.needed = 46;
  made_up.available = 40;
  made_up.available_how = "somehow";
  made_up.host_needed = 99;
  made_up.change = FittingChange{{"train.batch=1"}, "time", {}, 38};
  made_up.notes = {"a note"};
  const auto json = nlohmann::json::parse(estimate_json(made_up));
  EXPECT_EQ(json.at("memory_bytes"), nlohmann::json::parse(R"({
    "parts": {"weights": 1, "quantized_weights": 2, "gradients": 3, "optimizer": 4, "activations": 5, "scratch": 6,
              "workspace": 7, "passing": 8, "overhead": 10},
    "needed": 46, "overhead_origin": "assumed", "available": 40, "available_how": "somehow", "host_needed": 99,
    "fits": false, "change": {"settings": ["train.batch=1"], "cost": "time", "needed": 38}})"));
  EXPECT_EQ(json.at("batch"), 3);
  EXPECT_EQ(json.at("accumulation"), 5);
  EXPECT_EQ(json.at("context"), 7);
  EXPECT_EQ(json.at("steps"), 11);
  EXPECT_EQ(json.at("device"), "a device");
  EXPECT_EQ(json.at("device_kind"), "gpu");
  EXPECT_EQ(json.at("notes"), nlohmann::json{"a note"});
  EXPECT_TRUE(json.at("time").is_null());
  made_up.available.reset();
  made_up.change.reset();
  made_up.kind = HardwareKind::cpu;
  made_up.time = TimeEstimate{.seconds_per_step = 2, .origin = Origin::assumed, .how = "by a table"};
  made_up.tokens_per_step = 105;
  const auto unknown = nlohmann::json::parse(estimate_json(made_up));
  EXPECT_TRUE(unknown.at("memory_bytes").at("available").is_null());
  EXPECT_TRUE(unknown.at("memory_bytes").at("change").is_null());
  EXPECT_EQ(unknown.at("memory_bytes").at("fits"), true);
  EXPECT_EQ(unknown.at("memory_bytes").at("parts").at("checkpoint"), 9);
  EXPECT_EQ(unknown.at("time"), nlohmann::json::parse(R"({"seconds_per_step": 2.0, "tokens_per_second": 52.5,
    "seconds": 22.0, "origin": "assumed", "how": "by a table"})"));
}

TEST(EstimateText, ListsEveryPartAndNote) {
  Estimate made_up;
  made_up.plan = {.weights = Size{1} << 20,
                  .quantized_weights = Size{2} << 20,
                  .gradients = Size{3} << 20,
                  .optimizer = Size{4} << 20,
                  .activations = Size{5} << 20,
                  .scratch = Size{6} << 20,
                  .workspace = Size{7} << 20,
                  .transient = Size{8} << 20,
                  .checkpoint = Size{9} << 20};
  made_up.overhead_origin = Origin::assumed;
  made_up.needed = 1 << 20;
  made_up.available = Size{1023} << 20;
  made_up.time_missing = "a reason";
  made_up.notes = {"first", "second"};
  const std::string text = estimate_text(made_up);
  for (const char* part : {"  quantized weights          2.0 MiB\n", "  gradients                  3.0 MiB\n",
                           "  activations                5.0 MiB\n", "  scratch                    6.0 MiB\n",
                           "  engine workspace           7.0 MiB\n", "  transient                  8.0 MiB\n",
                           "  program, libraries         0.0 MiB   assumed\n", "  available               1023.0 MiB",
                           "it fits, and 1022.0 MiB are left\n", "\ntime: a reason\n", "note: first\nnote: second\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  made_up.available = Size{1} << 10;
  made_up.change = FittingChange{
      {"a=1"},
      "c",
      {.weights = 1 << 20, .gradients = 2 << 20, .activations = 3 << 20, .scratch = 4 << 20, .workspace = 5 << 20},
      1 << 10};
  EXPECT_THAT(estimate_text(made_up),
              HasSubstr("weights and optimizer 3.0 MiB, activations 7.0 MiB, workspace 5.0 MiB\n"));
  made_up.time = TimeEstimate{.seconds_per_step = 1, .origin = Origin::assumed, .how = "a table"};
  made_up.overhead_origin = Origin::measured;
  EXPECT_THAT(estimate_text(made_up), HasSubstr("\ntime, assumed\n"));
}

TEST(ParseBytes, TakesSpacesBeforeTheUnitAndNothingElse) {
  EXPECT_EQ(parse_bytes("24   GB"), 24'000'000'000);
  EXPECT_EQ(parse_bytes("1152921504606846976"), Size{1} << 60) << "2^60 is the most";
  EXPECT_THROW(parse_bytes("2000000TiB"), Error);
  EXPECT_THROW(parse_bytes("24GB "), Error);
  EXPECT_THROW(parse_bytes("24gb"), Error);
  EXPECT_THROW(parse_bytes("0.9"), Error) << "less than a byte";
  EXPECT_EQ(parse_bytes("1.6"), 2) << "to the nearest byte";
}

TEST(GpuModels, AreFoundByTheirWholeName) {
  EXPECT_THROW(find_gpu_model("h1"), Error);
  EXPECT_THROW(find_gpu_model(""), Error);
}

TEST(Vocabulary, IsTheConfigsOrThatOfBytesWhereThereIsNoData) {
  const auto vocab = [](const Settings& flags) {
    Settings all{"preset=tiny", "train.device=cpu"};
    all.insert(all.end(), flags.begin(), flags.end());
    return estimate(load_config({.files = {}, .texts = {}, .flags = all}),
                    {.gpu = "", .gpu_memory = std::nullopt, .timing = Timing::leave_out});
  };
  const Estimate said = vocab({"model.vocab=1024"});
  EXPECT_EQ(said.config.model.vocab, 1024);
  EXPECT_THAT(said.notes, IsEmpty());
  const Estimate bytes = vocab({"model.vocab=0"});
  EXPECT_EQ(bytes.config.model.vocab, 320) << "257 to a multiple of 64";
}

// The numbers of /proc/self/status are in units of 1024 bytes.
TEST(ProcessMemoryNow, IsInBytesAndBelowItsPeak) {
  std::vector<char> held(Size{48} << 20, 1);
  const ProcessMemory with = process_memory();
  EXPECT_GT(with.now, Size{48} << 20);
  constexpr Size lag = Size{1} << 20;  // the kernel adds a thread's pages up from time to time
  EXPECT_GE(with.peak + lag, with.now);
#ifdef QUAVER_SANITIZED
  return;  // the sanitizers keep what is freed
#endif
  held = std::vector<char>();
  const ProcessMemory without = process_memory();
  EXPECT_NEAR(static_cast<double>(with.now - without.now), 48.0 * 1024 * 1024, 2.0 * 1024 * 1024);
  EXPECT_GE(without.peak + lag, with.now);
}

TEST(MeasuredTime, SaysWhatWasMeasured) {
  const auto how = [](const char* layers, const char* width) {
    const Config config =
        load_config({.files = {},
                     .texts = {},
                     .flags = {"data.kind=synthetic", "preset=tiny", std::string("model.layers=") + layers,
                               std::string("model.width=") + width, "model.heads=2", "model.context=64",
                               "train.batch=6", "train.accumulation=3", "train.threads=1", "train.device=cpu"}});
    return estimate(config, {}).time.value().how;
  };
  const std::string large = how("80", "256");
  EXPECT_THAT(large, HasSubstr("steps of one and two layers on "));
  EXPECT_THAT(large, HasSubstr(", 6 × 64 tokens per micro-batch, scaled to 80 layers and 18 × 64 tokens"));
  const std::string small = how("2", "32");
  EXPECT_THAT(small, HasSubstr("steps of this model on "));
  EXPECT_THAT(small, HasSubstr(", 6 × 64 tokens per micro-batch, scaled to 18 × 64 tokens"));
}

}  // namespace
}  // namespace quaver
