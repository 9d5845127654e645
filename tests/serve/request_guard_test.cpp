// Access control by Host, Origin and token.
#include "serve/request_guard.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <unistd.h>

namespace quaver::test {
namespace {

using ::testing::ElementsAre;

Request to(const std::string& host, std::vector<std::pair<std::string, std::string>> more = {}) {
  Request request;
  request.method = "GET";
  request.path = "/api/runs";
  request.local_address = "127.0.0.1";
  request.headers = std::move(more);
  request.headers.emplace_back("host", host);
  return request;
}

int status_of(const RequestGuard& guard, const Request& request) {
  const auto refused = guard.check(request);
  return refused ? refused->status : 200;
}

TEST(RequestGuard, OnlyItsOwnNamesAreAnswered) {
  const RequestGuard guard("127.0.0.1", 8265, "");
  for (const char* host : {"127.0.0.1:8265", "localhost:8265", "LocalHost:8265", "[::1]:8265"}) {
    EXPECT_EQ(status_of(guard, to(host)), 200) << host;
  }
  for (const char* host :
       {"", "127.0.0.1", "localhost", "127.0.0.1:80", "example.com:8265", "127.0.0.1:8265.example.com",
        "localhost:8265@example.com", "example.com", "127.0.0.1:08265", "localhost.:8265", "127.0.0.1:8265 ", ":8265",
        "[::1]", "2130706433:8265", "user@127.0.0.1:8265", "127.0.0.1.example.com:8265"}) {
    EXPECT_EQ(status_of(guard, to(host)), 403) << host;
  }
  Request none = to("");
  none.headers.clear();
  EXPECT_EQ(status_of(guard, none), 403);
  EXPECT_EQ(status_of(RequestGuard("127.0.0.1", 80, ""), to("localhost")), 200) << "a browser leaves out port 80";
}

TEST(RequestGuard, TheAddressOfTheMachineIsItsOwnBehindAToken) {
  Request request = to("10.0.0.5:8265", {{"authorization", "Bearer secret"}});
  request.local_address = "10.0.0.5";
  EXPECT_EQ(status_of(RequestGuard("0.0.0.0", 8265, "secret"), request), 200);
  EXPECT_EQ(status_of(RequestGuard("127.0.0.1", 8265, ""), request), 403);
  request.local_address = "10.0.0.6";
  EXPECT_EQ(status_of(RequestGuard("0.0.0.0", 8265, "secret"), request), 403);
}

TEST(RequestGuard, PagesOfOtherSitesAreRefused) {
  const RequestGuard guard("127.0.0.1", 8265, "");
  const std::string host = "localhost:8265";
  EXPECT_EQ(status_of(guard, to(host, {{"origin", "http://localhost:8265"}})), 200);
  for (const char* origin : {"http://example.com", "https://localhost:8265", "http://localhost", "null", "",
                             "http://127.0.0.1:8265", "http://localhost:8265/", "http://localhost:8265.example.com"}) {
    EXPECT_EQ(status_of(guard, to(host, {{"origin", origin}})), 403) << origin;
  }
  EXPECT_EQ(status_of(guard, to(host, {{"sec-fetch-site", "same-origin"}})), 200);
  EXPECT_EQ(status_of(guard, to(host, {{"sec-fetch-site", "none"}})), 200);
  for (const char* site : {"cross-site", "same-site", "else"}) {
    EXPECT_EQ(status_of(guard, to(host, {{"sec-fetch-site", site}})), 403) << site;
    EXPECT_EQ(status_of(guard, to(host, {{"sec-fetch-site", site}, {"sec-fetch-mode", "navigate"}})), 403) << site;
  }
  Request link = to(host, {{"sec-fetch-site", "cross-site"}, {"sec-fetch-mode", "navigate"}});
  link.path = "/";
  EXPECT_EQ(status_of(guard, link), 200) << "a link to the page may be followed";
}

TEST(RequestGuard, TheTokenLetsInByCookieOrHeader) {
  const RequestGuard guard("0.0.0.0", 8265, "secret");
  const std::string host = "localhost:8265";
  EXPECT_EQ(status_of(guard, to(host)), 401);
  EXPECT_EQ(status_of(guard, to(host, {{"authorization", "Bearer secret"}})), 200);
  EXPECT_EQ(status_of(guard, to(host, {{"cookie", "a=b; quaver_8265=secret; c=d"}})), 200);
  for (const char* value : {"Bearer secre", "Bearer secret2", "Bearer ", "secret", "Basic secret", "bearer  secret"}) {
    EXPECT_EQ(status_of(guard, to(host, {{"authorization", value}})), 401) << value;
  }
  for (const char* value : {"quaver_8265=", "quaver_8265=Secret", "quaver_8266=secret", "xquaver_8265=secret",
                            "quaver_8265", "quaver_8265 =secret", ";;;"}) {
    EXPECT_EQ(status_of(guard, to(host, {{"cookie", value}})), 401) << value;
  }
}

TEST(RequestGuard, TheTokenInTheAddressIsTradedForACookie) {
  const RequestGuard guard("0.0.0.0", 8265, "secret");
  Request request = to("localhost:8265");
  request.path = "/";
  request.query = "token=secret";
  const auto answer = guard.check(request);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 303);
  const std::vector<std::pair<std::string, std::string>> expected{
      {"Location", "/"}, {"Set-Cookie", "quaver_8265=secret; Path=/; HttpOnly; SameSite=Strict"}};
  EXPECT_EQ(answer->headers, expected);

  request.query = "token=false";
  EXPECT_EQ(status_of(guard, request), 401);
  request.query = "token=secret";
  request.path = "/api/runs";
  EXPECT_EQ(status_of(guard, request), 401) << "only the page takes it from the address";
  request.path = "/";
  request.headers = {{"host", "example.com"}};
  EXPECT_EQ(status_of(guard, request), 403);
}

TEST(RequestGuard, TokensAreLongAndNeverTheSame) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string token = make_token();
    EXPECT_EQ(token.size(), 32U);
    EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_TRUE(seen.insert(token).second);
  }
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

TEST(RequestGuard, KnowsWhichAddressesStayOnThisMachine) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"}) EXPECT_TRUE(is_loopback(host));
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.example.com", "localhost.example.com", "", "1270.0.0.1"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

int status_for(const RequestGuard& guard, const std::string& host,
               std::vector<std::pair<std::string, std::string>> more, const std::string& path = "/api/runs",
               const std::string& method = "GET") {
  Request request;
  request.method = method;
  request.path = path;
  request.local_address = "10.1.2.3";
  request.headers = std::move(more);
  request.headers.emplace_back("host", host);
  const auto refused = guard.check(request);
  return refused ? refused->status : 200;
}

TEST(RequestGuardNames, AreComparedWithoutRegardToCase) {
  const RequestGuard guard("MyHost.Example", 8265, "");
  for (const char* host : {"myhost.example:8265", "MYHOST.EXAMPLE:8265", "MyHost.Example:8265", "LOCALHOST:8265"}) {
    EXPECT_EQ(status_for(guard, host, {}), 200) << host;
  }
  for (const char* host :
       {"myhost.exampl:8265", "myhost.example2:8265", "myhost_example:8265", "@yhost.example:8265"}) {
    EXPECT_EQ(status_for(guard, host, {}), 403) << host;
  }
  EXPECT_TRUE(RequestGuard("[::2]", 1, "").is_own_host("[::2]:1", ""));
  EXPECT_TRUE(RequestGuard("::2", 1, "").is_own_host("[::2]:1", ""));
  EXPECT_FALSE(RequestGuard("::2", 1, "").is_own_host("[::3]:1", ""));
}

TEST(RequestGuardNames, OfTheMachineAreItsOwnBehindATokenOnly) {
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  const std::string machine(name.data());
  if (machine.empty() || machine == "localhost") GTEST_SKIP() << "the machine has no name of its own";
  const RequestGuard open("127.0.0.1", 8265, ""), guarded("0.0.0.0", 8265, "secret");
  EXPECT_FALSE(open.is_own_host(machine + ":8265", "10.1.2.3"));
  EXPECT_TRUE(guarded.is_own_host(machine + ":8265", "10.1.2.3"));
  EXPECT_TRUE(guarded.is_own_host("10.1.2.3:8265", "10.1.2.3"));
  EXPECT_FALSE(open.is_own_host("10.1.2.3:8265", "10.1.2.3"));
  EXPECT_FALSE(guarded.is_own_host(machine + ":8264", "10.1.2.3"));
  EXPECT_FALSE(guarded.is_own_host(machine, "10.1.2.3"));
  EXPECT_FALSE(guarded.is_own_host(":8265", "")) << "no name is nobody's";
}

TEST(RequestGuardNames, MayLeaveOutPort80Alone) {
  const RequestGuard usual("127.0.0.1", 80, ""), other("127.0.0.1", 8265, "");
  EXPECT_TRUE(usual.is_own_host("localhost", ""));
  EXPECT_TRUE(usual.is_own_host("localhost:80", ""));
  EXPECT_TRUE(usual.is_own_host("[::1]", ""));
  EXPECT_FALSE(usual.is_own_host("localhost:8265", ""));
  EXPECT_FALSE(other.is_own_host("localhost", ""));
  EXPECT_FALSE(other.is_own_host("[::1]", ""));
}

TEST(RequestGuardToken, IsAskedForInTheWordsOfHttp) {
  const RequestGuard guard("127.0.0.1", 8265, "secret");
  Request request;
  request.method = "GET";
  request.path = "/api/runs";
  request.headers = {{"host", "localhost:8265"}};
  const auto refused = guard.check(request);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 401);
  EXPECT_THAT(refused->headers, ElementsAre(std::pair<std::string, std::string>("WWW-Authenticate", "Bearer")));
  EXPECT_TRUE(guard.token_required());
  EXPECT_FALSE(RequestGuard("127.0.0.1", 8265, "").token_required());
}

TEST(RequestGuardToken, InTheAddressIsTakenForThePageByGetAndHead) {
  const auto status = [](const std::string& token, const std::string& method, const std::string& path) {
    Request request;
    request.method = method;
    request.path = path;
    request.query = "token=secret";
    request.headers = {{"host", "localhost:8265"}};
    const auto answer = RequestGuard("127.0.0.1", 8265, token).check(request);
    if (answer && answer->status == 303) {
      EXPECT_EQ(answer->headers.size(), token.empty() ? 1U : 2U) << "a cookie only where one is needed";
      EXPECT_EQ(answer->headers[0].second, "/");
    }
    return answer ? answer->status : 200;
  };
  EXPECT_EQ(status("secret", "GET", "/"), 303);
  EXPECT_EQ(status("secret", "HEAD", "/"), 303);
  EXPECT_EQ(status("secret", "POST", "/"), 401);
  EXPECT_EQ(status("secret", "GET", "/app.js"), 401);
  EXPECT_EQ(status("other", "GET", "/"), 401);
  EXPECT_EQ(status("", "GET", "/"), 303) << "an old bookmark still leads to the page";
  EXPECT_EQ(status("", "GET", "/app.js"), 200);
}

TEST(RequestGuardToken, IsTheWholeOfWhatIsSent) {
  const RequestGuard guard("127.0.0.1", 8265, "secret");
  const std::string host = "localhost:8265";
  EXPECT_EQ(status_for(guard, host, {{"authorization", "Bearer secret"}, {"cookie", "quaver_8265=wrong"}}), 200);
  EXPECT_EQ(status_for(guard, host, {{"authorization", "Bearer wrong"}, {"cookie", "quaver_8265=secret"}}), 200);
  for (const char* bearer : {"Bearer  secret", "Bearersecret", "Bearer secret ", "secret", "Bearer"}) {
    EXPECT_EQ(status_for(guard, host, {{"authorization", bearer}}), 401) << bearer;
  }
  EXPECT_FALSE(equal_in_constant_time("secret", "Secret"));
  EXPECT_FALSE(equal_in_constant_time("secret", "secreT"));
  EXPECT_TRUE(equal_in_constant_time("", ""));
}

TEST(RequestGuardOrigin, IsTheHostThatWasAsked) {
  const RequestGuard guard("127.0.0.1", 80, "");
  EXPECT_EQ(status_for(guard, "localhost", {{"origin", "http://localhost"}}), 200);
  EXPECT_EQ(status_for(guard, "localhost", {{"origin", "http://LOCALHOST"}}), 200);
  EXPECT_EQ(status_for(guard, "localhost", {{"origin", "https://localhost"}}), 403);
  EXPECT_EQ(status_for(guard, "localhost", {{"origin", "xxxxxxxlocalhost"}}), 403);
  EXPECT_EQ(status_for(guard, "localhost", {{"sec-fetch-site", "same-site"}, {"sec-fetch-mode", "navigate"}}, "/"),
            200);
  EXPECT_EQ(status_for(guard, "localhost", {{"sec-fetch-site", "cross-site"}, {"sec-fetch-mode", "no-cors"}}, "/"),
            403);
}

TEST(Loopback, IsAnAddressOfThisMachineAlone) {
  for (const char* host : {"127.0.0.1", "127.255.255.254", "localhost", "::1", "[::1]"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host :
       {"127", "127.", "128.0.0.1", "12.7.0.0", "::2", "[::]", "[localhost", "Localhost.", "127.a"}) {
    EXPECT_EQ(is_loopback(host), std::string(host) == "127.") << host;
  }
}

int status_with(std::uint16_t port, const std::string& cookie) {
  const RequestGuard guard("0.0.0.0", port, "secret");
  Request request;
  request.method = "GET";
  request.path = "/api/runs";
  request.local_address = "127.0.0.1";
  request.headers = {{"host", "localhost:" + std::to_string(port)}, {"cookie", cookie}};
  const auto refused = guard.check(request);
  return refused ? refused->status : 200;
}

TEST(Cookie, OfALongerNameIsAnother) {
  for (const char* cookie : {"quaver_82650=secret", "quaver_8265xsecret", "quaver_8265_secret", "quaver_8265 secret",
                             "quaver_826=secret", "quaver_=secret", "Quaver_8265=secret"}) {
    EXPECT_EQ(status_with(8265, cookie), 401) << cookie;
  }
}

// Two dashboards of one machine, one port a prefix of the other.
TEST(Cookie, OfAnotherDashboardDoesNotHideItsOwn) {
  EXPECT_EQ(status_with(826, "quaver_8265=other; quaver_826=secret"), 200);
  EXPECT_EQ(status_with(826, "quaver_826=secret; quaver_8265=other"), 200);
  EXPECT_EQ(status_with(8265, "quaver_826=other;quaver_8265=secret"), 200);
  EXPECT_EQ(status_with(8265, "   quaver_8265=secret"), 200);
}

TEST(Cookie, HasAValueThatMayHoldAnEqualsSign) {
  EXPECT_EQ(status_with(8265, "quaver_8265=secret=more"), 401);
  EXPECT_EQ(status_with(8265, "a=quaver_8265=secret"), 401);
}

}  // namespace
}  // namespace quaver::test
