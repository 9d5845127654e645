// The verbs that look before and during training: calibrate, localize, estimate, doctor; and what a run records and
// warns of by itself.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "support/variable.h"

#include "cli/command.h"
#include "engine/cpu/openblas.h"
#include "precision/recipe.h"
#include "store/reader.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// A verb on a model of two layers and on generated text: milliseconds a batch, on every machine the same.
Words tiny(const std::string& verb, const Words& more = {}) {
  return Words{verb,
               "--preset=tiny",
               "--data.kind=synthetic",
               "--data.synthetic_vocab=16",
               "--model.layers=2",
               "--model.width=64",
               "--model.heads=2",
               "--model.context=16",
               "--train.batch=2",
               "--train.eval_batches=1",
               "--train.threads=1",
               "--device=cpu"} +
         more;
}

Words short_calibration(const Words& more) {
  return tiny("calibrate", Words{"--recipe=fp8-static", "--batches", "4", "--warmup-steps", "2"} + more);
}

Words short_localization(const Words& more) {
  return tiny("localize", Words{"--recipe=mxfp4", "--group", "layer", "--batches", "2", "--warmup-steps", "1"} + more);
}

// Exit status 1, a message with these parts, and a remedy below it.
void expect_error(const Outcome& outcome, const Words& parts) {
  EXPECT_EQ(outcome.status, 1) << outcome.out << outcome.error;
  EXPECT_THAT(outcome.error, ::testing::StartsWith("quaver: "));
  EXPECT_THAT(outcome.error, HasSubstr("\n  → ")) << "no remedy";
  for (const std::string& part : parts) EXPECT_THAT(outcome.error, HasSubstr(part));
}

json parsed(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(json::accept(outcome.out)) << outcome.out;
  return json::parse(outcome.out, nullptr, false);
}

std::string run_id_in(const fs::path& run) {
  const std::string text = contents(run / "run_id");
  return text.substr(0, text.find('\n'));
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const RecipeInfo& info : recipes()) names.emplace_back(info.name);
  return names;
}

bool holds_files(const fs::path& folder) { return fs::exists(folder) && !fs::is_empty(folder); }

// While this lives the program finds no CUDA engine, whatever the machine has.
struct NoGpu : Variable {
  NoGpu() : Variable("QUAVER_CUDA_MODULE", "/nowhere/quaver_cuda.so") {}
};

TEST(CalibrateVerb, WritesScalesThatARunTrainsWith) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, short_calibration({"--out", "found/scales.json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("--precision.scales=found/scales.json"));
  EXPECT_THAT(contents(folder / "found/scales.html"), HasSubstr("<svg"));

  const Outcome run = quaver(folder, tiny("train", {"--recipe=fp8-static", "--precision.scales=found/scales.json",
                                                    "--steps=3", "--dir=runs/a"}));
  ASSERT_EQ(run.status, 0) << run.error;
  EXPECT_THAT(run.out, Not(HasSubstr("warning"))) << "a site has no scale, or one that does not fit";
  const json found = json::parse(contents(folder / "found/scales.json"))["sites"];
  const json used = json::parse(contents(folder / "runs/a/scales.json"))["sites"];
  std::size_t scaled = 0;
  for (const auto& [site, entry] : found.items()) {
    const bool is_scaled = entry["scale"].get<double>() > 0 && entry["spec"]["rows"]["policy"] == "fixed";
    if (!is_scaled) continue;
    ++scaled;
    EXPECT_EQ(used[site]["scale"], entry["scale"]) << site;
  }
  EXPECT_EQ(scaled, 2U * 4U * 3U) << "four layers a block, three operands each";
}

TEST(CalibrateVerb, RepeatsItselfAndReportsDrift) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, short_calibration({"--out", "first.json", "--margin", "2"})).status, 0);
  const Words again{"--margin", "2", "--against", "first.json", "--json", "--out"};
  const json same = parsed(quaver(folder, short_calibration(again + Words{"same.json"})));
  EXPECT_EQ(contents(folder / "same.json"), contents(folder / "first.json"));
  for (const json& site : same["drift"]) EXPECT_EQ(site["binades"], 0.0) << site;

  const json other = parsed(quaver(folder, short_calibration(again + Words{"other.json", "--seed=7"})));
  ASSERT_EQ(other["drift"].size(), same["drift"].size());
  double most = 0;
  for (const json& site : other["drift"]) {
    const double binades = site["binades"];
    EXPECT_NEAR(binades, std::log2(site["amax_now"].get<double>() / site["amax_before"].get<double>()), 1e-5);
    if (!site["headroom_log2"].is_null()) {  // of sites that have a scale
      EXPECT_NEAR(site["headroom_log2"].get<double>(), 2 - binades, 1e-4) << site;
    }
    most = std::max(most, std::abs(binades));
  }
  EXPECT_GT(most, 0) << "another seed has the same ranges";

  const Outcome shown = quaver(folder, short_calibration({"--against", "first.json", "--out", "c.json", "--seed=7"}));
  EXPECT_THAT(shown.out, HasSubstr("since first.json"));
  EXPECT_THAT(shown.out, HasSubstr("headroom left"));
  EXPECT_THAT(contents(folder / "c.html"), HasSubstr("Drift"));
}

TEST(CalibrateVerb, LooksAtTheWeightsOfARun) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny("train", {"--steps=3", "--dir=runs/a"})).status, 0);
  const json output =
      parsed(quaver(folder, {"calibrate", "--run", "runs/a", "--batches", "2", "--json", "--out", "s.json"}));
  EXPECT_EQ(output["source"], "runs/a at step 3");
  EXPECT_EQ(output["batches"], 2);
  expect_error(quaver(folder, {"calibrate", "--run", "runs/a", "--step", "2", "--out", "t.json"}),
               {"the newest step is 3"});
  expect_error(quaver(folder, short_calibration({"--step", "2", "--out", "t.json"})), {"add --run"});
}

TEST(CalibrateVerb, FilesThatAreNoScalesAreRefused) {
  const TemporaryFolder folder;
  const Words training = tiny("train", {"--recipe=fp8-static", "--steps=3", "--dir=runs/a"});
  for (const char* text : {"", "{\"sites\":", "{}", "[1, 2]", "{\"version\": 1, \"sites\": 3}"}) {
    folder.write("bad.json", text);
    expect_error(quaver(folder, training + Words{"--precision.scales=bad.json"}), {"scale file"});
    expect_error(quaver(folder, short_calibration({"--against", "bad.json", "--out", "s.json"})),
                 {"bad.json", "quaver calibrate"});
  }
  expect_error(quaver(folder, training + Words{"--precision.scales=nowhere.json"}),
               {"nowhere.json", "precision.scales"});
  expect_error(quaver(folder, short_calibration({"--against", "nowhere.json", "--out", "s.json"})), {"nowhere.json"});
  EXPECT_FALSE(fs::exists(folder / "s.json"));
  EXPECT_FALSE(holds_files(folder / "runs/a")) << "a refused run leaves nothing";
}

TEST(CalibrateVerb, ReplacesNothing) {
  const TemporaryFolder folder;
  folder.write("s.json", "mine");
  expect_error(quaver(folder, short_calibration({"--out", "s.json"})), {"s.json is there already"});
  folder.write("t.html", "mine");
  expect_error(quaver(folder, short_calibration({"--out", "t.json"})), {"t.html is there already"});
  expect_error(quaver(folder, short_calibration({"--out", "u.html"})), {".json"});
  EXPECT_EQ(contents(folder / "s.json") + contents(folder / "t.html"), "minemine");
}

TEST(LocalizeVerb, WritesAPlanThatARunTrainsWithAndRecords) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, short_localization({"--budget", "0.5%", "--out", "map"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("plans measured whole"));
  EXPECT_THAT(contents(folder / "map/report.html"), HasSubstr("<svg"));
  const json map = json::parse(contents(folder / "map/localization.json"));
  EXPECT_EQ(map["recipe"], "mxfp4");
  EXPECT_EQ(map["budget"], 0.005);

  const Outcome run = quaver(folder, tiny("train", {"map/precision.toml", "--steps=3", "--dir=runs/a"}));
  ASSERT_EQ(run.status, 0) << run.error;
  const std::string id = run_id_in(folder / "runs/a");
  const StoreReader store(folder / "runs/quaver.db");
  const auto recorded = store.document(id, "localization");
  ASSERT_TRUE(recorded.has_value());
  EXPECT_EQ(json::parse(*recorded), map);
  std::map<std::string, std::string> trained;
  for (const SiteDescription& site : store.run(id).sites) trained[site.name] = site.state.recipe;
  std::set<std::string> on_ladder;
  for (const json& site : map["sites"]) {
    if (!site["tried"].get<bool>()) continue;
    const json& ladder_recipe = site["ladder_recipe"];
    const std::string planned = site["kept_wide"].get<bool>() ? "bf16"
                                : ladder_recipe.is_null()     ? "mxfp4"
                                                              : ladder_recipe;
    EXPECT_EQ(trained.at(site["site"]), planned);
    if (!ladder_recipe.is_null()) on_ladder.insert(site["site"]);
  }
  EXPECT_FALSE(on_ladder.empty()) << "half a percent is too little for MXFP4 everywhere, and none too little for FP8";
  EXPECT_THAT(outcome.out, HasSubstr("down the ladder, each with everything else in high precision:"));
  EXPECT_THAT(contents(folder / "map/report.html"), HasSubstr("Down the ladder"));
}

TEST(LocalizeVerb, IsRecordedBesideTheRunItLookedAt) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny("train", {"--steps=3", "--dir=runs/a"})).status, 0);
  const Words look{"localize", "--run", "runs/a", "--recipe=mxfp4", "--group", "block", "--batches", "2"};
  const Outcome outcome = quaver(folder, look + Words{"--out", "map"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("each block alone"));
  const std::string ranking = outcome.out.substr(0, outcome.out.find("down the ladder"));
  for (const char* block : {"\nblocks.0 ", "\nblocks.1 "}) {
    const std::size_t place = ranking.find(block);
    ASSERT_NE(place, std::string::npos) << block << outcome.out;
    EXPECT_EQ(ranking.find(block, place + 1), std::string::npos) << "a line a block";
  }
  EXPECT_THAT(outcome.out, Not(HasSubstr("blocks.0.attn"))) << "its operands were not tried by themselves";
  const auto recorded = StoreReader(folder / "runs/quaver.db").document(run_id_in(folder / "runs/a"), "localization");
  ASSERT_TRUE(recorded.has_value());
  EXPECT_EQ(*recorded, contents(folder / "map/localization.json"));

  std::filesystem::remove(folder / "runs/quaver.db");
  EXPECT_EQ(quaver(folder, look + Words{"--out", "again"}).status, 0) << "a run without a record has nothing to add to";
}

TEST(LocalizeVerb, ABudgetOfNothingKeepsAllInHighPrecisionAndALargeOneNothing) {
  const TemporaryFolder folder;
  const json none = parsed(quaver(folder, short_localization({"--budget", "0", "--json", "--out", "none"})));
  const json all = parsed(quaver(folder, short_localization({"--budget", "100%", "--json", "--out", "all"})));
  EXPECT_EQ(none["chosen"]["narrow_sites"], 0);
  EXPECT_EQ(all["chosen"]["narrow_sites"], 2 * 4 * 3);
  EXPECT_EQ(none["trials"][0], [&] {
    json exceeded = all["trials"][0];
    exceeded["holds"] = false;
    return exceeded;
  }()) << "the whole recipe is measured the same whatever the budget";
  EXPECT_EQ(json::parse(contents(folder / "all/localization.json")), all);
  const Outcome run =
      quaver(folder, tiny("train", {"none/precision.toml", "--recipe=mxfp4", "--steps=3", "--dir=runs/a", "--json"}));
  EXPECT_EQ(run.status, 0) << run.error;
  EXPECT_THAT(run.out, HasSubstr("\"narrow_percent\":0.0"));
}

TEST(LocalizeVerb, RefusesWhatMakesNoSense) {
  const TemporaryFolder folder;
  expect_error(quaver(folder, tiny("localize", {"--recipe=bf16", "--out", "map"})),
               {"nothing to localize", "--recipe"});
  expect_error(quaver(folder, short_localization({"--budget", "lots", "--out", "map"})), {"lots", "0.25%"});
  expect_error(quaver(folder, short_localization({"--group", "model", "--out", "map"})), {"--group"});
  EXPECT_FALSE(fs::exists(folder / "map"));
  folder.write("map/localization.json", "{}");
  expect_error(quaver(folder, short_localization({"--out", "map"})), {"already holds a localization"});
  EXPECT_EQ(contents(folder / "map/localization.json"), "{}");
}

TEST(DoctorVerb, AMissingGpuIsNoFault) {
  const NoGpu none;
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, {"doctor"});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("optional, not found"));
  EXPECT_THAT(outcome.out, HasSubstr("all checks passed"));
  for (const std::string& recipe : recipe_names()) EXPECT_THAT(outcome.out, HasSubstr("\n  " + recipe + " "));
}

TEST(DoctorVerb, TellsProgramsWhatEveryRecipeRunsAs) {
  const NoGpu none;
  const TemporaryFolder folder;
  const json report = parsed(quaver(folder, {"doctor", "--json"}));
  EXPECT_EQ(report["healthy"], true);
  EXPECT_EQ(report["broken"], json::array());
  std::vector<std::string> listed;
  for (const json& recipe : report["recipes"]) {
    listed.push_back(recipe["recipe"]);
    EXPECT_NE(recipe["cpu"]["level"], "unavailable") << recipe;
    EXPECT_EQ(recipe["gpu"]["level"], "unavailable") << recipe;
    EXPECT_NE(recipe["gpu"]["how"], "") << recipe;
  }
  EXPECT_THAT(listed, ::testing::UnorderedElementsAreArray(recipe_names()));
  ASSERT_EQ(report["products"].size(), 1U);
  EXPECT_EQ(report["products"][0]["good"], true);
  EXPECT_LE(report["products"][0]["error"].get<double>(), report["products"][0]["bound"].get<double>());
}

TEST(DoctorVerb, SaysWhichKernelsOpenBlasMultipliesWith) {
  if (vector_unit() != VectorUnit::avx512) GTEST_SKIP() << "OpenBLAS has no choice that matters";
  const NoGpu none;
  const TemporaryFolder folder;
  const auto kernels = [&](const std::optional<std::string>& asked_for) {
    const Variable variable("OPENBLAS_CORETYPE", asked_for);
    return parsed(quaver(folder, {"doctor", "--json"}))["processor"]["openblas"].get<std::string>();
  };
  EXPECT_EQ(kernels("Haswell"), "Haswell");
  EXPECT_THAT(kernels(std::nullopt), Not(AnyOf("Haswell", "Zen", "Prescott")));
}

TEST(EstimateVerb, PrintsMemoryByPurposeAndTheTime) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, tiny("estimate", {"--recipe=fp8-delayed"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  for (const char* line : {"weights ", "gradients ", "optimizer ", "activations ", "total ", "it fits", "per step "}) {
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("\n  {}", line)));
  }
  EXPECT_THAT(outcome.out, HasSubstr("time, measured"));
  EXPECT_FALSE(fs::exists(folder / "runs")) << "an estimate leaves nothing";
}

TEST(EstimateVerb, ItsPartsAddUp) {
  const TemporaryFolder folder;
  const json output = parsed(quaver(folder, tiny("estimate", {"--no-time", "--json", "--steps=50"})));
  const json& memory = output["memory_bytes"];
  std::int64_t sum = 0;
  for (const auto& [part, bytes] : memory["parts"].items()) sum += bytes.get<std::int64_t>();
  EXPECT_EQ(memory["needed"], sum);
  EXPECT_EQ(memory["fits"], true);
  EXPECT_EQ(memory["parts"]["weights"], 4 * output["parameters"].get<std::int64_t>());
  EXPECT_TRUE(output["time"].is_null());
  EXPECT_EQ(output["tokens_per_step"], 2 * 16);
  EXPECT_EQ(output["total_flops"], 50 * 2 * 16 * output["flops_per_token"].get<double>());
}

TEST(EstimateVerb, SaysWhatDoesNotFitAndWhatWould) {
  const TemporaryFolder folder;
  const Words big{"estimate", "--preset=gpt-350m", "--data.kind=synthetic", "--no-time", "--gpu",
                  "h100",     "--gpu-memory"};
  const Outcome small = quaver(folder, big + Words{"2GiB"});
  EXPECT_EQ(small.status, 0) << small.error;
  EXPECT_THAT(small.out, HasSubstr("it does not fit: "));
  EXPECT_THAT(small.out, HasSubstr("no setting makes it fit"));
  EXPECT_TRUE(parsed(quaver(folder, big + Words{"2GiB", "--json"}))["memory_bytes"]["change"].is_null());

  const Words tight = big + Words{"20GiB", "--batch=64"};
  EXPECT_THAT(quaver(folder, tight).out, HasSubstr("\n  fits with --train.batch="));
  const json offered = parsed(quaver(folder, tight + Words{"--json"}))["memory_bytes"];
  EXPECT_EQ(offered["fits"], false);
  Words changed = big + Words{"20GiB", "--json"};
  for (const json& setting : offered["change"]["settings"]) changed.push_back("--" + setting.get<std::string>());
  const json after = parsed(quaver(folder, changed))["memory_bytes"];
  EXPECT_EQ(after["fits"], true) << "what was offered does not fit";
  EXPECT_EQ(after["needed"], offered["change"]["needed"]);
}

TEST(EstimateVerb, AnUnknownGpuNamesTheKnown) {
  const TemporaryFolder folder;
  expect_error(quaver(folder, tiny("estimate", {"--gpu", "z80"})),
               {"z80", "h100", "h200", "a100-80gb", "--gpu-memory"});
  expect_error(quaver(folder, tiny("estimate", {"--gpu", "h100", "--gpu-memory", "2parsec"})), {"2parsec", "80GiB"});
}

TEST(RunStore, LiesBesideTheRunAndKnowsItByItsId) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny("train", {"--steps=3", "--dir=runs/a"})).status, 0);
  const std::string id = run_id_in(folder / "runs/a");
  EXPECT_NE(id, "");
  ASSERT_EQ(quaver(folder, {"train", "--resume", "runs/a", "--steps=5"}).status, 0);
  EXPECT_EQ(run_id_in(folder / "runs/a"), id) << "a run that goes on is the same run";
  ASSERT_EQ(quaver(folder, tiny("train", {"--steps=3", "--dir=runs/b"})).status, 0);
  EXPECT_NE(run_id_in(folder / "runs/b"), id);

  const StoreReader store(folder / "runs/quaver.db");
  ASSERT_EQ(store.runs().size(), 2U);
  const RunSummary run = store.run(id).summary;
  EXPECT_EQ(run.status, RunStatus::finished);
  EXPECT_EQ(run.step, 5U);
  EXPECT_EQ(store.metrics(id, {}).at("loss").step.size(), 5U);
}

TEST(RunStore, GoesWhereItIsToldOrNowhere) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, tiny("train", {"--steps=3", "--dir=none/a", "--run.store=none"})).status, 0);
  EXPECT_TRUE(fs::exists(folder / "none/a/metrics.jsonl"));
  EXPECT_FALSE(fs::exists(folder / "none/quaver.db"));
  EXPECT_EQ(run_id_in(folder / "none/a").size(), 16U);  // a run has an id, whether or not a store knows it
  EXPECT_FALSE(fs::exists(folder / "none/a/quaver.db"));

  ASSERT_EQ(quaver(folder, tiny("train", {"--steps=3", "--dir=some/a", "--run.store=all.db"})).status, 0);
  EXPECT_FALSE(fs::exists(folder / "some/quaver.db"));
  EXPECT_EQ(StoreReader(folder / "all.db").runs().at(0).id, run_id_in(folder / "some/a"));
}

// Gradients under a scale that sends them all to zero.
Words lost_gradients(const Words& more) {
  return tiny("train",
              Words{"--recipe=fp8-static", "--precision.static_gradient_scale=1e-6", "--precision.recalibrate_every=0",
                    "--train.statistics_every=1", "--steps=12", "--dir=runs/a"} +
                  more);
}

std::vector<AlertRecord> alerts_of(const TemporaryFolder& folder, const std::string& rule) {
  std::vector<AlertRecord> alerts;
  for (const RunAlert& entry : StoreReader(folder / "runs/quaver.db").alerts()) {
    if (entry.alert.rule == rule) alerts.push_back(entry.alert);
  }
  return alerts;
}

TEST(Alerts, AWarningNamesTheSiteAndWhatToTry) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, lost_gradients({}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, ContainsRegex("critical: step [0-9]+: blocks\\.[01]\\.[a-z.]+/dy: [^\n]* To try: "));
  EXPECT_THAT(outcome.out, Not(HasSubstr("from now on"))) << "acted without being asked";
  const auto alerts = alerts_of(folder, "underflow");
  ASSERT_FALSE(alerts.empty());
  for (const AlertRecord& alert : alerts) {
    EXPECT_THAT(alert.site.value_or(""), ::testing::EndsWith("/dy"));
    EXPECT_GT(alert.value, alert.threshold);
    EXPECT_GE(alert.count, 2U) << "nothing was done about it, so it goes on";
    EXPECT_FALSE(alert.act.has_value());
  }
}

TEST(Alerts, TheActIsPrintedAndRecorded) {
  const TemporaryFolder folder;
  const Outcome outcome = quaver(folder, lost_gradients({"--guard.act_on_alerts=true"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, ContainsRegex("warning: step [0-9]+: blocks\\.[01]\\.[a-z.]+/dy: stored in bf16 from now on "
                                         "\\(alert underflow\\)"));
  const auto alerts = alerts_of(folder, "underflow");
  ASSERT_FALSE(alerts.empty());
  const RunDetails run = StoreReader(folder / "runs/quaver.db").run(run_id_in(folder / "runs/a"));
  for (const AlertRecord& alert : alerts) {
    EXPECT_TRUE(alert.act.has_value()) << alert.text;
    const auto site = std::find_if(run.sites.begin(), run.sites.end(),
                                   [&](const SiteDescription& entry) { return entry.name == alert.site; });
    ASSERT_NE(site, run.sites.end());
    EXPECT_EQ(site->state.rows, "bf16") << site->name;
  }
}

TEST(Alerts, AnActIsTakenBackOnResuming) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, lost_gradients({"--guard.act_on_alerts=true"})).status, 0);
  const auto alerts = alerts_of(folder, "underflow");
  ASSERT_FALSE(alerts.empty());
  const std::string site = alerts.front().site.value_or("");
  const Outcome outcome = quaver(folder, {"train", "--resume", "runs/a", "--take-back", site, "--steps=13"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr(site + ": took back \"alert underflow\"; stored as e5m2"));
  const RunDetails run = StoreReader(folder / "runs/quaver.db").run(run_id_in(folder / "runs/a"));
  const auto entry = std::ranges::find(run.sites, site, &SiteDescription::name);
  ASSERT_NE(entry, run.sites.end()) << site;
  EXPECT_EQ(entry->state.rows, "e5m2");
  expect_error(quaver(folder, {"train", "--resume", "runs/a", "--take-back", "head/w", "--steps=14"}),
               {"head/w", "no site that matches"});
  expect_error(quaver(folder, tiny("train", {"--take-back", "head/w"})), {"fresh run", "--resume"});
}

TEST(Alerts, CalibratedScalesRaiseNone) {
  const TemporaryFolder folder;
  ASSERT_EQ(quaver(folder, short_calibration({"--out", "scales.json"})).status, 0);
  const Outcome outcome = quaver(folder, lost_gradients({"--precision.scales=scales.json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, Not(HasSubstr("warning: step")));
  EXPECT_TRUE(alerts_of(folder, "underflow").empty());
}

}  // namespace
}  // namespace quaver::test
