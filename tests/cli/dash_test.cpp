// `dash` and `export` as a user runs them, on a store that a recorder wrote.
#include <arpa/inet.h>
#include <array>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/command.h"
#include "serve/descriptor.h"
#include "serve/transport.h"
#include "store/recorder.h"

namespace quaver::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

void record(const TemporaryFolder& folder, const std::string& id, const std::string& name,
            const std::string& runs = "runs") {
  fs::create_directories(folder / runs);
  RunDescription run;
  run.id = id;
  run.name = name;
  run.sites = {{"head/x", "head", "x", {"e4m3", "e4m3", "tensor", "delayed", "fp8-delayed", ""}}};
  run.statistics = {{"amax", "", "largest magnitude", WorseWay::higher}};
  RunRecorder recorder(folder / runs / "quaver.db", run, 0, [](const std::string& text) { ADD_FAILURE() << text; });
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const MetricValue loss{"loss", 1.0 / static_cast<double>(step)};
    recorder.metrics(step, {&loss, 1});
    const float amax = 2;
    recorder.numerics(step, {&amax, 1});
  }
  recorder.status(RunStatus::finished);
  ASSERT_TRUE(recorder.flush());
}

// What the server answers to a GET; empty where it cannot be reached.
std::string fetch(int port, const std::string& path) {
  const Descriptor connection(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return "";
  const std::string request =
      fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n", path, port);
  send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL);
  std::string answer;
  std::array<char, 4096> chunk;
  for (ssize_t count = 0; (count = recv(connection.get(), chunk.data(), chunk.size(), 0)) > 0;) {
    answer.append(chunk.data(), static_cast<std::size_t>(count));
  }
  return answer;
}

// A port that was free a moment ago.
int free_port() { return Transport("127.0.0.1", 0).port(); }

TEST(DashVerb, ServesTheRunsOfAFolderUntilInterrupted) {
  const TemporaryFolder folder;
  record(folder, "abc", "first");
  const int port = free_port();
  Process dash(folder, {"dash", "--port", std::to_string(port)});
  ASSERT_TRUE(dash.wait_for("Ctrl-C ends it"));
  EXPECT_THAT(fetch(port, "/api/runs"), HasSubstr("\"name\":\"first\""));
  EXPECT_THAT(fetch(port, "/"), HasSubstr("<html"));
  dash.send(SIGINT);
  const Outcome outcome = dash.wait();
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr(fmt::format("http://127.0.0.1:{}/\n", port)));
  EXPECT_EQ(outcome.error, "");
}

TEST(DashVerb, WaitsForAStoreThatIsNotThereYet) {
  const TemporaryFolder folder;
  const int port = free_port();
  Process dash(folder, {"dash", "runs", "--port", std::to_string(port)});
  ASSERT_TRUE(dash.wait_for("Ctrl-C ends it"));
  EXPECT_THAT(fetch(port, "/api/runs"), HasSubstr("\"runs\":[]}"));
  record(folder, "abc", "first");
  EXPECT_THAT(fetch(port, "/api/runs"), HasSubstr("\"id\":\"abc\""));
  dash.send(SIGTERM);
  const Outcome outcome = dash.wait();
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out,
              HasSubstr("nothing is recorded there yet: no runs/quaver.db, nor any up to 4 folders below"));
}

TEST(DashVerb, ServesEveryStoreBelowTheFolder) {
  const TemporaryFolder folder;
  record(folder, "abc", "first");
  record(folder, "abc", "second", "runs/compared");
  const int port = free_port();
  Process dash(folder, {"dash", ".", "--port", std::to_string(port)});
  ASSERT_TRUE(dash.wait_for("Ctrl-C ends it"));
  const std::string runs = fetch(port, "/api/runs");
  EXPECT_THAT(runs, HasSubstr("\"name\":\"first\""));
  EXPECT_THAT(runs, HasSubstr("\"name\":\"second\""));
  EXPECT_THAT(runs, HasSubstr("\"store_folder\":\"runs/compared\""));
  dash.send(SIGINT);
  EXPECT_THAT(dash.wait().out, HasSubstr("2 stores"));
}

TEST(DashVerb, TellsNoTokenForChangesWhereItIsReadOnly) {
  const TemporaryFolder folder;
  record(folder, "abc", "first");
  const auto told = [&](const Words& more) {
    const int port = free_port();
    Words words{"dash", "--port", std::to_string(port)};
    words.insert(words.end(), more.begin(), more.end());
    Process dash(folder, words);
    EXPECT_TRUE(dash.wait_for("Ctrl-C ends it"));
    std::string server = fetch(port, "/api/server");
    dash.send(SIGINT);
    dash.wait();
    return server;
  };
  EXPECT_THAT(told({}), HasSubstr("\"change_token\":\""));
  EXPECT_THAT(told({"--read-only"}), HasSubstr("\"change_token\":null"));
  EXPECT_EQ(quaver(folder, {"dash", "--read-only", "--allow-changes"}).status, 1);
  EXPECT_THAT(quaver(folder, {"dash", "--help"}).out, HasSubstr("--read-only"));
}

TEST(DashVerb, AsksForATokenWhereItIsToldTo) {
  const TemporaryFolder folder;
  const int port = free_port();
  Process dash(folder, {"dash", "--token", "--port", std::to_string(port)});
  ASSERT_TRUE(dash.wait_for("Ctrl-C ends it"));
  EXPECT_THAT(fetch(port, "/api/runs"), HasSubstr(" 401 "));
  dash.send(SIGINT);
  const std::string out = dash.wait().out;
  EXPECT_THAT(out, HasSubstr(fmt::format("http://127.0.0.1:{}/?token=", port)));
}

// Others need the token, and the line to give them has it.
TEST(DashVerb, TheAddressForOtherMachinesHasTheToken) {
  const TemporaryFolder folder;
  record(folder, "abc", "first");
  const int port = free_port();
  Process dash(folder, {"dash", "--host", "0.0.0.0", "--port", std::to_string(port)});
  ASSERT_TRUE(dash.wait_for("Ctrl-C ends it"));
  dash.send(SIGINT);
  const Outcome outcome = dash.wait();
  EXPECT_EQ(outcome.status, 0);
  const std::string begin = fmt::format(":{}/?token=", port);
  const std::size_t address = outcome.out.find("from other machines: http://");
  ASSERT_NE(address, std::string::npos) << outcome.out;
  const std::size_t token = outcome.out.find(begin, address);
  ASSERT_NE(token, std::string::npos) << outcome.out;
  const std::size_t from = token + begin.size();
  EXPECT_GE(outcome.out.find('\n', from) - from, 16U) << outcome.out;
  EXPECT_THAT(outcome.error, HasSubstr("not encrypted, the token included"));
}

TEST(DashVerb, APortThatIsTakenSaysWhatToDo) {
  const TemporaryFolder folder;
  const Transport taken("127.0.0.1", 0);
  const std::string port = std::to_string(taken.port());
  const Outcome outcome = quaver(folder, {"dash", "--port", port});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.error, HasSubstr(port));
  EXPECT_THAT(outcome.error, HasSubstr("\n  → "));
  EXPECT_THAT(outcome.error, HasSubstr("--port"));
  EXPECT_EQ(quaver(folder, {"dash", "--port", "70000"}).status, 1);
}

TEST(ExportVerb, WritesRunsInEveryFormat) {
  const TemporaryFolder folder;
  record(folder, "abc", "first");
  record(folder, "def", "second");
  const Outcome jsonl = quaver(folder, {"export", "runs", "--format", "jsonl", "--out", "out"});
  ASSERT_EQ(jsonl.status, 0) << jsonl.error;
  EXPECT_THAT(contents(folder / "out/first/metrics.jsonl"), HasSubstr("\"loss\""));
  EXPECT_TRUE(fs::exists(folder / "out/second/numerics.jsonl"));
  EXPECT_THAT(jsonl.out, HasSubstr("metrics.jsonl\n"));

  const Outcome csv =
      quaver(folder, {"export", "runs/quaver.db", "--run", "second", "--format", "csv", "--out", "csv"});
  ASSERT_EQ(csv.status, 0) << csv.error;
  EXPECT_TRUE(fs::exists(folder / "csv/second/metrics.csv"));
  EXPECT_FALSE(fs::exists(folder / "csv/first"));

  const Outcome board = quaver(
      folder, {"export", "runs", "--run", "abc", "--format=tensorboard", "--statistics", "amax", "--out", "board"});
  ASSERT_EQ(board.status, 0) << board.error;
  EXPECT_THAT(board.out, HasSubstr("tfevents"));
}

TEST(ExportVerb, TheFolderOfARunStandsForThatRun) {
  const TemporaryFolder folder;
  const std::string id = "0123456789abcdef";
  record(folder, id, "first");
  record(folder, "def", "second");
  folder.write("runs/first/config.toml", "");
  folder.write("runs/first/run_id", id + "\n");
  const Outcome outcome = quaver(folder, {"export", "runs/first", "--format", "csv", "--out", "out"});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.out, "out/first/metrics.csv\nout/first/numerics.csv\n");
  EXPECT_FALSE(fs::exists(folder / "out/second"));

  folder.write("runs/first/run_id", "no id\n");
  const Outcome damaged = quaver(folder, {"export", "runs/first", "--format", "csv", "--out", "other"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.error, HasSubstr("runs/first/run_id is damaged"));
  EXPECT_FALSE(fs::exists(folder / "other"));
}

TEST(ExportVerb, WhatIsNotThereIsNamed) {
  const TemporaryFolder folder;
  const auto refused = [&](const Words& words, const char* text) {
    const Outcome outcome = quaver(folder, words);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, HasSubstr(text));
    EXPECT_THAT(outcome.error, HasSubstr("\n  → "));
  };
  refused({"export", "runs", "--format", "csv", "--out", "out"}, "runs/quaver.db");
  record(folder, "abc", "twice");
  record(folder, "def", "twice");
  refused({"export", "runs", "--run", "third", "--format", "csv", "--out", "out"}, "third");
  refused({"export", "runs", "--run", "twice", "--format", "csv", "--out", "out"}, "abc");
  refused({"export", "runs", "--format", "xml", "--out", "out"}, "xml");
  refused({"export", "runs", "--out", "out"}, "--format");
  EXPECT_FALSE(fs::exists(folder / "out"));
}

}  // namespace
}  // namespace quaver::test
