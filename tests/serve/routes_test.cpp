// Routes, the page's files, and the responses to failures.
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/crc32c.h"

#include "serve/application.h"
#include "serve/assets.h"
#include "serve/client.h"
#include "serve/sample_store.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Header = std::pair<std::string, std::string>;

Request request_to(const std::string& method, const std::string& path, std::vector<Header> more = {}) {
  Request request;
  request.method = method;
  request.path = path;
  request.headers = std::move(more);
  request.headers.emplace_back("host", "localhost:8265");
  return request;
}

class Routes : public ::testing::Test {
 protected:
  StoreFolder folder_;
  StorePool pool_{folder_.store()};
  std::vector<std::string> failures_;
  Application application_{RequestGuard("127.0.0.1", 8265, ""),
                           pool_,
                           "change",
                           {.open_streams = [] { return std::size_t{5}; },
                            .failed = [this](const std::string& what) { failures_.push_back(what); }}};
};

TEST(FindTarget, KnowsEveryAddress) {
  const std::pair<const char*, Route> fixed[] = {{"/", Route::asset},
                                                 {"/app.js", Route::asset},
                                                 {"/app.css", Route::asset},
                                                 {"/api/events", Route::stream},
                                                 {"/api/server", Route::server},
                                                 {"/api/runs", Route::runs},
                                                 {"/api/alerts", Route::all_alerts}};
  for (const auto& [path, route] : fixed) {
    const auto target = find_target(path);
    ASSERT_TRUE(target) << path;
    EXPECT_EQ(target->route, route) << path;
    EXPECT_EQ(target->run, "") << path;
  }
  const std::pair<const char*, Route> of_run[] = {{"", Route::run},
                                                  {"/metrics", Route::metrics},
                                                  {"/numerics", Route::numerics},
                                                  {"/history", Route::history},
                                                  {"/histogram", Route::histogram},
                                                  {"/changes", Route::changes},
                                                  {"/alerts", Route::alerts},
                                                  {"/events", Route::events},
                                                  {"/samples", Route::samples},
                                                  {"/edit", Route::edit},
                                                  {"/removal", Route::removal},
                                                  {"/documents/localization", Route::document},
                                                  {"/documents/calibration", Route::document}};
  for (const auto& [part, route] : of_run) {
    const auto target = find_target(std::string("/api/runs/Az09_-") + part);
    ASSERT_TRUE(target) << part;
    EXPECT_EQ(target->route, route) << part;
    EXPECT_EQ(target->run, "Az09_-") << part;
    EXPECT_EQ(target->document, route == Route::document ? std::string(part).substr(11) : "") << part;
  }
}

TEST(FindTarget, TakesIdsOfOneToSixtyFourLettersDigitsAndMarks) {
  const std::string longest(64, 'a');
  EXPECT_EQ(find_target("/api/runs/" + longest)->run, longest);
  EXPECT_EQ(find_target("/api/runs/" + longest + "/edit")->route, Route::edit);
  EXPECT_FALSE(find_target("/api/runs/" + longest + "a"));
  for (const char* id : {"a", "z", "A", "Z", "0", "9", "_", "-", "2026-01-02_x"}) {
    EXPECT_TRUE(find_target(std::string("/api/runs/") + id)) << id;
  }
  for (const char* id : {"", "`", "{", "@", "[", ":", ".", " ", "+", "%41", "a.b", "ä"}) {
    EXPECT_FALSE(find_target(std::string("/api/runs/") + id)) << id;
  }
  for (const char* path : {"", "/api/run", "/api/runs/a/documents", "/api/runs/a/documents/", "/api/runs/a/document",
                           "/api/runs/a/documents/localizations", "/api/runs/a/metrics/", "/api/event", "/app.cs"}) {
    EXPECT_FALSE(find_target(path)) << path;
  }
}

TEST_F(Routes, EachFileOfThePageIsItself) {
  const struct {
    const char* path;
    const char* type;
    const char* holds;
  } files[] = {{"/", "text/html; charset=utf-8", "<html"},
               {"/app.js", "text/javascript; charset=utf-8", "addEventListener"},
               {"/app.css", "text/css; charset=utf-8", "color:"}};
  std::vector<std::string> tags;
  for (const auto& [path, type, holds] : files) {
    const Response response = application_.respond(request_to("GET", path));
    EXPECT_EQ(response.status, 200) << path;
    EXPECT_EQ(response.content_type, type) << path;
    EXPECT_THAT(std::string(response.content()), HasSubstr(holds)) << path;
    const std::string tag =
        fmt::format("\"{:08x}-{:x}\"", crc32c_by_bits(response.content()), response.content().size());
    EXPECT_THAT(response.headers, ElementsAre(Header("ETag", tag), Header("Cache-Control", "no-cache"))) << path;
    tags.push_back(tag);
  }
  EXPECT_EQ(find_asset("/index.html"), nullptr);
  EXPECT_EQ(find_asset(""), nullptr);
  const Response same = application_.respond(request_to("GET", "/app.js", {{"if-none-match", tags[1]}}));
  EXPECT_EQ(same.status, 304);
  EXPECT_EQ(same.content_type, "");
  EXPECT_THAT(same.headers, ElementsAre(Header("ETag", tags[1]), Header("Cache-Control", "no-cache")));
  for (const std::string& other : {tags[0], std::string("*"), std::string()}) {
    const Response again = application_.respond(request_to("GET", "/app.js", {{"if-none-match", other}}));
    EXPECT_EQ(again.status, 200) << other;
    EXPECT_FALSE(again.content().empty());
  }
}

TEST_F(Routes, EachAddressHasItsMethods) {
  for (const char* path : {"/", "/api/server", "/api/events"}) {
    EXPECT_EQ(application_.respond(request_to("HEAD", path)).status, 200) << path;
    const Response refused = application_.respond(request_to("POST", path));
    EXPECT_EQ(refused.status, 405) << path;
    EXPECT_THAT(refused.headers, ElementsAre(Header("Allow", "GET, HEAD"))) << path;
  }
  for (const char* method : {"GET", "HEAD", "PUT"}) {
    const Response refused = application_.respond(request_to(method, "/api/runs/a/edit"));
    EXPECT_EQ(refused.status, 405) << method;
    EXPECT_THAT(refused.headers, ElementsAre(Header("Allow", "POST"))) << method;
    EXPECT_EQ(json::parse(refused.body)["remedy"], "use POST");
  }
}

TEST_F(Routes, ChangesAreTakenAsJsonWhateverStandsBehindTheType) {
  for (const char* type : {"application/json", "application/json;charset=utf-8", "application/json ; charset=utf-8",
                           "application/json;", "application/json  "}) {
    EXPECT_FALSE(application_.respond_to_head(
        request_to("POST", "/api/runs/a/edit", {{"content-type", type}, {"x-quaver-token", "change"}})))
        << type;
  }
  for (const char* type : {"", ";application/json", "application/jso", "application/json2", "text/json"}) {
    const auto refused = application_.respond_to_head(
        request_to("POST", "/api/runs/a/edit", {{"content-type", type}, {"x-quaver-token", "change"}}));
    ASSERT_TRUE(refused) << type;
    EXPECT_EQ(refused->status, 415) << type;
  }
}

TEST_F(Routes, OnlyWhatNeedsTheStoreWaitsForIt) {
  for (const char* path : {"/api/runs", "/api/alerts", "/api/runs/a", "/api/runs/a/metrics", "/api/runs/a/numerics",
                           "/api/runs/a/history", "/api/runs/a/histogram", "/api/runs/a/changes", "/api/runs/a/alerts",
                           "/api/runs/a/events", "/api/runs/a/samples", "/api/runs/a/documents/localization"}) {
    EXPECT_FALSE(application_.respond_to_head(request_to("GET", path))) << path;
  }
  EXPECT_EQ(application_.respond_to_head(request_to("GET", "/api/nothing"))->status, 404);
  const auto stream = application_.respond_to_head(request_to("GET", "/api/events"));
  ASSERT_TRUE(stream);
  EXPECT_EQ(stream->kind, Body::events);
  EXPECT_EQ(stream->content_type, "text/event-stream; charset=utf-8");
}

TEST_F(Routes, TheServerTellsItsStreamsAndItsToken) {
  const json open = json::parse(application_.respond(request_to("GET", "/api/server")).body);
  EXPECT_EQ(open, json({{"version", QUAVER_VERSION},
                        {"store", "quaver.db"},
                        {"folder", folder_.path().filename().string()},
                        {"depth", 0},
                        {"streams", 5},
                        {"token_required", false},
                        {"change_token", "change"}}));
  const Application guarded(RequestGuard("127.0.0.1", 8265, "secret"), pool_, "", {});
  const json told =
      json::parse(guarded.respond(request_to("GET", "/api/server", {{"authorization", "Bearer secret"}})).body);
  EXPECT_EQ(told["token_required"], true);
  EXPECT_EQ(told["streams"], 0);
  EXPECT_TRUE(told["change_token"].is_null());
}

TEST_F(Routes, AFailureIsToldOnceAndAnsweredWithoutFolders) {
  std::ofstream(folder_.store()) << "this is no database, but text of some length\n";
  const Response response = application_.respond(request_to("GET", "/api/runs"));
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, Not(HasSubstr(folder_.path().string())));
  ASSERT_EQ(failures_.size(), 1U);
  EXPECT_THAT(failures_[0], HasSubstr(folder_.store().string())) << "the terminal may know where";
}

TEST_F(Routes, WhatTheAskerGotWrongIsNoFailureOfTheServer) {
  record_run(folder_.store(), describe_run("one"));
  EXPECT_EQ(application_.respond(request_to("GET", "/api/runs/two")).status, 404);
  EXPECT_EQ(application_.respond(request_to("GET", "/api/runs/one/history")).status, 400);
  EXPECT_TRUE(failures_.empty());
  const Response tagged = application_.respond([] {
    Request request =
        request_to("POST", "/api/runs/one/edit", {{"content-type", "application/json"}, {"x-quaver-token", "change"}});
    request.body = R"({"tags":["a"]})";
    return request;
  }());
  EXPECT_EQ(tagged.status, 204);
  EXPECT_EQ(tagged.content_type, "");
  EXPECT_TRUE(tagged.body.empty());
}

// Without a store the two lists are empty, and no run exists.
TEST_F(Routes, BeforeTheFirstRunNothingIsAFailure) {
  EXPECT_EQ(application_.respond(request_to("GET", "/api/alerts")).body, R"({"alerts":[]})");
  EXPECT_EQ(application_.respond(request_to("GET", "/api/runs")).body, R"({"problems":[],"runs":[]})");
  const Response run = application_.respond(request_to("GET", "/api/runs/one/alerts"));
  EXPECT_EQ(run.status, 404);
  EXPECT_THAT(run.body, HasSubstr("quaver train"));
  EXPECT_TRUE(failures_.empty());
}

// Every route leads to its own endpoint.
TEST_F(Routes, AddressesOfARunAnswerWithTheirOwnKind) {
  record_run(folder_.store(), describe_run("one"));
  store_document(folder_.store(), "one", "calibration", R"({"calibrated":1})");
  const std::pair<const char*, const char*> kinds[] = {{"", "config"},
                                                       {"metrics", "series"},
                                                       {"changes", "changes"},
                                                       {"alerts", "alerts"},
                                                       {"events", "events"},
                                                       {"samples", "samples"},
                                                       {"documents/localization", "baseline_loss"},
                                                       {"documents/calibration", "calibrated"}};
  for (const auto& [part, key] : kinds) {
    const std::string path = std::string("/api/runs/one") + (*part == '\0' ? "" : "/") + part;
    const Response response = application_.respond(request_to("GET", path));
    EXPECT_EQ(response.status, 200) << path;
    EXPECT_EQ(response.content_type, "application/json; charset=utf-8") << path;
    EXPECT_TRUE(json::parse(response.body).contains(key)) << path;
  }
  EXPECT_TRUE(json::parse(application_.respond(request_to("GET", "/api/alerts")).body).contains("alerts"));
}

}  // namespace
}  // namespace quaver::test
