// Which cookie is the token: the one of exactly this dashboard's name.
#include <gtest/gtest.h>

#include "serve/doorkeeper.h"

namespace quaver::test {
namespace {

int status_with(std::uint16_t port, const std::string& cookie) {
  const Doorkeeper keeper("0.0.0.0", port, "secret");
  Request request;
  request.method = "GET";
  request.path = "/api/runs";
  request.local_address = "127.0.0.1";
  request.headers = {{"host", "localhost:" + std::to_string(port)}, {"cookie", cookie}};
  const auto refused = keeper.check(request);
  return refused ? refused->status : 200;
}

TEST(Cookie, OfALongerNameIsAnother) {
  for (const char* cookie : {"quaver_82650=secret", "quaver_8265xsecret", "quaver_8265_secret", "quaver_8265 secret",
                             "quaver_826=secret", "quaver_=secret", "Quaver_8265=secret"}) {
    EXPECT_EQ(status_with(8265, cookie), 401) << cookie;
  }
}

// Two dashboards of one machine, at ports of which one begins as the other does.
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
