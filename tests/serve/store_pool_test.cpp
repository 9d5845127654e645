// Which stores below a folder are found, which problems are reported, and the addresses of runs of several stores.
#include "serve/store_pool.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <unistd.h>

#include "serve/application.h"
#include "serve/client.h"
#include "serve/sample_store.h"
#include "serve/watcher.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

fs::path put_store(const fs::path& folder) {
  fs::create_directories(folder);
  std::ofstream(folder / "quaver.db") << "x";
  return folder / "quaver.db";
}

TEST(SearchStores, FindsThemUpToADepth) {
  const StoreFolder folder;
  const fs::path root = folder.path();
  const fs::path own = put_store(root), below = put_store(root / "a"), deep = put_store(root / "b/c/d/e");
  put_store(root / "b/c/d/e/f");
  const FoundStores found = search_stores(root);
  EXPECT_THAT(found.files, ElementsAre(below, deep, own));
  EXPECT_THAT(found.problems, IsEmpty());
  EXPECT_THAT(search_stores(root / "absent").files, IsEmpty());
  EXPECT_THAT(search_stores(root / "absent").problems, IsEmpty());
}

TEST(SearchStores, DoesNotFollowLinksNorEnterRunsAndDottedFolders) {
  const StoreFolder folder, elsewhere;
  const fs::path root = folder.path();
  put_store(elsewhere.path());
  fs::create_directory_symlink(elsewhere.path(), root / "link");
  fs::create_directories(root / "loop");
  fs::create_directory_symlink(root, root / "loop/back");
  put_store(root / ".hidden");
  put_store(root / "run/checkpoints");
  std::ofstream(root / "run/run_id") << "abc";
  fs::create_directories(root / "a folder");
  fs::create_directories(root / "odd/quaver.db");
  EXPECT_THAT(search_stores(root).files, IsEmpty());
  const fs::path own = put_store(root / "run");
  fs::create_symlink(own, root / "a folder/quaver.db");
  EXPECT_THAT(search_stores(root).files, SizeIs(1)) << "one file under two names";
}

TEST(SearchStores, StopsAtItsBoundsAndSaysSo) {
  const StoreFolder folder;
  for (const char* name : {"a", "b", "c", "d"}) put_store(folder.path() / name);
  const FoundStores few = search_stores(folder.path(), {.stores = 3});
  EXPECT_THAT(few.files, SizeIs(3));
  EXPECT_THAT(few.problems, ElementsAre(HasSubstr("more than 3 stores")));
  EXPECT_THAT(search_stores(folder.path(), {.stores = 4}).problems, IsEmpty());
  const FoundStores cut = search_stores(folder.path(), {.entries = 5});
  EXPECT_THAT(cut.files, SizeIs(1));
  EXPECT_THAT(cut.problems, ElementsAre(HasSubstr("more than 5 files")));
}

TEST(SearchStores, ReportsFoldersThatCannotBeRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const StoreFolder folder;
  put_store(folder.path() / "good");
  fs::create_directories(folder.path() / "locked");
  fs::permissions(folder.path() / "locked", fs::perms::none);
  const FoundStores found = search_stores(folder.path());
  fs::permissions(folder.path() / "locked", fs::perms::owner_all);
  EXPECT_THAT(found.files, SizeIs(1));
  EXPECT_THAT(found.problems, ElementsAre(HasSubstr("locked")));
}

class SeveralStores : public ::testing::Test {
 protected:
  Response ask(const std::string& method, const std::string& path, const std::string& body = "") {
    Request request;
    request.method = method;
    request.path = path;
    request.headers = {{"host", "localhost:8265"}, {"content-type", "application/json"}, {"x-quaver-token", "token"}};
    request.body = body;
    return application().respond(request);
  }
  json get(const std::string& path) {
    const Response response = ask("GET", path);
    EXPECT_EQ(response.status, 200) << path << response.body;
    return json::parse(response.body);
  }
  Application& application() {
    if (!pool_) {
      pool_.emplace(folder_.path(), SearchLimits{.every = std::chrono::milliseconds(0)});
      application_.emplace(RequestGuard("127.0.0.1", 8265, ""), *pool_, "token", Application::Hooks{});
    }
    return *application_;
  }
  fs::path store(const std::string& folder) {
    fs::create_directories(folder_.path() / folder);
    return folder_.path() / folder / "quaver.db";
  }
  // The address of the run of a name.
  std::string address(const std::string& name) {
    const json runs = get("/api/runs")["runs"];
    for (const json& run : runs) {
      if (run["name"] == name) return run["id"];
    }
    return "none";
  }

  StoreFolder folder_;
  std::optional<StorePool> pool_;
  std::optional<Application> application_;
};

TEST_F(SeveralStores, RunsOfAllAreListedNewestFirstWithTheirFolders) {
  record_run(store("sweep/wide"), describe_run("b", "deep"));
  record_run(store(""), describe_run("a", "main"));
  record_run(store("sweep"), describe_run("c", "below"));
  const json runs = get("/api/runs")["runs"];
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0]["name"], "below");
  EXPECT_EQ(runs[0]["store_folder"], "sweep");
  EXPECT_EQ(runs[1]["store_folder"], "");
  EXPECT_EQ(runs[1]["id"], "a") << "as it was when there was one store";
  EXPECT_EQ(runs[2]["store_folder"], "sweep/wide");
  EXPECT_EQ(get("/api/alerts")["alerts"].size(), 3U);
  EXPECT_EQ(get("/api/alerts")["alerts"][0]["run"], runs[0]["id"]) << "newest first, by address";
}

TEST_F(SeveralStores, RunsOfOneIdAreEachReachable) {
  for (const char* folder : {"", "x", "y"}) {
    RunDescription run = describe_run("same", std::string("in ") + folder);
    record_run(store(folder), run);
  }
  std::set<std::string> addresses;
  for (const char* name : {"in ", "in x", "in y"}) {
    const std::string one = address(name);
    addresses.insert(one);
    EXPECT_EQ(get("/api/runs/" + one)["name"], name);
    EXPECT_EQ(get("/api/runs/" + one)["id"], one);
    EXPECT_EQ(get("/api/runs/" + one + "/alerts")["alerts"][0]["run"], one);
    EXPECT_EQ(get("/api/runs/" + one + "/events")["events"].size(), 1U);
  }
  EXPECT_EQ(addresses.size(), 3U);
  EXPECT_EQ(ask("POST", "/api/runs/" + address("in y") + "/edit", R"({"note":"here"})").status, 204);
  EXPECT_EQ(get("/api/runs/" + address("in y"))["note"], "here");
  EXPECT_EQ(get("/api/runs/" + address("in x"))["note"], "");
  for (const char* other :
       {"same~00000000", "same~", "same~0000000", "same~0000000g", "same~0000000A", "same~00000000~"}) {
    EXPECT_EQ(ask("GET", std::string("/api/runs/") + other).status, 404) << other;
  }
}

TEST_F(SeveralStores, AddressesAreTheSameWhenTheDashboardIsStartedAgain) {
  record_run(store("one/two"), describe_run("a"));
  const std::string before = address("a run");
  application_.reset();
  pool_.reset();
  record_run(store("another"), describe_run("b", "other"));
  EXPECT_EQ(address("a run"), before);
}

TEST_F(SeveralStores, OneThatCannotBeReadIsNamedAndTheOthersAreShown) {
  record_run(store("good"), describe_run("a"));
  std::ofstream(store("bad")) << "this is no database, but text of some length\n";
  const json answer = get("/api/runs");
  EXPECT_EQ(answer["runs"].size(), 1U);
  ASSERT_EQ(answer["problems"].size(), 1U);
  EXPECT_THAT(answer["problems"][0]["what"].get<std::string>(), HasSubstr("bad/quaver.db"));
  EXPECT_THAT(answer.dump(), Not(HasSubstr(folder_.path().string())));
  EXPECT_EQ(get("/api/alerts")["alerts"].size(), 1U);
}

TEST_F(SeveralStores, OnesThatAppearAndVanishAreNoticed) {
  application();
  PoolChangeFinder finder(*pool_);
  EXPECT_EQ(finder.poll(), "");
  record_run(store("late"), describe_run("a"));
  EXPECT_EQ(finder.poll(), runs_event);
  const std::string one = address("a run");
  EXPECT_THAT(one, HasSubstr("a~"));
  ask("POST", "/api/runs/" + one + "/edit", R"({"note":"x"})");
  EXPECT_THAT(finder.poll(), HasSubstr("\"run\":\"" + one + "\""));
  fs::remove_all(folder_.path() / "late");
  EXPECT_EQ(finder.poll(), runs_event);
  EXPECT_EQ(get("/api/runs")["runs"].size(), 0U);
  EXPECT_EQ(ask("GET", "/api/runs/" + one).status, 404);
}

TEST_F(SeveralStores, AreSearchedNoMoreOftenThanTheyAreTo) {
  StorePool pool(folder_.path(), {.every = std::chrono::hours(1)});
  put_store(folder_.path() / "late");
  pool.refresh();
  EXPECT_THAT(pool.all(), SizeIs(1)) << "the folder's own, which is not there yet";
}

TEST_F(SeveralStores, AFileStandsForItselfAlone) {
  record_run(store(""), describe_run("a"));
  record_run(store("below"), describe_run("b"));
  EXPECT_THAT(StorePool(store("")).all(), SizeIs(1));
  EXPECT_EQ(StorePool(store("")).depth(), 0U);
  EXPECT_THAT(StorePool(folder_.path()).all(), SizeIs(2));
}

TEST_F(SeveralStores, ARunWhoseFolderIsGoneSaysWhereItWas) {
  const fs::path real = fs::weakly_canonical(folder_.path());
  RunDescription kept = describe_run("kept", "kept"), gone = describe_run("gone", "gone");
  kept.directory = (real / "sweep/kept").string();
  gone.directory = (real / "sweep/gone").string();
  RunDescription moved = describe_run("moved", "moved"), far = describe_run("far", "far");
  moved.directory = "/somewhere/else/moved";  // the whole folder was moved here
  far.directory = "/somewhere/else/far/";
  RunDescription unknown = describe_run("unknown", "unknown");
  unknown.directory = "";
  for (const RunDescription& run : {kept, gone, moved, far, unknown}) record_run(store("sweep"), run);
  for (const char* name : {"kept", "gone", "moved"}) fs::create_directories(real / "sweep" / name);
  fs::remove(real / "sweep/gone");
  const auto missing = [&](const std::string& name) { return get("/api/runs/" + address(name))["missing_folder"]; };
  EXPECT_EQ(missing("kept"), nullptr);
  EXPECT_EQ(missing("gone"), "sweep/gone");
  EXPECT_EQ(missing("moved"), nullptr);
  EXPECT_EQ(missing("far"), "…/far") << "where this machine keeps its files is not told";
  EXPECT_EQ(missing("unknown"), nullptr);
}

}  // namespace
}  // namespace quaver::test
