// Every endpoint returns what the store holds, in the shape the page expects.
#include "serve/application.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "numerics/what_if.h"
#include "serve/client.h"
#include "serve/endpoints.h"
#include "serve/sample_store.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ApplicationTest : public ::testing::Test {
 protected:
  Response get(const std::string& target) const { return application_.respond(request("GET", target)); }
  json get_json(const std::string& target) const {
    const Response response = get(target);
    EXPECT_EQ(response.status, 200) << target << response.body;
    return json::parse(response.body);
  }
  Response post(const std::string& path, const std::string& body) const {
    Request sent = request("POST", path);
    sent.headers.emplace_back("content-type", "application/json");
    sent.headers.emplace_back("x-quaver-token", "secret");
    sent.body = body;
    return application_.respond(sent);
  }
  static Request request(const std::string& method, const std::string& target) {
    Request result;
    result.method = method;
    result.path = target.substr(0, target.find('?'));
    if (result.path.size() < target.size()) result.query = target.substr(result.path.size() + 1);
    result.headers = {{"host", "localhost:8265"}};
    return result;
  }

  StoreFolder folder_;
  StorePool pool_{folder_.store()};
  Application application_{RequestGuard("127.0.0.1", 8265, ""), pool_, "secret", {}};
};

TEST_F(ApplicationTest, WithoutAStoreTheListsAreEmptyAndFillWhenItAppears) {
  EXPECT_EQ(get("/api/runs").body, R"({"problems":[],"runs":[]})");
  EXPECT_EQ(get("/api/alerts").body, R"({"alerts":[]})");
  EXPECT_EQ(get("/api/runs/one").status, 404);
  EXPECT_EQ(post("/api/runs/one/edit", R"({"tags":[]})").status, 404);
  record_run(folder_.store(), describe_run("one"));
  EXPECT_EQ(get_json("/api/runs")["runs"].size(), 1U);
  std::filesystem::remove(folder_.store());
  EXPECT_EQ(get("/api/runs").body, R"({"problems":[],"runs":[]})");
}

TEST_F(ApplicationTest, AStoreThatIsNoneIsNamedWithoutItsFolders) {
  std::ofstream(folder_.store()) << "this is no database, but text of some length\n";
  const Response response = get("/api/runs");
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("quaver.db"));
  EXPECT_THAT(response.body, Not(HasSubstr(folder_.path().string())));
  EXPECT_FALSE(json::parse(response.body)["remedy"].get<std::string>().empty());
}

TEST_F(ApplicationTest, RunsAreListedAndDescribed) {
  record_run(folder_.store(), describe_run("one", "first"));
  record_run(folder_.store(), describe_run("two", "<script>alert(1)</script>"));
  const json runs = get_json("/api/runs")["runs"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0]["name"], "<script>alert(1)</script>");
  for (const char* key :
       {"id", "name", "model", "recipe", "status", "started", "updated", "step", "steps", "tokens_per_step", "loss",
        "validation_loss", "tokens_per_second", "eta_seconds", "tags", "alerts", "group", "seed"}) {
    EXPECT_TRUE(runs[0].contains(key)) << key;
  }
  EXPECT_EQ(runs[1]["status"], "finished");
  EXPECT_EQ(runs[1]["step"], sample_steps);
  EXPECT_EQ(runs[1]["loss"], 0.5);
  EXPECT_TRUE(runs[1]["validation_loss"].is_null());
  EXPECT_EQ(runs[1]["alerts"], 1);

  const json run = get_json("/api/runs/one");
  EXPECT_EQ(run["name"], "first");
  EXPECT_EQ(run["config"]["train.steps"], "20");
  EXPECT_EQ(run["environment"]["threads"], 2);
  EXPECT_EQ(run["sites"].size(), 9U);
  EXPECT_EQ(run["sites"][2]["site"], "blocks.0.mlp/dy");
  EXPECT_EQ(run["sites"][2]["rows"], "e4m3");
  EXPECT_EQ(run["statistics"].size(), statistic_count);
  EXPECT_EQ(run["shares"]["e4m3"], 0.75);
  EXPECT_EQ(run["memory"]["weights"], 1000);
  EXPECT_THAT(run["metrics"].get<std::vector<std::string>>(), ::testing::UnorderedElementsAre("loss", "gradient_norm"));
  EXPECT_EQ(run["roles"].size(), 3U);
}

TEST_F(ApplicationTest, ARunTellsItsChangesOfSettingsAndNothingElseThatSitsInTheirPlace) {
  record_run(folder_.store(), describe_run("one"));
  EXPECT_EQ(get_json("/api/runs/one")["changed_settings"], json::array());
  const json change{{"step", 7}, {"key", "data.path"}, {"before", "\"/home/a/old\""}, {"after", "\"/home/a/new\""}};
  const json nonsense = json::array({1, json::object(), {{"step", -1}, {"key", "a"}, {"before", "b"}, {"after", "c"}}});
  json document = nonsense;
  document.push_back(change);
  store_document(folder_.store(), "one", "settings", document.dump());
  const json told = get_json("/api/runs/one")["changed_settings"];
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0]["step"], 7);
  EXPECT_EQ(told[0]["before"], "\"…/old\"");
  EXPECT_EQ(told[0]["after"], "\"…/new\"");
  store_document(folder_.store(), "one", "settings", "{\"not\": \"a list\"}");
  EXPECT_EQ(get_json("/api/runs/one")["changed_settings"], json::array());
}

TEST(Tags, HaveOneToSixtyFourCharactersAndThereAreAtMostThirtyTwo) {
  const auto body = [](std::size_t count, std::size_t characters) {
    std::string tag;
    for (std::size_t i = 0; i < characters; ++i) tag += "ü";  // two bytes each
    return json{{"tags", std::vector<std::string>(count, tag)}}.dump();
  };
  EXPECT_EQ(edit_in(body(32, 64)).tags->size(), 32U);
  EXPECT_EQ(edit_in(body(1, 1)).tags->size(), 1U);
  EXPECT_TRUE(edit_in(body(0, 1)).tags->empty());
  EXPECT_THROW(edit_in(body(1, 65)), BadParameter);
  EXPECT_THROW(edit_in(body(33, 1)), BadParameter);
  EXPECT_THROW(edit_in(body(1, 0)), BadParameter);
}

TEST_F(ApplicationTest, NoAnswerShowsWhereThisMachineKeepsItsFiles) {
  record_run(folder_.store(), describe_run("one"));
  for (const char* path : {"/api/runs", "/api/runs/one", "/api/server", "/api/alerts", "/api/runs/one/events"}) {
    const std::string body = get(path).body;
    EXPECT_THAT(body, Not(HasSubstr("/home"))) << path;
    EXPECT_THAT(body, Not(HasSubstr(folder_.path().string()))) << path;
  }
  const json run = get_json("/api/runs/one");
  EXPECT_EQ(run["config"]["data.path"], "\"…/mine\"");
  EXPECT_EQ(run["config"]["run.dir"], "…/runs");
  EXPECT_EQ(run["environment"]["program"], "…/quaver");
}

TEST_F(ApplicationTest, MetricsComeAsSeriesWithIncrements) {
  record_run(folder_.store(), describe_run("one"));
  const json series = get_json("/api/runs/one/metrics?names=loss,gradient_norm,absent&after=18")["series"];
  EXPECT_THAT(series["loss"]["step"], ElementsAre(19, 20));
  EXPECT_THAT(series["loss"]["value"], ElementsAre(10.0 / 19, 0.5)) << "numbers read back exactly";
  EXPECT_THAT(series["gradient_norm"]["value"], ElementsAre(nullptr, nullptr));
  const json thinned = get_json("/api/runs/one/metrics?names=loss&points=8")["series"]["loss"];
  EXPECT_LE(thinned["step"].size(), 12U);
  EXPECT_EQ(thinned["step"].front(), 1);
  EXPECT_EQ(thinned["step"].back(), 20);
}

TEST_F(ApplicationTest, NumericsComeAsAMatrixBehindAHeader) {
  record_run(folder_.store(), describe_run("one"));
  const Response response = get("/api/runs/one/numerics?statistic=amax&role=dy");
  ASSERT_EQ(response.status, 200);
  EXPECT_EQ(response.content_type, "application/octet-stream");
  std::uint32_t length = 0;
  ASSERT_GE(response.body.size(), sizeof length);
  std::memcpy(&length, response.body.data(), sizeof length);
  EXPECT_EQ((4 + length) % 4, 0U);
  const json header = json::parse(response.body.substr(4, length));
  EXPECT_EQ(header["statistic"], "amax");
  EXPECT_EQ(header["role"], "dy");
  EXPECT_EQ(header["aggregate"], "max");
  EXPECT_EQ(header["row_names"], json({"blocks.0.mlp", "blocks.1.mlp", "blocks.2.mlp"}));
  EXPECT_EQ(header["rows"][1], json({{"layer", "blocks.1.mlp"}, {"first", 1}, {"count", 1}}));
  EXPECT_EQ(header["steps"].size(), sample_steps);
  EXPECT_EQ(header["steps_per_column"], 1);
  std::vector<float> values(sample_layers * sample_steps);
  ASSERT_EQ(response.body.size(), 4 + length + values.size() * sizeof(float));
  std::memcpy(values.data(), response.body.data() + 4 + length, values.size() * sizeof(float));
  for (std::size_t layer = 0; layer < sample_layers; ++layer) {
    for (std::uint64_t step = 1; step <= sample_steps; ++step) {
      const auto amax = static_cast<std::size_t>(Statistic::amax);
      EXPECT_EQ(values[layer * sample_steps + step - 1], sample_figure(step, 3 * layer + 2, amax));
    }
  }
}

TEST_F(ApplicationTest, ASitesHistoryHasEveryStatistic) {
  record_run(folder_.store(), describe_run("one"));
  const json history = get_json("/api/runs/one/history?site=blocks.1.mlp%2Fx");
  EXPECT_EQ(history["site"], "blocks.1.mlp/x");
  EXPECT_EQ(history["step"].size(), sample_steps);
  EXPECT_EQ(history["statistics"].size(), statistic_count);
  EXPECT_EQ(history["statistics"]["amax"][0].get<float>(), sample_figure(1, 3, 1));
  EXPECT_TRUE(history["statistics"]["gradient_snr"][0].is_null());
}

TEST_F(ApplicationTest, AHistogramHasItsFormatsRangeAndTheOtherFormats) {
  record_run(folder_.store(), describe_run("one"));
  const json histogram = get_json("/api/runs/one/histogram?site=blocks.0.mlp/x&step=20");
  EXPECT_EQ(histogram["counts"].size(), 64U);
  EXPECT_EQ(histogram["counts"][35], 135);
  EXPECT_EQ(histogram["first_binade"], -40);
  EXPECT_EQ(histogram["format"], "e4m3");
  EXPECT_EQ(histogram["scale"], 16);
  EXPECT_FALSE(histogram["steps"].empty());
  EXPECT_NEAR(histogram["range"]["max"].get<double>(), std::log2(448.0 / 16), 1e-6);
  EXPECT_NEAR(histogram["range"]["subnormal_below"].get<double>(), -6 - 4, 1e-6);
  EXPECT_LT(histogram["range"]["zero_below"].get<double>(), histogram["range"]["subnormal_below"].get<double>());
  ASSERT_EQ(histogram["what_if"].size(), what_if_formats().size());
  for (const json& row : histogram["what_if"]) {
    for (const char* key : {"format", "scale", "underflow_percent", "saturated_percent", "sqnr_db"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
  }
}

TEST_F(ApplicationTest, AHistogramUnderBlockScalesHasNoOneRange) {
  RunDescription description = describe_run("one");
  for (SiteDescription& site : description.sites) site.state.block = "1x128";
  description.statistics.erase(description.statistics.begin());  // no scale is recorded
  RunRecorder recorder(folder_.store(), description, 0, [](const std::string& text) { ADD_FAILURE() << text; });
  const std::vector<float> figures(9 * description.statistics.size(), 1);
  recorder.numerics(1, figures, std::vector<BinadeCounts>(9, BinadeCounts{}));
  ASSERT_TRUE(recorder.flush());
  const json histogram = get_json("/api/runs/one/histogram?site=blocks.0.mlp/x");
  EXPECT_TRUE(histogram["scale"].is_null());
  EXPECT_TRUE(histogram["range"].is_null());
}

TEST_F(ApplicationTest, WhatHappenedIsListed) {
  record_run(folder_.store(), describe_run("one"));
  const json change = get_json("/api/runs/one/changes")["changes"].at(0);
  EXPECT_EQ(change["site"], "blocks.0.mlp/x");
  EXPECT_EQ(change["scale_after"], 8);
  EXPECT_EQ(change["format_after"], "e5m2");
  for (const char* path : {"/api/runs/one/alerts", "/api/alerts"}) {
    const json alert = get_json(path)["alerts"].at(0);
    EXPECT_EQ(alert["run"], "one");
    EXPECT_EQ(alert["severity"], "warning");
    EXPECT_EQ(alert["text"], "<b>much underflow</b>");
    EXPECT_TRUE(alert["act"].is_null());
  }
  EXPECT_EQ(get_json("/api/runs/one/events")["events"].at(0)["kind"], "checkpoint");
  EXPECT_EQ(get_json("/api/runs/one/samples")["samples"].at(0)["text"], "Once upon a time");
  EXPECT_EQ(get_json("/api/runs/one/documents/localization")["baseline_loss"], 1.5);
  EXPECT_EQ(get("/api/runs/one/documents/calibration").status, 404);
  EXPECT_EQ(get("/api/runs/one/documents/other").status, 404);
}

TEST_F(ApplicationTest, TagsAreSetAsAWhole) {
  record_run(folder_.store(), describe_run("one"));
  EXPECT_EQ(post("/api/runs/one/edit", R"({"tags":["a","<b> \"quoted\" 'é'"]})").status, 204);
  EXPECT_THAT(get_json("/api/runs/one")["tags"], ElementsAre("a", "<b> \"quoted\" 'é'"));
  EXPECT_EQ(post("/api/runs/one/edit", R"({"tags":[]})").status, 204);
  EXPECT_TRUE(get_json("/api/runs/one")["tags"].empty());
  const std::string long_tag(65, 'a');
  json many{{"tags", json::array()}};
  for (int i = 0; i < 33; ++i) many["tags"].push_back(std::to_string(i));
  for (const std::string& body : {std::string(), std::string("[]"), std::string("{}"), std::string(R"({"tags":1})"),
                                  std::string(R"({"tags":[1]})"), std::string(R"({"tags":[""]})"),
                                  R"({"tags":[")" + long_tag + R"("]})", std::string(R"({"tags":["a\u0000b"]})"),
                                  std::string("{\"tags\":[\"\xff\"]}"), many.dump(), std::string(65536, '[')}) {
    EXPECT_EQ(post("/api/runs/one/edit", body).status, 400) << body.substr(0, 80);
  }
  EXPECT_EQ(post("/api/runs/absent/edit", R"({"tags":[]})").status, 404);
}

TEST_F(ApplicationTest, WhatIsNotThereIsNamed) {
  record_run(folder_.store(), describe_run("one"));
  const std::string long_id(65, 'a');
  for (const std::string& path :
       {std::string("/api"), std::string("/api/"), std::string("/api/runs/"), std::string("/api/runs/two"),
        std::string("/api/runs/one/"), std::string("/api/runs/one/other"), std::string("/api/runs//metrics"),
        std::string("/api/runs/'/metrics"), std::string("/api/runs/<b>"), std::string("/api/runs/.."),
        std::string("/api/runs/%6fne"), "/api/runs/" + long_id, std::string("/index.html"), std::string("//"),
        std::string("/app.js/"), std::string("/api/runs/one/numerics?statistic=amax&role=other"),
        std::string("/api/runs/one/numerics?statistic=other&role=x"), std::string("/api/runs/one/history?site=other"),
        std::string("/api/runs/one/histogram?site=%27%20or%201%3D1--")}) {
    const Response response = get(path);
    EXPECT_EQ(response.status, 404) << path << response.body;
    EXPECT_TRUE(json::parse(response.body).contains("remedy")) << path;
  }
  for (const char* path :
       {"/api/runs/one/history", "/api/runs/one/history?site=", "/api/runs/one/history?site=%00",
        "/api/runs/one/metrics?names=loss&points=0", "/api/runs/one/metrics?names=loss&after=-1",
        "/api/runs/one/numerics?role=x", "/api/runs/one/numerics?statistic=amax&role=x&columns=99999",
        "/api/runs/one/histogram?site=a&step=x"}) {
    EXPECT_EQ(get(path).status, 400) << path;
  }
}

TEST_F(ApplicationTest, MethodsAndContentTypesAreChecked) {
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"}) {
    const Response response = application_.respond(request(method, "/api/runs"));
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_THAT(response.headers, ElementsAre(std::pair<std::string, std::string>("Allow", "GET, HEAD")));
  }
  EXPECT_EQ(get("/api/runs/one/edit").status, 405);
  Request plain = request("POST", "/api/runs/one/edit");
  EXPECT_EQ(application_.respond(plain).status, 415);
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a",
                           "text/plain; application/json", "application/jsonp"}) {
    plain.headers = {{"host", "localhost:8265"}, {"content-type", type}};
    EXPECT_EQ(application_.respond_to_head(plain)->status, 415) << type;
  }
  plain.headers = {
      {"host", "localhost:8265"}, {"content-type", "application/json; charset=utf-8"}, {"x-quaver-token", "secret"}};
  EXPECT_FALSE(application_.respond_to_head(plain));
}

TEST_F(ApplicationTest, ThePageIsServedWithATagThatSavesSendingItAgain) {
  for (const auto& [path, type] :
       {std::pair("/", "text/html"), {"/app.js", "text/javascript"}, {"/app.css", "text/css"}}) {
    const Response response = get(path);
    EXPECT_EQ(response.status, 200);
    EXPECT_THAT(response.content_type, ::testing::StartsWith(type));
    EXPECT_FALSE(response.content().empty());
    Request again = request("GET", path);
    again.headers.emplace_back("if-none-match", response.headers.at(0).second);
    EXPECT_EQ(application_.respond(again).status, 304);
    EXPECT_TRUE(application_.respond(again).content().empty());
  }
  EXPECT_THAT(std::string(get("/").content()), HasSubstr("<html"));
}

TEST_F(ApplicationTest, TheServerSaysWhatItIs) {
  const json server = get_json("/api/server");
  EXPECT_EQ(server["store"], "quaver.db");
  EXPECT_EQ(server["token_required"], false);
  EXPECT_EQ(server["streams"], 0);
  EXPECT_FALSE(server["version"].get<std::string>().empty());
}

TEST_F(ApplicationTest, HostileRecordsStayData) {
  RunDescription hostile = describe_run("one", std::string(5000, 'n') + "\"</script>\xff\xfe");
  hostile.environment_json = std::string(100000, '[');
  hostile.config.emplace_back("\"key\"", "\xff");
  hostile.sites[0].name = "'; DROP TABLE runs; --";
  record_run(folder_.store(), hostile);
  const json run = get_json("/api/runs/one");
  EXPECT_TRUE(run["environment"].empty());
  EXPECT_EQ(get_json("/api/runs/one/history?site=%27%3B+DROP+TABLE+runs%3B+--")["step"].size(), sample_steps);
  EXPECT_EQ(get_json("/api/runs")["runs"].size(), 1U);
}

TEST(FindStore, KnowsWhatIsMeant) {
  const StoreFolder folder;
  EXPECT_EQ(find_store(folder.path()), folder.store());
  EXPECT_EQ(find_store(folder.path() / "absent"), folder.path() / "absent" / "quaver.db");
  EXPECT_EQ(find_store(folder.path() / "other.db"), folder.path() / "other.db");
  std::ofstream(folder.store()) << "x";
  EXPECT_EQ(find_store(folder.store()), folder.store());
  std::filesystem::create_directories(folder.path() / "run");
  std::ofstream(folder.path() / "run" / "config.toml") << "";
  EXPECT_EQ(std::filesystem::weakly_canonical(find_store(folder.path() / "run")),
            std::filesystem::weakly_canonical(folder.store()));
}

}  // namespace
}  // namespace quaver::test
