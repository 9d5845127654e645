// Which store is meant and served, who may ask for it, and what the dashboard calls its own address.
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <unistd.h>

#include "serve/client.h"
#include "serve/dashboard.h"
#include "serve/doorkeeper.h"
#include "serve/sample_store.h"
#include "serve/store_door.h"
#include "serve/watcher.h"
#include "store/database.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void touch_file(const fs::path& path) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "x";
}

TEST(StoreDoorPath, OfARunIsTheStoreBesideItUnlessItHasItsOwn) {
  const StoreFolder folder;
  const fs::path run = folder.path() / "run";
  touch_file(run / "config.toml");
  EXPECT_EQ(find_store(run), run / "quaver.db") << "no store is there yet";
  touch_file(folder.store());
  EXPECT_EQ(find_store(run), fs::weakly_canonical(folder.store()));
  EXPECT_EQ(find_store(run / ""), fs::weakly_canonical(folder.store())) << "a slash behind it means nothing";
  touch_file(run / "quaver.db");
  EXPECT_EQ(find_store(run), run / "quaver.db");
  fs::create_directories(folder.path() / "no run");
  EXPECT_EQ(find_store(folder.path() / "no run"), folder.path() / "no run" / "quaver.db");
}

TEST(StoreDoorPath, OfAFileIsTheFileAndOfANameThatEndsInDbAsWell) {
  const StoreFolder folder;
  EXPECT_EQ(find_store(folder.path() / "absent.db"), folder.path() / "absent.db");
  EXPECT_EQ(find_store(folder.path() / "absent"), folder.path() / "absent" / "quaver.db");
  EXPECT_EQ(find_store(folder.path() / "absent.txt"), folder.path() / "absent.txt" / "quaver.db");
  touch_file(folder.path() / "any.name");
  EXPECT_EQ(find_store(folder.path() / "any.name"), folder.path() / "any.name");
  fs::create_directories(folder.path() / "folder.db");
  EXPECT_EQ(find_store(folder.path() / "folder.db"), folder.path() / "folder.db" / "quaver.db");
}

TEST(StoreDoor, IsTheSameReaderUntilAnotherFileTakesItsPlace) {
  const StoreFolder folder;
  StoreDoor door(folder.store());
  EXPECT_EQ(door.file_name(), "quaver.db");
  EXPECT_EQ(door.reader(), nullptr);
  record_run(folder.store(), describe_run("one"));
  const auto first = door.reader();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(door.reader(), first);
  record_run(folder.path() / "other.db", describe_run("two"));
  for (const char* end : {"-wal", "-shm"}) fs::remove(folder.store().string() + end);
  fs::rename(folder.path() / "other.db", folder.store());
  const auto second = door.reader();
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, first);
  EXPECT_EQ(second->runs().at(0).id, "two");
  fs::remove(folder.store());
  EXPECT_EQ(door.reader(), nullptr);
  EXPECT_EQ(second.use_count(), 1) << "the door has let go of the file that is gone";
}

TEST(StoreDoor, TakesEveryMentionOfItsFoldersOutOfAText) {
  const StoreFolder folder;
  const fs::path real = folder.path() / "real";
  fs::create_directories(real);
  fs::create_directory_symlink(real, folder.path() / "link");
  const StoreDoor door(folder.path() / "link" / "quaver.db");
  const std::string linked = (folder.path() / "link").string(), target = fs::weakly_canonical(real).string();
  EXPECT_EQ(door.without_folders(fmt::format("{0}/quaver.db and {0}/quaver.db-wal", linked)),
            "quaver.db and quaver.db-wal");
  EXPECT_EQ(door.without_folders(fmt::format("{0}/1 {0}/2 {0}/3 {0}/4 {0}/5", linked)), "1 2 3 4 5");
  EXPECT_EQ(door.without_folders(fmt::format("{0}/quaver.db: {1}/x", linked, target)), "quaver.db: x");
  EXPECT_EQ(door.without_folders("nothing / of it"), "nothing / of it");
  EXPECT_EQ(StoreDoor("/quaver.db").without_folders("a/b /quaver.db"), "a/b /quaver.db") << "the root is no secret";
  const fs::path here = fs::current_path();
  EXPECT_EQ(StoreDoor("quaver.db").without_folders(fmt::format("{}/quaver.db quaver.db", here.string())),
            "quaver.db quaver.db");
}

int status_for(const Doorkeeper& keeper, const std::string& host, std::vector<std::pair<std::string, std::string>> more,
               const std::string& path = "/api/runs", const std::string& method = "GET") {
  Request request;
  request.method = method;
  request.path = path;
  request.local_address = "10.1.2.3";
  request.headers = std::move(more);
  request.headers.emplace_back("host", host);
  const auto refused = keeper.check(request);
  return refused ? refused->status : 200;
}

TEST(DoorkeeperNames, AreComparedWithoutRegardToCase) {
  const Doorkeeper keeper("MyHost.Example", 8265, "");
  for (const char* host : {"myhost.example:8265", "MYHOST.EXAMPLE:8265", "MyHost.Example:8265", "LOCALHOST:8265"}) {
    EXPECT_EQ(status_for(keeper, host, {}), 200) << host;
  }
  for (const char* host :
       {"myhost.exampl:8265", "myhost.example2:8265", "myhost_example:8265", "@yhost.example:8265"}) {
    EXPECT_EQ(status_for(keeper, host, {}), 403) << host;
  }
  EXPECT_TRUE(Doorkeeper("[::2]", 1, "").is_own_host("[::2]:1", ""));
  EXPECT_TRUE(Doorkeeper("::2", 1, "").is_own_host("[::2]:1", ""));
  EXPECT_FALSE(Doorkeeper("::2", 1, "").is_own_host("[::3]:1", ""));
}

TEST(DoorkeeperNames, OfTheMachineAreItsOwnBehindATokenOnly) {
  std::array<char, 256> name{};
  ASSERT_EQ(gethostname(name.data(), name.size() - 1), 0);
  const std::string machine(name.data());
  if (machine.empty() || machine == "localhost") GTEST_SKIP() << "the machine has no name of its own";
  const Doorkeeper open("127.0.0.1", 8265, ""), guarded("0.0.0.0", 8265, "secret");
  EXPECT_FALSE(open.is_own_host(machine + ":8265", "10.1.2.3"));
  EXPECT_TRUE(guarded.is_own_host(machine + ":8265", "10.1.2.3"));
  EXPECT_TRUE(guarded.is_own_host("10.1.2.3:8265", "10.1.2.3"));
  EXPECT_FALSE(open.is_own_host("10.1.2.3:8265", "10.1.2.3"));
  EXPECT_FALSE(guarded.is_own_host(machine + ":8264", "10.1.2.3"));
  EXPECT_FALSE(guarded.is_own_host(machine, "10.1.2.3"));
  EXPECT_FALSE(guarded.is_own_host(":8265", "")) << "no name is nobody's";
}

TEST(DoorkeeperNames, MayLeaveOutPort80Alone) {
  const Doorkeeper usual("127.0.0.1", 80, ""), other("127.0.0.1", 8265, "");
  EXPECT_TRUE(usual.is_own_host("localhost", ""));
  EXPECT_TRUE(usual.is_own_host("localhost:80", ""));
  EXPECT_TRUE(usual.is_own_host("[::1]", ""));
  EXPECT_FALSE(usual.is_own_host("localhost:8265", ""));
  EXPECT_FALSE(other.is_own_host("localhost", ""));
  EXPECT_FALSE(other.is_own_host("[::1]", ""));
}

TEST(DoorkeeperToken, IsAskedForInTheWordsOfHttp) {
  const Doorkeeper keeper("127.0.0.1", 8265, "secret");
  Request request;
  request.method = "GET";
  request.path = "/api/runs";
  request.headers = {{"host", "localhost:8265"}};
  const auto refused = keeper.check(request);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 401);
  EXPECT_THAT(refused->headers, ElementsAre(std::pair<std::string, std::string>("WWW-Authenticate", "Bearer")));
  EXPECT_TRUE(keeper.token_required());
  EXPECT_FALSE(Doorkeeper("127.0.0.1", 8265, "").token_required());
}

TEST(DoorkeeperToken, InTheAddressIsTakenForThePageByGetAndHead) {
  const auto status = [](const std::string& token, const std::string& method, const std::string& path) {
    Request request;
    request.method = method;
    request.path = path;
    request.query = "token=secret";
    request.headers = {{"host", "localhost:8265"}};
    const auto answer = Doorkeeper("127.0.0.1", 8265, token).check(request);
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

TEST(DoorkeeperToken, IsTheWholeOfWhatIsSent) {
  const Doorkeeper keeper("127.0.0.1", 8265, "secret");
  const std::string host = "localhost:8265";
  EXPECT_EQ(status_for(keeper, host, {{"authorization", "Bearer secret"}, {"cookie", "quaver_8265=wrong"}}), 200);
  EXPECT_EQ(status_for(keeper, host, {{"authorization", "Bearer wrong"}, {"cookie", "quaver_8265=secret"}}), 200);
  for (const char* bearer : {"Bearer  secret", "Bearersecret", "Bearer secret ", "secret", "Bearer"}) {
    EXPECT_EQ(status_for(keeper, host, {{"authorization", bearer}}), 401) << bearer;
  }
  EXPECT_FALSE(equal_in_constant_time("secret", "Secret"));
  EXPECT_FALSE(equal_in_constant_time("secret", "secreT"));
  EXPECT_TRUE(equal_in_constant_time("", ""));
}

TEST(DoorkeeperOrigin, IsTheHostThatWasAsked) {
  const Doorkeeper keeper("127.0.0.1", 80, "");
  EXPECT_EQ(status_for(keeper, "localhost", {{"origin", "http://localhost"}}), 200);
  EXPECT_EQ(status_for(keeper, "localhost", {{"origin", "http://LOCALHOST"}}), 200);
  EXPECT_EQ(status_for(keeper, "localhost", {{"origin", "https://localhost"}}), 403);
  EXPECT_EQ(status_for(keeper, "localhost", {{"origin", "xxxxxxxlocalhost"}}), 403);
  EXPECT_EQ(status_for(keeper, "localhost", {{"sec-fetch-site", "same-site"}, {"sec-fetch-mode", "navigate"}}, "/"),
            200);
  EXPECT_EQ(status_for(keeper, "localhost", {{"sec-fetch-site", "cross-site"}, {"sec-fetch-mode", "no-cors"}}, "/"),
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

std::string url_of(const std::string& host, TokenUse token = TokenUse::beyond_this_machine) {
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

TEST(ChangeFinder, NamesEachKindOnceAndTheStep) {
  const StoreFolder folder;
  StoreDoor door(folder.store());
  ChangeFinder finder(door);
  RunRecorder recorder(folder.store(), describe_run("one"), 0, [](const std::string& text) { ADD_FAILURE() << text; });
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(finder.look(), runs_event);
  const auto execute = [&](const std::string& sql) {
    Database(folder.store(), Database::Access::existing, std::chrono::seconds(5)).execute(sql);
  };
  const MetricValue loss{"loss", 3};
  recorder.metrics(12, {&loss, 1});
  recorder.event(12, "a", "b");
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(finder.look(), "event: change\ndata: {\"kinds\":[\"events\",\"metrics\"],\"run\":\"one\",\"step\":12}\n\n");
  recorder.status(RunStatus::finished);
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(finder.look(), "event: change\ndata: {\"kinds\":[\"status\"],\"run\":\"one\",\"step\":12}\n\n")
      << "the status changed and says so itself: once";
  execute("UPDATE runs SET status='running', heartbeat=heartbeat-61");
  EXPECT_EQ(finder.look(), "event: change\ndata: {\"kinds\":[\"status\"],\"run\":\"one\",\"step\":12}\n\n")
      << "lost: nothing was counted, but the status is another";
  execute("UPDATE revisions SET revision=0 WHERE kind='events'");
  EXPECT_EQ(finder.look(), "event: change\ndata: {\"kinds\":[\"events\"],\"run\":\"one\",\"step\":12}\n\n")
      << "another count than before, in whichever direction";
  EXPECT_EQ(finder.look(), "");
}

}  // namespace
}  // namespace quaver::test
