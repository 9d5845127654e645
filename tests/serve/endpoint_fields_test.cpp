// Every field of a body comes from the record that it is named after: no two values of these runs are the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "serve/client.h"
#include "serve/endpoints.h"
#include "serve/sample_store.h"
#include "store/database.h"
#include "store/run_edits.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class AnswerFields : public ::testing::Test {
 protected:
  std::unique_ptr<RunRecorder> recorder_of(const RunDescription& run) const {
    return std::make_unique<RunRecorder>(folder_.store(), run, 0,
                                         [](const std::string& text) { ADD_FAILURE() << text; });
  }
  StorePool pool() const { return StorePool(folder_.store()); }
  StoreReader reader() const { return StoreReader(folder_.store()); }
  void execute(const std::string& sql) const {
    Database(folder_.store(), Database::Access::existing, std::chrono::seconds(5)).execute(sql);
  }
  json run_json(const std::string& id = "one") const {
    return json::parse(run_body(pool(), pool().all().at(0), reader(), id));
  }

  StoreFolder folder_;
};

TEST_F(AnswerFields, OfARunInTheList) {
  RunDescription run = describe_run("one", "first");
  run.seed = 17;
  run.group = "a group";
  run.unit = "images";
  {
    const auto recorder = recorder_of(run);
    const MetricValue values[] = {
        {"loss", 2.5}, {"validation_loss", 3.25}, {"validation_accuracy", 0.875}, {"tokens_per_second", 128}};
    recorder->metrics(40, values);
    AlertRecord alert;
    alert.step = alert.last_step = 3;
    recorder->alert(alert);
    alert.step = alert.last_step = 4;
    recorder->alert(alert);
    recorder->status(RunStatus::interrupted);
    ASSERT_TRUE(recorder->flush());
  }
  edit_run(folder_.store(), "one", {.name = "renamed", .tags = {{"z", "a"}}, .note = "a note", .hidden = true});
  execute("UPDATE runs SET started=1000.5, heartbeat=2000.25");
  const json expected{{"id", "one"},
                      {"store_folder", ""},
                      {"missing_folder", "…/one"},
                      {"name", "renamed"},
                      {"trained_name", "first"},
                      {"note", "a note"},
                      {"hidden", true},
                      {"deleted", nullptr},
                      {"model", "gpt"},
                      {"recipe", "fp8-delayed"},
                      {"status", "interrupted"},
                      {"started", 1000.5},
                      {"updated", 2000.25},
                      {"step", 40},
                      {"steps", 100},
                      {"tokens_per_step", 64},
                      {"unit", "images"},
                      {"loss", 2.5},
                      {"final_train_loss", 2.5},
                      {"validation_loss", 3.25},
                      {"validation_accuracy", 0.875},
                      {"tokens_per_second", 128.0},
                      {"eta_seconds", nullptr},
                      {"tags", {"z", "a"}},
                      {"alerts", 2},
                      {"critical_alerts", 0},
                      {"group", "a group"},
                      {"seed", 17}};
  EXPECT_EQ(json::parse(runs_body(pool())), json({{"runs", {expected}}, {"problems", json::array()}}));
  json described = run_json();
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(described[key], value) << key;
}

// A store may say anything: what is no number is left out.
TEST_F(AnswerFields, OfTheBestThatIsPossible) {
  const auto recorder = recorder_of(describe_run("one"));
  const auto best_told = [&](const std::string& document) {
    recorder->document("best", document);
    EXPECT_TRUE(recorder->flush());
    return run_json()["best"];
  };
  ASSERT_TRUE(recorder->flush());
  EXPECT_EQ(run_json()["best"], json::object());
  EXPECT_EQ(best_told(R"({"loss":0.5,"accuracy":0.75,"more":1})"), json({{"loss", 0.5}, {"accuracy", 0.75}}));
  EXPECT_EQ(best_told(R"({"loss":"<b>","accuracy":[1]})"), json::object());
  EXPECT_EQ(best_told("[1]"), json::object());
}

// 60 steps of 64 tokens are left, at 128 tokens per second.
TEST_F(AnswerFields, OfARunThatIsRunning) {
  const auto recorder = recorder_of(describe_run("one"));
  const MetricValue rate{"tokens_per_second", 128};
  recorder->metrics(40, {&rate, 1});
  ASSERT_TRUE(recorder->flush());
  const json run = run_json();
  EXPECT_EQ(run["status"], "running");
  EXPECT_EQ(run["eta_seconds"], 30.0);
  EXPECT_EQ(run["unit"], "tokens");
  EXPECT_TRUE(run["validation_accuracy"].is_null());
  EXPECT_TRUE(run["loss"].is_null());
}

TEST_F(AnswerFields, OfSitesStatisticsMemoryAndShares) {
  RunDescription run = describe_run("one");
  run.sites = {{"a.b/x", "a.b", "x", {"e4m3", "e5m2", "1x128", "current", "fp8-block", "asked for"}},
               {"a.c/w", "a.c", "w", {"bf16", "f32", "tensor", "none", "bf16", "kept"}}};
  run.statistics = {{"amax", "units", "largest", WorseWay::higher}, {"sqnr_db", "dB", "noise", WorseWay::lower}};
  run.memory = {{"weights", 1000}, {"gradients", 5}};
  run.shares = {{"e4m3", 0.75}, {"f32", 0.125}};
  recorder_of(run);
  const json told = run_json();
  EXPECT_EQ(told["sites"], json::array({{{"site", "a.b/x"},
                                         {"layer", "a.b"},
                                         {"role", "x"},
                                         {"rows", "e4m3"},
                                         {"columns", "e5m2"},
                                         {"block", "1x128"},
                                         {"policy", "current"},
                                         {"recipe", "fp8-block"},
                                         {"reason", "asked for"},
                                         {"limits", 0}},
                                        {{"site", "a.c/w"},
                                         {"layer", "a.c"},
                                         {"role", "w"},
                                         {"rows", "bf16"},
                                         {"columns", "f32"},
                                         {"block", "tensor"},
                                         {"policy", "none"},
                                         {"recipe", "bf16"},
                                         {"reason", "kept"},
                                         {"limits", 1}}}));
  EXPECT_EQ(told["limits"], json::parse(R"([{"nonfinite":{"above":[0.5,0.5]},"sqnr_deficit_db":{"above":[6.0,12.0]},
      "underflow_percent":{"above":[10.0,80.0]}},
      {"nonfinite":{"above":[0.5,0.5]},"shadow_cosine":{"below":[0.92,0.9]},"unmoved_percent":{"above":[97.51,99.5]}}])"));
  EXPECT_EQ(told["totals"], json::object());
  EXPECT_EQ(told["statistics"], json::array({{{"name", "amax"}, {"unit", "units"}, {"doc", "largest"}},
                                             {{"name", "sqnr_db"}, {"unit", "dB"}, {"doc", "noise"}}}));
  EXPECT_EQ(told["memory"], json({{"weights", 1000}, {"gradients", 5}}));
  EXPECT_EQ(told["shares"], json({{"e4m3", 0.75}, {"f32", 0.125}}));
  EXPECT_EQ(told["roles"], json::array({"x", "w"}));
  EXPECT_EQ(told["metrics"], json::array());
}

// Of an absolute path the last part is shown; everything else as it is.
TEST_F(AnswerFields, OfSettingsThatArePaths) {
  const std::pair<const char*, const char*> cases[] = {{"/home/a/b", "…/b"},
                                                       {"/home/a/b/", "…/b/"},
                                                       {"/b", "…/b"},
                                                       {"\"/home/a/b\"", "\"…/b\""},
                                                       {"\"/home/a/b/\"", "\"…/b/\""},
                                                       {"\"/b\"", "\"…/b\""},
                                                       {"/", "/"},
                                                       {"//", "//"},
                                                       {"\"/\"", "\"/\""},
                                                       {"a/b/c", "a/b/c"},
                                                       {"\"a/b\"", "\"a/b\""},
                                                       {"", ""},
                                                       {"\"", "\""},
                                                       {"./a", "./a"},
                                                       {"1/2", "1/2"},
                                                       {"\"\"", "\"\""},
                                                       {"[\"/home/a\"]", "[\"/home/a\"]"}};
  RunDescription run = describe_run("one");
  run.config.clear();
  for (std::size_t i = 0; i < std::size(cases); ++i) run.config.emplace_back(std::to_string(i), cases[i].first);
  recorder_of(run);
  const json config = run_json()["config"];
  ASSERT_EQ(config.size(), std::size(cases));
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    EXPECT_EQ(config[std::to_string(i)], cases[i].second) << cases[i].first;
  }
}

std::string nested_environment(int levels) {
  std::string text = R"("deep")";
  for (int i = 0; i < levels; ++i) text = R"({"a":)" + text + "}";
  return text;
}

TEST_F(AnswerFields, OfTheEnvironmentUpToThirtyTwoLevels) {
  const auto environment_of_run = [&](const std::string& text) {
    RunDescription run = describe_run("one");
    run.environment_json = text;
    recorder_of(run);
    return run_json()["environment"];
  };
  EXPECT_EQ(environment_of_run(nested_environment(32)), json::parse(nested_environment(32)));
  EXPECT_EQ(environment_of_run(nested_environment(33)), json::object());
  EXPECT_EQ(environment_of_run(R"({"a":["/x/y",{"b":"/z/w"},3],"c":"d"})"),
            json::parse(R"({"a":["…/y",{"b":"…/w"},3],"c":"d"})"));
  for (const char* text : {"[1]", "1", "\"a\"", "{", ""}) EXPECT_EQ(environment_of_run(text), json::object()) << text;
}

TEST_F(AnswerFields, OfChangedSettings) {
  recorder_of(describe_run("one"));
  const json good{{"step", 7}, {"key", "optim.learning_rate"}, {"before", "1"}, {"after", "2"}};
  const json later{{"step", 0}, {"key", "data.path"}, {"before", "/a/b"}, {"after", "/c/d"}};
  json document = json::array({good});
  for (const char* key : {"step", "key", "before", "after"}) {
    json without = good;
    without.erase(key);
    document.push_back(without);
    json wrong = good;
    wrong[key] = nullptr;
    document.push_back(wrong);
  }
  json fraction = good;
  fraction["step"] = 1.5;
  document.push_back(fraction);
  document.push_back(later);
  document.push_back("text");
  store_document(folder_.store(), "one", "settings", document.dump());
  json shown = later;
  shown["before"] = "…/b";
  shown["after"] = "…/d";
  EXPECT_EQ(run_json()["changed_settings"], json::array({good, shown}));
  store_document(folder_.store(), "one", "settings", "[");
  EXPECT_EQ(run_json()["changed_settings"], json::array());
}

TEST_F(AnswerFields, OfAlertsChangesEventsAndSamples) {
  {
    const auto recorder = recorder_of(describe_run("one", "first"));
    AlertRecord alert{.step = 3,
                      .last_step = 9,
                      .count = 4,
                      .rule = "saturation",
                      .severity = "critical",
                      .site = "a/w",
                      .value = 12.5,
                      .threshold = 1.25,
                      .text = "a text",
                      .meaning = "a meaning",
                      .remedy = "a remedy",
                      .act = "an act"};
    recorder->alert(alert);
    alert.step = 5;
    alert.site = std::nullopt;
    alert.act = std::nullopt;
    recorder->alert(alert);
    recorder->scale_change({7, "a/dy", "a reason", 2, 0.5, "e4m3", "bf16"});
    recorder->event(8, "a kind", "what happened");
    recorder->event(11, "another", "what happened then");
    recorder->sample(10, "Once");
    recorder->sample(12, "Twice");
    ASSERT_TRUE(recorder->flush());
  }
  json older{{"cause", 1},
             {"seen_in", "saturated_percent"},
             {"run", "one"},
             {"run_name", "first"},
             {"step", 3},
             {"last_step", 9},
             {"count", 4},
             {"rule", "saturation"},
             {"severity", "critical"},
             {"site", "a/w"},
             {"value", 12.5},
             {"threshold", 1.25},
             {"text", "a text"},
             {"meaning", "a meaning"},
             {"remedy", "a remedy"},
             {"act", "an act"}};
  json newer = older;  // a symptom of the older
  newer["step"] = 5;
  newer["site"] = nullptr;
  newer["act"] = nullptr;
  EXPECT_EQ(json::parse(alerts_body(pool().all().at(0), reader(), "one")), json({{"alerts", {newer, older}}}));
  EXPECT_EQ(json::parse(all_alerts_body(pool())), json({{"alerts", {newer, older}}}));
  EXPECT_EQ(json::parse(changes_body(reader(), "one")), json::parse(R"({"changes":[{"step":7,"site":"a/dy",
      "reason":"a reason","scale_before":2.0,"scale_after":0.5,"format_before":"e4m3","format_after":"bf16"}]})"));
  EXPECT_EQ(json::parse(events_body(reader(), "one")),
            json::parse(R"({"events":[{"step":8,"kind":"a kind","text":"what happened"},
                                      {"step":11,"kind":"another","text":"what happened then"}]})"));
  EXPECT_EQ(json::parse(samples_body(reader(), "one")),
            json::parse(R"({"samples":[{"step":10,"text":"Once"},{"step":12,"text":"Twice"}]})"));
}

TEST_F(AnswerFields, OfARunWithoutRecordsAreEmptyLists) {
  recorder_of(describe_run("one"));
  EXPECT_EQ(alerts_body(pool().all().at(0), reader(), "one"), R"({"alerts":[]})");
  EXPECT_EQ(all_alerts_body(pool()), R"({"alerts":[]})");
  EXPECT_EQ(changes_body(reader(), "one"), R"({"changes":[]})");
  EXPECT_EQ(events_body(reader(), "one"), R"({"events":[]})");
  EXPECT_EQ(samples_body(reader(), "one"), R"({"samples":[]})");
}

TEST_F(AnswerFields, ADocumentIsSentAsItIsOrSaysWhatMakesIt) {
  recorder_of(describe_run("one"));
  for (const auto& [kind, verb] :
       {std::pair("localization", "`quaver localize`"), {"calibration", "`quaver calibrate`"}}) {
    try {
      document_body(reader(), "one", kind);
      ADD_FAILURE() << "there is no " << kind;
    } catch (const NoSuchRecord& error) {
      EXPECT_THAT(error.what(), HasSubstr(kind));
      EXPECT_THAT(error.remedy(), HasSubstr(verb));
    }
    store_document(folder_.store(), "one", kind, R"({ "b": 1, "a": 2 })");
    EXPECT_EQ(document_body(reader(), "one", kind), R"({ "b": 1, "a": 2 })");
    store_document(folder_.store(), "one", kind, "{ broken");
    EXPECT_THROW(document_body(reader(), "one", kind), Error);
  }
}

}  // namespace
}  // namespace quaver::test
