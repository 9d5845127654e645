// Exact limits of parameters, and which steps a single column covers.
#include <gmock/gmock.h>

#include "serve/application.h"
#include "serve/client.h"
#include "serve/query.h"
#include "serve/sample_store.h"

namespace quaver::test {
namespace {

using nlohmann::json;

class ServeLimits : public ::testing::Test {
 protected:
  void SetUp() override { record_run(folder_.store(), describe_run("one")); }

  Response ask(const std::string& target) const {
    Request request;
    request.method = "GET";
    request.path = target.substr(0, target.find('?'));
    if (request.path.size() < target.size()) request.query = target.substr(request.path.size() + 1);
    request.headers = {{"host", "localhost:8265"}};
    return application_.respond(request);
  }
  int status(const std::string& target) const { return ask(target).status; }
  json numerics_header(const std::string& query) const {
    const Response response = ask("/api/runs/one/numerics?statistic=amax&role=x&" + query);
    EXPECT_EQ(response.status, 200) << response.body;
    std::uint32_t length = 0;
    std::memcpy(&length, response.body.data(), sizeof length);
    return json::parse(response.body.substr(4, length));
  }

  StoreFolder folder_;
  StorePool pool_{folder_.store()};
  Application application_{RequestGuard("127.0.0.1", 8265, ""), pool_, "", {}};
};

// Twenty samples, of steps 1 to 20.
TEST_F(ServeLimits, AColumnStandsForTheStepsFromItsFirstToTheNext) {
  EXPECT_EQ(numerics_header("columns=1")["steps"], json({1}));
  EXPECT_EQ(numerics_header("columns=1")["steps_per_column"], 20);
  EXPECT_EQ(numerics_header("columns=1")["last_step"], 20);
  EXPECT_EQ(numerics_header("columns=2")["steps_per_column"], 10);
  EXPECT_EQ(numerics_header("from=7&to=7")["steps_per_column"], 1);
  EXPECT_EQ(numerics_header("from=21")["steps_per_column"], 1) << "nothing was recorded there";
  EXPECT_EQ(numerics_header("from=21")["steps"], json::array());
}

TEST_F(ServeLimits, NumbersMayBeTheLeastAndTheMost) {
  const std::string numerics = "/api/runs/one/numerics?statistic=amax&role=x&";
  for (const char* good : {"columns=1", "columns=4096", "rows=1", "rows=4096", "from=0", "to=9223372036854775807"}) {
    EXPECT_EQ(status(numerics + good), 200) << good;
  }
  for (const char* bad : {"columns=0", "columns=4097", "rows=0", "rows=4097", "from=9223372036854775808"}) {
    EXPECT_EQ(status(numerics + bad), 400) << bad;
  }
  for (const std::string target : {"/api/runs/one/metrics?", "/api/runs/one/history?site=blocks.0.mlp%2Fx&"}) {
    EXPECT_EQ(status(target + "points=4"), 200) << target;
    EXPECT_EQ(status(target + "points=20000"), 200) << target;
    EXPECT_EQ(status(target + "points=3"), 400) << target;
    EXPECT_EQ(status(target + "points=20001"), 400) << target;
  }
}

TEST_F(ServeLimits, IdsOfRunsAreOfSixtyFourCharacters) {
  const std::string longest(64, 'a');
  EXPECT_TRUE(find_target("/api/runs/" + longest).has_value());
  EXPECT_FALSE(find_target("/api/runs/" + longest + "a").has_value());
  EXPECT_TRUE(find_target("/api/runs/aZ09_-").has_value());
  for (const char* bad : {"/api/runs/", "/api/runs/a.b", "/api/runs/a%2Fb", "/api/runs/a/else"}) {
    EXPECT_FALSE(find_target(bad).has_value()) << bad;
  }
}

TEST(QueryLimits, NamesListsAndParametersAreBounded) {
  const std::string longest(256, 'n');
  EXPECT_EQ(name_in(Query("site=" + longest), "site"), longest);
  EXPECT_THROW(name_in(Query("site=" + longest + "n"), "site"), BadParameter);
  EXPECT_EQ(Query("names=a,b,,c").list("names", 3).size(), 3U);
  EXPECT_EQ(Query("names=a,b,c,d").list("names", 3).size(), 3U);
  std::string many;
  for (int i = 0; i < 65; ++i) many += "k" + std::to_string(i) + "=1&";
  const Query query(many);
  EXPECT_TRUE(query.text("k63").has_value());
  EXPECT_FALSE(query.text("k64").has_value());
}

TEST(QueryLimits, CleanTextHasNoControlsAndIsWellFormed) {
  for (const char* good : {" ", "~", "\xc2\xa0", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_clean_text(good)) << good;
  }
  for (const char* bad : {"\x1f", "\x7f", "\xc2\x9f", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3", "\xe2\x82", "\x80"}) {
    EXPECT_FALSE(is_clean_text(bad)) << bad;
  }
}

}  // namespace
}  // namespace quaver::test
