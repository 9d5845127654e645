// Changes of runs through the dashboard: each kind of change, and everything that is rejected.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "serve/application.h"
#include "serve/client.h"
#include "serve/endpoints.h"
#include "serve/sample_store.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Headers = std::vector<std::pair<std::string, std::string>>;

const Headers good_headers = {{"host", "localhost:8265"},
                              {"origin", "http://localhost:8265"},
                              {"sec-fetch-site", "same-origin"},
                              {"content-type", "application/json"},
                              {"x-quaver-token", "secret"}};

// The headers of a change, with one of them replaced; empty: left out.
Headers headers_but(const std::string& name, const std::string& value) {
  Headers headers = good_headers;
  std::erase_if(headers, [&](const auto& header) { return header.first == name; });
  if (!value.empty()) headers.emplace_back(name, value);
  return headers;
}

class ChangesTest : public ::testing::Test {
 protected:
  void SetUp() override { record_run(folder_.store(), describe_run("one", "first")); }

  Response post(const std::string& path, const std::string& body, const Headers& headers = good_headers,
                const std::string& method = "POST") const {
    Request request;
    request.method = method;
    request.path = path;
    request.headers = headers;
    request.body = body;
    return application_.respond(request);
  }
  int edit(const std::string& body, const Headers& headers = good_headers) const {
    return post("/api/runs/one/edit", body, headers).status;
  }
  json run(const std::string& id = "one") const {
    const Response response = post("/api/runs/" + id, "", good_headers, "GET");
    return response.status == 200 ? json::parse(response.body) : json();
  }

  StoreFolder folder_;
  StorePool pool_{folder_.store()};
  Application application_{RequestGuard("127.0.0.1", 8265, ""), pool_, "secret", {}};
};

TEST_F(ChangesTest, ARunIsRenamedTaggedAnnotatedHiddenDeletedAndRestored) {
  EXPECT_EQ(edit(R"({"name":"<b>new</b> é"})"), 204);
  EXPECT_EQ(run()["name"], "<b>new</b> é");
  EXPECT_EQ(run()["trained_name"], "first");
  EXPECT_EQ(edit(R"({"tags":["a","b"],"note":"two\nlines"})"), 204);
  EXPECT_EQ(run()["tags"], json({"a", "b"}));
  EXPECT_EQ(run()["note"], "two\nlines");
  EXPECT_EQ(run()["name"], "<b>new</b> é") << "what is not named stays";
  EXPECT_EQ(edit(R"({"hidden":true})"), 204);
  EXPECT_EQ(run()["hidden"], true);
  EXPECT_EQ(edit(R"({"deleted":true})"), 204);
  EXPECT_TRUE(run()["deleted"].is_number());
  EXPECT_EQ(edit(R"({"deleted":false,"hidden":false,"name":""})"), 204);
  EXPECT_TRUE(run()["deleted"].is_null());
  EXPECT_EQ(run()["hidden"], false);
  EXPECT_EQ(run()["name"], "first");
}

TEST_F(ChangesTest, OnlyADeletedRunIsRemovedAndOnlyBySayingSoOnceMore) {
  const std::string path = "/api/runs/one/removal";
  EXPECT_EQ(post(path, "{}").status, 409);
  EXPECT_EQ(edit(R"({"deleted":true})"), 204);
  EXPECT_EQ(run()["status"], "finished");
  EXPECT_EQ(post(path, "{}").status, 204);
  EXPECT_TRUE(run().is_null());
  EXPECT_EQ(post(path, "{}").status, 404);
}

TEST_F(ChangesTest, ATrainingRunIsNotRemoved) {
  const RunRecorder recorder(folder_.store(), describe_run("live"), 0, [](const std::string&) {});
  EXPECT_EQ(post("/api/runs/live/edit", R"({"deleted":true})").status, 204);
  const Response refused = post("/api/runs/live/removal", "{}");
  EXPECT_EQ(refused.status, 409);
  EXPECT_THAT(refused.body, HasSubstr("training"));
  EXPECT_FALSE(run("live").is_null());
}

TEST_F(ChangesTest, WithoutTheTokenNothingIsChanged) {
  for (const char* token : {"", "other", "secre", "secret2", "Secret"}) {
    EXPECT_EQ(edit(R"({"name":"x"})", headers_but("x-quaver-token", token)), 403) << token;
    EXPECT_EQ(post("/api/runs/one/removal", "{}", headers_but("x-quaver-token", token)).status, 403) << token;
  }
  EXPECT_EQ(run()["name"], "first");
}

TEST_F(ChangesTest, OtherSitesChangeNothingWithTheTokenEither) {
  for (const char* origin : {"http://example.com", "null", "https://localhost:8265", "http://localhost:8266",
                             "http://localhost:8265.example.com"}) {
    EXPECT_EQ(edit(R"({"name":"x"})", headers_but("origin", origin)), 403) << origin;
  }
  for (const char* site : {"cross-site", "same-site", "nonsense"}) {
    EXPECT_EQ(edit(R"({"name":"x"})", headers_but("sec-fetch-site", site)), 403) << site;
  }
  EXPECT_EQ(edit(R"({"name":"x"})", headers_but("host", "example.com:8265")), 403);
  EXPECT_EQ(run()["name"], "first");
}

TEST_F(ChangesTest, AreJsonByPostAndNothingElse) {
  for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"}) {
    EXPECT_EQ(edit(R"({"name":"x"})", headers_but("content-type", type)), 415) << type;
  }
  for (const char* method : {"GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    for (const char* path : {"/api/runs/one/edit", "/api/runs/one/removal"}) {
      EXPECT_EQ(post(path, R"({"name":"x"})", good_headers, method).status, 405) << method << path;
    }
  }
  EXPECT_EQ(run()["name"], "first");
}

TEST_F(ChangesTest, BodiesThatMakeNoSenseAreRefusedWhole) {
  const auto text = [](const char* key, std::size_t characters) {
    std::string value;
    for (std::size_t i = 0; i < characters; ++i) value += "ü";
    return json{{key, value}}.dump();
  };
  EXPECT_EQ(edit(text("name", 128)), 204);
  EXPECT_EQ(edit(text("note", 4000)), 204);
  EXPECT_EQ(edit(R"({"name":"first"})"), 204);
  for (const std::string& body :
       {text("name", 129), text("note", 4001), std::string("{}"), std::string("[]"), std::string("null"),
        std::string(R"({"name":1})"), std::string(R"({"name":null})"), std::string(R"({"hidden":1})"),
        std::string(R"({"deleted":"true"})"), std::string(R"({"name":"x","other":1})"),
        std::string(R"({"name":"a\nb"})"), std::string(R"({"name":"a\u0000b"})"), std::string(R"({"name":"\u009b"})"),
        std::string(R"({"note":"a\u001bb"})"), std::string(R"({"note":"a\rb"})"), std::string("{\"note\":\"\xff\"}"),
        std::string(R"({"name":"x","tags":["a","\u0007"]})"), std::string(R"({"name":"x")")}) {
    EXPECT_EQ(edit(body), 400) << body.substr(0, 60);
  }
  EXPECT_EQ(run()["name"], "first") << "no part of a refused change is made";
}

TEST_F(ChangesTest, OfARunThatIsNotThereAreNotFound) {
  for (const char* path : {"/api/runs/two/edit", "/api/runs/two/removal", "/api/runs/one~00000000/edit",
                           "/api/runs//edit", "/api/runs/one/edit/", "/api/runs/one/tags"}) {
    EXPECT_EQ(post(path, R"({"name":"x"})").status, 404) << path;
  }
}

TEST_F(ChangesTest, AReadOnlyDashboardRefusesAllOfThem) {
  const Application readonly(RequestGuard("127.0.0.1", 8265, ""), pool_, "", {});
  for (const char* token : {"secret", ""}) {
    for (const char* path : {"/api/runs/one/edit", "/api/runs/one/removal"}) {
      Request request;
      request.method = "POST";
      request.path = path;
      request.headers = headers_but("x-quaver-token", token);
      request.headers.emplace_back("x-quaver-token", "");
      request.body = R"({"name":"x"})";
      const Response refused = readonly.respond(request);
      EXPECT_EQ(refused.status, 403) << path;
      EXPECT_THAT(refused.body, HasSubstr("--read-only"));
    }
  }
  EXPECT_EQ(run()["name"], "first");
}

// Which changes a dashboard accepts, by the address it listens on and its options.
TEST(DashboardChanges, AreTakenOnThisMachineAloneUnlessItIsToldOtherwise) {
  const StoreFolder folder;
  record_run(folder.store(), describe_run("one"));
  const auto has_token = [&](const std::string& host, Changes changes) {
    ServeOptions options;
    options.host = host;
    options.changes = changes;
    const RunningDashboard dashboard(folder.store(), options);
    const std::string bearer = "Authorization: Bearer " + dashboard->token() + "\r\n";
    const Reply reply = ask(dashboard.port(), get(dashboard.port(), "/api/server", bearer));
    return json::parse(reply.body)["change_token"].is_string();
  };
  EXPECT_TRUE(has_token("127.0.0.1", Changes::on_loopback));
  EXPECT_FALSE(has_token("127.0.0.1", Changes::refused));
  EXPECT_FALSE(has_token("0.0.0.0", Changes::on_loopback));
  EXPECT_TRUE(has_token("0.0.0.0", Changes::allowed));
  EXPECT_FALSE(has_token("0.0.0.0", Changes::refused));
}

TEST(DashboardChanges, EachDashboardHasATokenOfItsOwn) {
  const StoreFolder folder;
  const RunningDashboard first(folder.store()), second(folder.store());
  const std::string one = token_line(first.port()), other = token_line(second.port());
  EXPECT_GE(one.size(), std::string("X-Quaver-Token: \r\n").size() + 32) << "128 bits";
  EXPECT_NE(one, other);
}

// Over the wire: the size of the body, and a repeated token.
TEST(DashboardChanges, AreBoundedAndUnambiguous) {
  const StoreFolder folder;
  record_run(folder.store(), describe_run("one", "first"));
  const RunningDashboard dashboard(folder.store());
  const auto status = [&](const std::string& more, const std::string& body) {
    const std::string head = fmt::format(
        "POST /api/runs/one/edit HTTP/1.1\r\nHost: localhost:{}\r\nContent-Type: application/json\r\nContent-Length: "
        "{}\r\n{}\r\n",
        dashboard.port(), body.size(), more);
    return ask(dashboard.port(), head + body).status;
  };
  const std::string token = token_line(dashboard.port());
  EXPECT_EQ(status(token, R"({"name":"x"})"), 204);
  EXPECT_EQ(status("", R"({"name":"y"})"), 403);
  EXPECT_EQ(status(token + token, R"({"name":"y"})"), 400);
  EXPECT_EQ(status(token, R"({"note":")" + std::string(65536, 'n') + R"("})"), 413);
  EXPECT_EQ(StoreReader(folder.store()).run("one").summary.name, "x");
}

}  // namespace
}  // namespace quaver::test
