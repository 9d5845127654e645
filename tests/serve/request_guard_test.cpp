// Who is let in, by what the request's head says.
#include "serve/doorkeeper.h"

#include <gtest/gtest.h>
#include <set>

namespace quaver::test {
namespace {

Request to(const std::string& host, std::vector<std::pair<std::string, std::string>> more = {}) {
  Request request;
  request.method = "GET";
  request.path = "/api/runs";
  request.local_address = "127.0.0.1";
  request.headers = std::move(more);
  request.headers.emplace_back("host", host);
  return request;
}

int status_of(const Doorkeeper& keeper, const Request& request) {
  const auto refused = keeper.check(request);
  return refused ? refused->status : 200;
}

TEST(Doorkeeper, OnlyItsOwnNamesAreAnswered) {
  const Doorkeeper keeper("127.0.0.1", 8265, "");
  for (const char* host : {"127.0.0.1:8265", "localhost:8265", "LocalHost:8265", "[::1]:8265"}) {
    EXPECT_EQ(status_of(keeper, to(host)), 200) << host;
  }
  for (const char* host :
       {"", "127.0.0.1", "localhost", "127.0.0.1:80", "example.com:8265", "127.0.0.1:8265.example.com",
        "localhost:8265@example.com", "example.com", "127.0.0.1:08265", "localhost.:8265", "127.0.0.1:8265 ", ":8265",
        "[::1]", "2130706433:8265", "user@127.0.0.1:8265", "127.0.0.1.example.com:8265"}) {
    EXPECT_EQ(status_of(keeper, to(host)), 403) << host;
  }
  Request none = to("");
  none.headers.clear();
  EXPECT_EQ(status_of(keeper, none), 403);
  EXPECT_EQ(status_of(Doorkeeper("127.0.0.1", 80, ""), to("localhost")), 200) << "a browser leaves out port 80";
}

TEST(Doorkeeper, TheAddressOfTheMachineIsItsOwnBehindAToken) {
  Request request = to("10.0.0.5:8265", {{"authorization", "Bearer secret"}});
  request.local_address = "10.0.0.5";
  EXPECT_EQ(status_of(Doorkeeper("0.0.0.0", 8265, "secret"), request), 200);
  EXPECT_EQ(status_of(Doorkeeper("127.0.0.1", 8265, ""), request), 403);
  request.local_address = "10.0.0.6";
  EXPECT_EQ(status_of(Doorkeeper("0.0.0.0", 8265, "secret"), request), 403);
}

TEST(Doorkeeper, PagesOfOtherSitesAreRefused) {
  const Doorkeeper keeper("127.0.0.1", 8265, "");
  const std::string host = "localhost:8265";
  EXPECT_EQ(status_of(keeper, to(host, {{"origin", "http://localhost:8265"}})), 200);
  for (const char* origin : {"http://example.com", "https://localhost:8265", "http://localhost", "null", "",
                             "http://127.0.0.1:8265", "http://localhost:8265/", "http://localhost:8265.example.com"}) {
    EXPECT_EQ(status_of(keeper, to(host, {{"origin", origin}})), 403) << origin;
  }
  EXPECT_EQ(status_of(keeper, to(host, {{"sec-fetch-site", "same-origin"}})), 200);
  EXPECT_EQ(status_of(keeper, to(host, {{"sec-fetch-site", "none"}})), 200);
  for (const char* site : {"cross-site", "same-site", "else"}) {
    EXPECT_EQ(status_of(keeper, to(host, {{"sec-fetch-site", site}})), 403) << site;
    EXPECT_EQ(status_of(keeper, to(host, {{"sec-fetch-site", site}, {"sec-fetch-mode", "navigate"}})), 403) << site;
  }
  Request link = to(host, {{"sec-fetch-site", "cross-site"}, {"sec-fetch-mode", "navigate"}});
  link.path = "/";
  EXPECT_EQ(status_of(keeper, link), 200) << "a link to the page may be followed";
}

TEST(Doorkeeper, TheTokenLetsInByCookieOrHeader) {
  const Doorkeeper keeper("0.0.0.0", 8265, "secret");
  const std::string host = "localhost:8265";
  EXPECT_EQ(status_of(keeper, to(host)), 401);
  EXPECT_EQ(status_of(keeper, to(host, {{"authorization", "Bearer secret"}})), 200);
  EXPECT_EQ(status_of(keeper, to(host, {{"cookie", "a=b; quaver_8265=secret; c=d"}})), 200);
  for (const char* value : {"Bearer secre", "Bearer secret2", "Bearer ", "secret", "Basic secret", "bearer  secret"}) {
    EXPECT_EQ(status_of(keeper, to(host, {{"authorization", value}})), 401) << value;
  }
  for (const char* value : {"quaver_8265=", "quaver_8265=Secret", "quaver_8266=secret", "xquaver_8265=secret",
                            "quaver_8265", "quaver_8265 =secret", ";;;"}) {
    EXPECT_EQ(status_of(keeper, to(host, {{"cookie", value}})), 401) << value;
  }
}

TEST(Doorkeeper, TheTokenInTheAddressIsTradedForACookie) {
  const Doorkeeper keeper("0.0.0.0", 8265, "secret");
  Request request = to("localhost:8265");
  request.path = "/";
  request.query = "token=secret";
  const auto answer = keeper.check(request);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 303);
  const std::vector<std::pair<std::string, std::string>> expected{
      {"Location", "/"}, {"Set-Cookie", "quaver_8265=secret; Path=/; HttpOnly; SameSite=Strict"}};
  EXPECT_EQ(answer->headers, expected);

  request.query = "token=false";
  EXPECT_EQ(status_of(keeper, request), 401);
  request.query = "token=secret";
  request.path = "/api/runs";
  EXPECT_EQ(status_of(keeper, request), 401) << "only the page takes it from the address";
  request.path = "/";
  request.headers = {{"host", "example.com"}};
  EXPECT_EQ(status_of(keeper, request), 403);
}

TEST(Doorkeeper, TokensAreLongAndNeverTheSame) {
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

TEST(Doorkeeper, KnowsWhichAddressesStayOnThisMachine) {
  for (const char* host : {"127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"}) EXPECT_TRUE(is_loopback(host));
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.example.com", "localhost.example.com", "", "1270.0.0.1"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

}  // namespace
}  // namespace quaver::test
