// The whole server over real sockets: hostile requests, headers on every response, tokens, live events, many clients.
#include "serve/dashboard.h"

#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <vector>

#include "serve/client.h"
#include "serve/sample_store.h"

namespace quaver::test {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::chrono_literals;
using namespace std::string_literals;

class DashboardTest : public ::testing::Test {
 protected:
  void SetUp() override { record_run(folder_.store(), describe_run("one")); }

  // A request with the right Host header and other header lines.
  std::string with_host(const std::string& line, const std::string& more = "") const {
    return fmt::format("{} HTTP/1.1\r\nHost: localhost:{}\r\n{}\r\n", line, dashboard_.port(), more);
  }

  StoreFolder folder_;
  RunningDashboard dashboard_{folder_.store()};
};

void expect_strict(const Reply& reply, const std::string& of) {
  EXPECT_EQ(reply.header("Content-Security-Policy"),
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
      << of;
  EXPECT_EQ(reply.header("X-Content-Type-Options"), "nosniff") << of;
  EXPECT_EQ(reply.header("Referrer-Policy"), "no-referrer") << of;
  EXPECT_EQ(reply.header("X-Frame-Options"), "DENY") << of;
  EXPECT_EQ(reply.header("Cross-Origin-Resource-Policy"), "same-origin") << of;
  EXPECT_FALSE(reply.header("Cache-Control").empty()) << of;
  EXPECT_THAT(reply.head, Not(HasSubstr("Access-Control"))) << of;
}

TEST_F(DashboardTest, HostileRequestsAreRefusedAndEveryAnswerIsStrict) {
  const std::string json_type = "Content-Type: application/json\r\n";
  const struct {
    std::string bytes;
    int status;
  } cases[] = {
      {with_host("GET /"), 200},
      {with_host("GET /app.js"), 200},
      {with_host("GET /api/runs"), 200},
      {with_host("GET /api/runs/one/numerics?statistic=amax&role=x"), 200},
      {with_host("GET /nothing"), 404},
      {with_host("GET /../../etc/passwd"), 404},
      {with_host("GET /%2e%2e/%2e%2e/etc/passwd"), 404},
      {with_host("GET /..%2f..%2fetc%2fpasswd"), 404},
      {with_host("GET /app.js%00.html"), 404},
      {with_host("GET /app.js\0"s), 400},
      {with_host("GET //etc/passwd"), 404},
      {with_host("GET \\..\\x"), 400},
      {with_host("GET /api/runs/..%2f..%2fquaver.db"), 404},
      {with_host("GET /quaver.db"), 404},
      {with_host("GET /api/runs/one/documents/../events"), 404},
      {with_host("GET http://localhost/api/runs"), 400},
      {with_host("GET file:///etc/passwd"), 400},
      {with_host("GET *"), 400},
      {with_host("CONNECT example.com:80"), 400},
      {with_host("DELETE /api/runs/one"), 405},
      {with_host("OPTIONS /api/runs/one/edit", "Origin: http://example.com\r\n"), 403},
      {with_host("OPTIONS /api/runs/one/edit"), 405},
      {with_host("BREW /"), 405},
      {with_host("GET /api/runs", "Origin: http://example.com\r\n"), 403},
      {with_host("GET /api/runs", "Origin: null\r\n"), 403},
      {with_host("GET /api/runs", "Sec-Fetch-Site: cross-site\r\n"), 403},
      {with_host("POST /api/runs/one/edit", "Content-Length: 2\r\nContent-Type: text/plain\r\n") + "{}", 415},
      {with_host("POST /api/runs/one/edit", token_line(dashboard_.port()) + json_type + "Content-Length: 2\r\n") + "{}",
       400},
      {with_host("POST /api/runs/one/edit", token_line(dashboard_.port()) + json_type + "Content-Length: 65537\r\n") +
           std::string(65537, ' '),
       413},
      {with_host("POST /api/runs/one/edit", token_line(dashboard_.port()) + json_type + "Content-Length: 65536\r\n") +
           std::string(65536, '['),
       400},
      {with_host("POST /api/runs/one/edit",
                 token_line(dashboard_.port()) + json_type + "Transfer-Encoding: chunked\r\n") +
           "0\r\n\r\n",
       411},
      {with_host("GET /" + std::string(9000, 'a')), 414},
      {with_host("GET /api/runs?" + std::string(8000, '&')), 200},
      {with_host("GET /", "X: " + std::string(20000, 'a') + "\r\n"), 431},
      {"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", 403},
      {"GET / HTTP/1.1\r\n\r\n", 403},
      {"GET / HTTP/1.0\r\n\r\n", 403},
      {"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x00\x01\r\n\r\n"s, 400},
      {with_host("GET /api/runs/<img src=x onerror=alert(1)>"), 400},
      {with_host("GET /api/runs/%3Cimg%3E"), 404},
      {with_host("GET /api/runs/one/history?site=%3Cimg%3E%22%27"), 404},
      {with_host("GET /api/runs/one/history?site=" + std::string(7000, 'a')), 400},
  };
  for (const auto& [bytes, status] : cases) {
    const Reply reply = ask(dashboard_.port(), bytes);
    const std::string line = ::testing::PrintToString(bytes.substr(0, 90));
    EXPECT_EQ(reply.status, status) << line;
    expect_strict(reply, line);
    EXPECT_THAT(reply.head + reply.body, Not(HasSubstr(folder_.path().string()))) << line;
    EXPECT_THAT(reply.body, Not(HasSubstr("root:"))) << line;
    if (status >= 400) {
      const json body = json::parse(reply.body);
      EXPECT_FALSE(body["error"].get<std::string>().empty()) << line;
      EXPECT_FALSE(body["remedy"].get<std::string>().empty()) << line;
      EXPECT_EQ(reply.header("Content-Type"), "application/json; charset=utf-8") << line;
    }
  }
}

// Over one connection: a body after the response to HEAD would be taken for the beginning of the next response.
TEST_F(DashboardTest, HeadIsGetWithoutTheBody) {
  for (const char* path : {"/", "/app.js", "/api/runs", "/api/runs/one/numerics?statistic=amax&role=x", "/nothing",
                           "/api/runs/one/history"}) {
    const Reply whole = ask(dashboard_.port(), with_host("GET "s + path));
    Client client(dashboard_.port());
    ASSERT_TRUE(client.send(with_host("HEAD "s + path) + with_host("GET /nowhere", "Connection: close\r\n")));
    const std::string all = client.receive_until("never sent");
    const std::size_t end = all.find("\r\n\r\n") + 4;
    EXPECT_EQ(all.substr(0, end), whole.head) << path;
    EXPECT_THAT(all.substr(end), StartsWith("HTTP/1.1 404")) << path;
  }
  Client stream(dashboard_.port());
  ASSERT_TRUE(stream.send(with_host("HEAD /api/events")));
  const std::string all = stream.receive_until("never sent");
  EXPECT_THAT(all, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(all, EndsWith("\r\n\r\n"));
}

TEST_F(DashboardTest, ATokenIsAskedForTradedAndKept) {
  ServeOptions options;
  options.token = TokenUse::always;
  const RunningDashboard guarded(folder_.store(), options);
  const std::uint16_t port = guarded.port();
  ASSERT_EQ(guarded->token().size(), 32U);
  EXPECT_THAT(guarded->url(), HasSubstr("/?token=" + guarded->token()));
  for (const char* path : {"/", "/app.js", "/api/runs", "/api/events", "/nothing", "/?token=", "/?token=0123"}) {
    const Reply reply = ask(port, get(port, path));
    EXPECT_EQ(reply.status, 401) << path;
    expect_strict(reply, path);
    EXPECT_THAT(reply.head + reply.body, Not(HasSubstr(guarded->token())));
  }
  const Reply traded = ask(port, get(port, "/?token=" + guarded->token()));
  EXPECT_EQ(traded.status, 303);
  EXPECT_EQ(traded.header("Location"), "/");
  const std::string cookie = traded.header("Set-Cookie");
  EXPECT_THAT(cookie, HasSubstr("HttpOnly"));
  EXPECT_THAT(cookie, HasSubstr("SameSite=Strict"));
  const std::string pair = cookie.substr(0, cookie.find(';'));
  EXPECT_EQ(ask(port, get(port, "/api/runs", "Cookie: " + pair + "\r\n")).status, 200);
  EXPECT_EQ(ask(port, get(port, "/api/runs", "Authorization: Bearer " + guarded->token() + "\r\n")).status, 200);
  EXPECT_EQ(ask(port, get(port, "/api/runs", "Cookie: " + pair + "x\r\n")).status, 401);
  EXPECT_EQ(ask(port, get(port, "/api/runs", "Cookie: " + pair + "\r\nOrigin: http://example.com\r\n")).status, 403);
}

TEST_F(DashboardTest, ListeningBeyondThisMachineAsksForAToken) {
  ServeOptions options;
  options.host = "0.0.0.0";
  const RunningDashboard open(folder_.store(), options);
  EXPECT_EQ(open->token().size(), 32U);
  EXPECT_EQ(ask(open.port(), get(open.port(), "/api/runs")).status, 401);
}

TEST_F(DashboardTest, TellsWhatChangesWhileItChanges) {
  Client client(dashboard_.port());
  client.send(get(dashboard_.port(), "/api/events"));
  EXPECT_THAT(client.receive_until("retry: 2000\n\n"), HasSubstr("Content-Type: text/event-stream"));
  RunRecorder recorder(folder_.store(), describe_run("two"), 0, [](const std::string& text) { ADD_FAILURE() << text; });
  std::string told;
  for (std::uint64_t step = 1; step < 50 && told.find("\"two\"") == std::string::npos; ++step) {
    const MetricValue loss{"loss", 3};
    recorder.metrics(step, {&loss, 1});
    ASSERT_TRUE(recorder.flush());
    told += client.receive_until("\"two\",\"step\"", 500ms);
  }
  EXPECT_THAT(told, HasSubstr("event: runs\ndata: {}\n\n"));
  EXPECT_THAT(told, HasSubstr("event: change\ndata: {\"kinds\":[\"metrics\"],\"run\":\"two\",\"step\":"));

  const std::string body = R"({"tags":["seen"]})";
  const std::string headers = fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  EXPECT_EQ(ask(dashboard_.port(), with_host("POST /api/runs/two/edit", headers + token_line(dashboard_.port())) + body)
                .status,
            204);
  EXPECT_THAT(client.receive_until("\"status\"", 5s), HasSubstr("\"status\"")) << "tags are part of it";
}

TEST_F(DashboardTest, AThousandIdleStreamsDoNotStopThePage) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_max < 2500) GTEST_SKIP() << "the system allows too few open files";
  files.rlim_cur = std::max<rlim_t>(files.rlim_cur, 2500);
  setrlimit(RLIMIT_NOFILE, &files);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(std::make_unique<Client>(dashboard_.port()));
    clients.back()->send(get(dashboard_.port(), "/api/events"));
  }
  for (const char* path : {"/", "/api/runs"}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(ask(dashboard_.port(), get(dashboard_.port(), path)).status, 200);
    const auto taken = std::chrono::steady_clock::now() - start;
    EXPECT_LT(taken, 1s) << path;
    RecordProperty(path[1] == '\0' ? "page_us" : "runs_us",
                   static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(taken).count()));
  }
  EXPECT_EQ(dashboard_->streams(), 48U);
}

std::string url_of(const std::string& host, TokenUse token = TokenUse::beyond_loopback) {
  const StoreFolder folder;
  ServeOptions options;
  options.host = host;
  options.port = 0;
  options.token = token;
  try {
    const Dashboard dashboard(folder.store(), options);
    std::string url = dashboard.url();
    const std::string port = fmt::format(":{}/", dashboard.port());
    const std::size_t at = url.find(port);
    if (at != std::string::npos) url.replace(at, port.size(), ":PORT/");
    if (!dashboard.token().empty() && url.ends_with(dashboard.token())) {
      url.replace(url.size() - dashboard.token().size(), std::string::npos, "TOKEN");
    }
    return url;
  } catch (const Error& error) {
    return std::string("cannot listen: ") + error.what();
  }
}

TEST(DashboardUrl, IsWhatABrowserOnThisMachineOpens) {
  EXPECT_EQ(url_of("127.0.0.1"), "http://127.0.0.1:PORT/");
  EXPECT_EQ(url_of("localhost"), "http://localhost:PORT/");
  EXPECT_EQ(url_of("127.0.0.1", TokenUse::always), "http://127.0.0.1:PORT/?token=TOKEN");
  EXPECT_EQ(url_of("0.0.0.0"), "http://127.0.0.1:PORT/?token=TOKEN");
  if (url_of("::1").starts_with("cannot listen")) GTEST_SKIP() << "no IPv6 here";
  EXPECT_EQ(url_of("::1"), "http://[::1]:PORT/");
  EXPECT_EQ(url_of("[::1]"), "http://[::1]:PORT/");
  EXPECT_EQ(url_of("::"), "http://[::1]:PORT/?token=TOKEN");
  EXPECT_EQ(url_of("[::]"), "http://[::1]:PORT/?token=TOKEN");
}

TEST(Dashboard, WarnsOfAStoreThatIsNoneAndCountsItsStreams) {
  const StoreFolder folder;
  std::ofstream(folder.store()) << "this is no database, but text of some length\n";
  std::mutex mutex;
  std::vector<std::string> warnings;
  ServeOptions options;
  options.warning = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    warnings.push_back(text);
  };
  const RunningDashboard dashboard(folder.store(), options);
  EXPECT_EQ(ask(dashboard.port(), get(dashboard.port(), "/api/runs")).status, 503);
  {
    const std::lock_guard lock(mutex);
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_THAT(warnings[0], HasSubstr(folder.store().string()));
  }
  Client stream(dashboard.port());
  stream.send(get(dashboard.port(), "/api/events"));
  stream.receive_until("retry: 2000\n\n");
  EXPECT_EQ(dashboard->streams(), 1U);
  EXPECT_THAT(ask(dashboard.port(), get(dashboard.port(), "/api/server")).body, HasSubstr("\"streams\":1"));
}

}  // namespace
}  // namespace quaver::test
