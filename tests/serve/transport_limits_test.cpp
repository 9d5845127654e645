// Limits of the transport: connections, streams, bytes, deadlines, heartbeats.
#include <chrono>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <sys/resource.h>
#include <vector>

#include "serve/client.h"
#include "serve/dashboard.h"
#include "serve/test_server.h"
#include "serve/transport.h"

namespace quaver::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds ms(int count) { return std::chrono::milliseconds(count); }

// Responds with the path, or with N bytes to /bytes/N; /events is a stream, /local the connection's local address.
class SmallServer : public TestServer {
 public:
  explicit SmallServer(const TransportLimits& limits = {}) : TestServer({respond_to_head, respond}, limits) {}
  std::string to(std::string_view path, std::string_view more = "") const { return get(port(), path, more); }

 private:
  static std::optional<Response> respond_to_head(const Request& head) {
    if (head.path != "/events") return std::nullopt;
    Response response;
    response.kind = Body::events;
    response.content_type = "text/event-stream";
    return response;
  }
  static Response respond(const Request& request) {
    if (request.path == "/local") return json_response(request.local_address);
    if (request.path.starts_with("/bytes/")) return json_response(std::string(std::stoul(request.path.substr(7)), 'x'));
    return json_response(request.path + request.body);
  }
};

template <class Condition>
bool soon(Condition condition) {
  const auto end = Steady::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (Steady::now() > end) return false;
    std::this_thread::sleep_for(ms(2));
  }
  return true;
}

TEST(TransportDefaults, AreTheDocumentedOnes) {
  const TransportLimits limits;
  EXPECT_EQ(limits.connections, 900U);
  EXPECT_EQ(limits.streams, 48U);
  EXPECT_EQ(limits.workers, 4U);
  EXPECT_EQ(limits.waiting_requests, 256U);
  EXPECT_EQ(limits.unsent_bytes, 134217728U);
  EXPECT_EQ(limits.unsent_stream_bytes, 262144U);
  EXPECT_EQ(limits.idle, ms(15000));
  EXPECT_EQ(limits.request, ms(10000));
  EXPECT_EQ(limits.stalled, ms(10000));
  EXPECT_EQ(limits.response, ms(120000));
  EXPECT_EQ(limits.linger, ms(1000));
  EXPECT_EQ(limits.heartbeat, ms(15000));
  const ServeOptions options;
  EXPECT_EQ(options.host, "127.0.0.1");
  EXPECT_EQ(options.port, 8265);
  EXPECT_EQ(options.token, TokenUse::beyond_loopback);
}

TEST(TransportCounts, ConnectionsAndStreamsComeAndGo) {
  SmallServer server;
  auto first = std::make_unique<Client>(server.port());
  auto second = std::make_unique<Client>(server.port());
  auto stream = std::make_unique<Client>(server.port());
  stream->send(server.to("/events"));
  EXPECT_TRUE(soon([&] { return server->connections() == 3 && server->streams() == 1; }));
  stream.reset();
  EXPECT_TRUE(soon([&] { return server->connections() == 2 && server->streams() == 0; }));
  first.reset();
  EXPECT_TRUE(soon([&] { return server->connections() == 1; }));
  second.reset();
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
}

TEST(TransportCounts, NothingIsOpenAfterTheEnd) {
  SmallServer server;
  Client stream(server.port());
  stream.send(server.to("/events"));
  stream.receive_until("retry");
  server.stop();
  EXPECT_EQ(server->streams(), 0U);
  EXPECT_EQ(server->connections(), 0U);
}

TEST(TransportCounts, ThereAreAsManyConnectionsAsAllowedAndNotOneMore) {
  TransportLimits limits;
  limits.connections = 3;
  SmallServer server(limits);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    EXPECT_TRUE(soon([&] { return server->connections() == static_cast<std::size_t>(i + 1); }));
  }
  clients.push_back(std::make_unique<Client>(server.port()));
  clients.back()->send(server.to("/x"));
  EXPECT_EQ(clients.back()->receive().body, "/x");
  EXPECT_EQ(server->connections(), 3U);
  EXPECT_TRUE(clients[0]->is_ended(std::chrono::seconds(20))) << "the one that has been idle the longest";
  EXPECT_FALSE(clients[2]->is_ended(ms(20)));
}

// Streams are in use: none of them is closed for a new connection; the new one is.
TEST(TransportCounts, ConnectionsThatAreServedStay) {
  TransportLimits limits;
  limits.connections = 2;
  SmallServer server(limits);
  Client first(server.port());
  Client second(server.port());
  for (Client* client : {&first, &second}) {
    client->send(server.to("/events"));
    EXPECT_THAT(client->receive_until("retry"), HasSubstr("200 OK"));
  }
  Client third(server.port());
  EXPECT_TRUE(third.is_ended(std::chrono::seconds(20)));
  EXPECT_EQ(server->streams(), 2U);
}

// A connection that lingers after its last response makes room for a new one.
TEST(TransportCounts, ConnectionsThatLingerMakeRoom) {
  TransportLimits limits;
  limits.connections = 1;
  limits.linger = std::chrono::seconds(30);
  SmallServer server(limits);
  Client first(server.port());
  first.send(server.to("/a", "Connection: close\r\n"));
  EXPECT_EQ(first.receive().body, "/a");
  Client second(server.port());
  second.send(server.to("/b"));
  EXPECT_EQ(second.receive().body, "/b");
}

TEST(TransportCounts, ThereAreAsManyStreamsAsAllowed) {
  TransportLimits limits;
  limits.streams = 2;
  SmallServer server(limits);
  Client clients[] = {Client(server.port()), Client(server.port()), Client(server.port())};
  for (int i = 0; i < 2; ++i) {
    clients[i].send(server.to("/events"));
    EXPECT_THAT(clients[i].receive_until("retry: 2000\n\n"), HasSubstr("200 OK"));
  }
  clients[2].send(server.to("/events"));
  const Reply refused = clients[2].receive();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("Retry-After"), "15");
  EXPECT_EQ(server->streams(), 2U);
}

// The program reserves 64 descriptors for its stores and the rest; of few it reserves half.
TEST(TransportCounts, ConnectionsLeaveDescriptorsForTheStore) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto allowed_of = [&](rlim_t descriptors, std::size_t clients) {
    rlimit few = before;
    few.rlim_cur = descriptors;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    auto server = std::make_unique<SmallServer>();
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    std::vector<std::unique_ptr<Client>> connected;
    for (std::size_t i = 0; i < clients; ++i) connected.push_back(std::make_unique<Client>(server->port()));
    Client last(server->port());
    last.send(server->to("/x"));
    EXPECT_EQ(last.receive().status, 200);
    return (*server)->connections();
  };
  EXPECT_EQ(allowed_of(129, 80), 65U);
  EXPECT_EQ(allowed_of(128, 80), 64U);
  EXPECT_EQ(allowed_of(100, 80), 50U);
}

TEST(TransportAnswers, GetAfterHeadHasItsBody) {
  SmallServer server;
  Client client(server.port());
  std::string head = server.to("/first");
  head.replace(0, 3, "HEAD");
  client.send(head + server.to("/second", "Connection: close\r\n"));
  EXPECT_THAT(client.receive_until("never sent"), EndsWith("\r\n\r\n/second"));
}

TEST(TransportAnswers, ATimeoutAfterHeadHasItsBody) {
  TransportLimits limits;
  limits.request = ms(200);
  SmallServer server(limits);
  Client client(server.port());
  std::string head = server.to("/first");
  head.replace(0, 3, "HEAD");
  client.send(head + "GET /second");
  EXPECT_THAT(client.receive_until("never sent"), EndsWith("\"remedy\":\"send it at once\"}"));
}

TEST(TransportAnswers, HeadOfAStreamEndsTheConnection) {
  SmallServer server;
  Client client(server.port());
  std::string head = server.to("/events");
  head.replace(0, 3, "HEAD");
  client.send(head);
  EXPECT_THAT(client.receive_until("never sent"), HasSubstr("Connection: close\r\n"));
  EXPECT_EQ(server->streams(), 0U);
}

TEST(TransportAnswers, TheAddressOfTheConnectionComesWithTheRequest) {
  SmallServer server;
  EXPECT_EQ(ask(server.port(), server.to("/local")).body, "127.0.0.1");
}

// The server ends its side with the response, long before it stops waiting for the client to close.
TEST(TransportAnswers, AConnectionThatIsNotKeptEndsWithItsAnswer) {
  TransportLimits limits;
  limits.linger = std::chrono::seconds(60);
  SmallServer server(limits);
  Client client(server.port());
  client.send(server.to("/last", "Connection: close\r\n"));
  EXPECT_EQ(client.receive().body, "/last");
  EXPECT_TRUE(client.is_ended(std::chrono::seconds(20)));
}

// Responses that were sent, and those whose clients have gone, do not count as unsent.
TEST(TransportAnswers, WhatWasSentOrGivenUpIsNotHeldAnyMore) {
  TransportLimits limits;
  limits.unsent_bytes = 4000000;
  SmallServer server(limits);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(server.port(), server.to("/bytes/3000000")).body.size(), 3000000U);
  EXPECT_EQ(ask(server.port(), server.to("/x")).status, 200);
  for (int i = 0; i < 3; ++i) {
    Client gone(server.port());
    gone.send(server.to("/bytes/30000000"));
    gone.receive_until("HTTP/1.1 200");
  }
  EXPECT_TRUE(soon([&] { return server->connections() == 0; }));
  EXPECT_EQ(ask(server.port(), server.to("/x")).status, 200);
}

TEST(TransportDeadlines, ABodyThatDoesNotComeIsToldOf) {
  TransportLimits limits;
  limits.request = ms(200);
  SmallServer server(limits);
  Client client(server.port());
  client.send(fmt::format("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"));
  const Reply reply = client.receive();
  EXPECT_EQ(reply.status, 408);
  EXPECT_EQ(reply.header("Connection"), "close");
}

// Between requests the limit `idle` applies; with half a request, the limit `request`.
TEST(TransportDeadlines, AKeptConnectionMayBeIdleForItsTime) {
  TransportLimits limits;
  limits.idle = ms(200);
  limits.request = std::chrono::seconds(60);
  SmallServer server(limits);
  Client client(server.port());
  client.send(server.to("/x"));
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_TRUE(client.is_ended(std::chrono::seconds(20)));
}

TEST(TransportDeadlines, ANewConnectionMayBeSilentForTheTimeToBeIdle) {
  TransportLimits limits;
  limits.idle = ms(200);
  limits.request = std::chrono::seconds(60);
  SmallServer server(limits);
  Client client(server.port());
  EXPECT_TRUE(client.is_ended(std::chrono::seconds(20)));
}

TEST(TransportDeadlines, AConnectionLingersNoLongerThanItsTime) {
  TransportLimits limits;
  limits.linger = ms(200);
  limits.idle = limits.request = limits.stalled = std::chrono::seconds(60);
  SmallServer server(limits);
  Client client(server.port());
  client.send(server.to("/last", "Connection: close\r\n"));
  EXPECT_EQ(client.receive().body, "/last");
  EXPECT_TRUE(soon([&] { return server->connections() == 0; })) << "though the client has not left";
}

TEST(TransportDeadlines, HalfARequestBehindAnAnswerHasTheTimeOfARequest) {
  TransportLimits limits;
  limits.idle = std::chrono::seconds(60);
  limits.request = ms(200);
  SmallServer server(limits);
  Client client(server.port());
  client.send(server.to("/x") + "GET /y");
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_EQ(client.receive(std::chrono::seconds(20)).status, 408);
}

// Reads a response of so many bytes, two million at a time with a pause between; returns how many came.
std::size_t taken_slowly(SmallServer& server, std::size_t bytes, std::chrono::milliseconds pause) {
  Client client(server.port());
  client.send(server.to(fmt::format("/bytes/{}", bytes), "Connection: close\r\n"));
  std::size_t taken = client.receive_until("\r\n\r\n").size();
  for (bool goes_on = true; goes_on;) {
    std::size_t piece = 0;
    while (goes_on && piece < 2000000) {
      const std::size_t some = client.receive_until("x", std::chrono::seconds(20)).size();
      piece += some;
      goes_on = some > 0;
    }
    taken += piece;
    std::this_thread::sleep_for(pause);
  }
  return taken;
}

// The whole takes longer than the limit `stalled`, the pauses do not.
TEST(TransportDeadlines, AReaderThatGoesOnGetsItAll) {
  TransportLimits limits;
  limits.stalled = ms(1000);
  limits.response = std::chrono::seconds(120);
  SmallServer server(limits);
  EXPECT_GT(taken_slowly(server, 24000000, ms(130)), 24000000U);
}

TEST(TransportDeadlines, AReaderThatGoesOnForTooLongIsLeft) {
  TransportLimits limits;
  limits.stalled = std::chrono::seconds(60);
  limits.response = ms(200);
  SmallServer server(limits);
  EXPECT_LT(taken_slowly(server, 80000000, ms(40)), 80000000U);
}

// Heartbeats keep their period: within a time there are no more of them than fit.
TEST(TransportDeadlines, HeartbeatsKeepTheirDistance) {
  TransportLimits limits;
  limits.heartbeat = ms(500);
  SmallServer server(limits);
  const auto start = Steady::now();
  Client client(server.port());
  client.send(server.to("/events"));
  EXPECT_THAT(client.receive_until("retry: 2000\n\n"), EndsWith("retry: 2000\n\n"));
  const std::string beats = client.receive_until("never sent", ms(1400));
  const auto most = (Steady::now() - start) / ms(500);
  EXPECT_LE(static_cast<long>(beats.size()), 3 * most) << "three bytes each";
  EXPECT_THAT(beats, StartsWith(":\n\n"));
}

TEST(TransportStreams, EveryStreamGetsEveryEventInOrder) {
  SmallServer server;
  Client clients[] = {Client(server.port()), Client(server.port())};
  for (Client& client : clients) {
    client.send(server.to("/events"));
    client.receive_until("retry: 2000\n\n");
  }
  for (int i = 0; i < 5; ++i) server->publish(fmt::format("data: {}\n\n", i));
  for (Client& client : clients) {
    EXPECT_EQ(client.receive_until("data: 4\n\n"), "data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\ndata: 4\n\n");
  }
}

TEST(TransportStreams, AClientThatSpeaksOnAStreamIsLeft) {
  SmallServer server;
  Client client(server.port());
  client.send(server.to("/events"));
  client.receive_until("retry: 2000\n\n");
  client.send("hello");
  EXPECT_TRUE(client.is_ended(std::chrono::seconds(20)));
  EXPECT_TRUE(soon([&] { return server->streams() == 0; }));
}

// A stream whose client reads nothing is closed after the limit `stalled`, however little is unsent.
TEST(TransportStreams, AStuckStreamIsGivenUp) {
  TransportLimits limits;
  limits.stalled = ms(300);
  limits.unsent_stream_bytes = std::size_t{1} << 30U;
  SmallServer server(limits);
  Client client(server.port());
  client.send(server.to("/events"));
  client.receive_until("retry: 2000\n\n");
  for (int i = 0; i < 20; ++i) server->publish("data: " + std::string(1000000, 'x') + "\n\n");
  EXPECT_TRUE(soon([&] { return server->streams() == 0; }));
}

}  // namespace
}  // namespace quaver::test
