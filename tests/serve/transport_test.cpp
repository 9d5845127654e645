// Connections that are slow, silent, many or gone: none of them may delay the responses to others.
#include "serve/transport.h"

#include <chrono>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "quaver/error.h"
#include "serve/client.h"
#include "serve/test_server.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// Responds to every path with its name; /big is many megabytes, /events a stream, /slow takes 300 ms.
class EchoServer : public TestServer {
 public:
  explicit EchoServer(const TransportLimits& limits = {}) : TestServer({respond_to_head, respond}, limits) {}

 private:
  static std::optional<Response> respond_to_head(const Request& head) {
    Response response;
    if (head.path == "/events") {
      response.kind = Body::events;
      response.content_type = "text/event-stream";
      return response;
    }
    if (head.path == "/refused") return error_response(403, "no", "never");
    return std::nullopt;
  }
  static Response respond(const Request& request) {
    if (request.path == "/slow") std::this_thread::sleep_for(300ms);
    static const std::string big(std::size_t{16} << 20U, 'x');  // more than the kernel buffers
    return json_response(request.path == "/big" ? big : request.path + request.body);
  }
};

double seconds_to_body(std::uint16_t port, std::string_view path = "/hello") {
  const auto start = Clock::now();
  const Reply reply = ask(port, get(port, path));
  EXPECT_EQ(reply.status, 200);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class Condition>
bool becomes_true(Condition condition, std::chrono::milliseconds longest) {
  const auto end = Clock::now() + longest;
  while (Clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return condition();
}

TEST(Transport, AnswersSeveralRequestsOfOneConnectionInOrder) {
  EchoServer server;
  Client client(server.port());
  client.send(get(server.port(), "/first") + get(server.port(), "/second") + "POST /third HTTP/1.1\r\nHost: a\r\n" +
              "Content-Length: 4\r\n\r\nbody" + get(server.port(), "/refused") + get(server.port(), "/fourth"));
  for (const char* expected : {"/first", "/second", "/thirdbody"}) {
    const Reply reply = client.receive();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, expected);
    EXPECT_EQ(reply.header("Connection"), "keep-alive");
  }
  EXPECT_EQ(client.receive().status, 403);
  EXPECT_EQ(client.receive().body, "/fourth");
}

TEST(Transport, AThousandRequestsAtOnceAreAnsweredWithoutNesting) {
  EchoServer server;
  Client client(server.port());
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += get(server.port(), "/refused");
  ASSERT_TRUE(client.send(requests));
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client.receive().status, 403) << i;
}

TEST(Transport, ARequestMayArriveByteByByte) {
  EchoServer server;
  Client client(server.port());
  for (const char c : get(server.port(), "/slowly")) client.send(std::string_view(&c, 1));
  EXPECT_EQ(client.receive().body, "/slowly");
}

TEST(Transport, AClientMayEndItsSideBeforeTheAnswer) {
  EchoServer server;
  Client client(server.port());
  client.send(get(server.port(), "/slow"));
  client.end_sending();
  EXPECT_EQ(client.receive().body, "/slow");
  EXPECT_TRUE(client.is_ended(2s));
}

TEST(Transport, ABodyThatNobodyWantsIsNotTakenForTheNextRequest) {
  EchoServer server;
  Client client(server.port());
  const std::string hidden = get(server.port(), "/hidden");
  client.send("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(hidden.size()) + "\r\n\r\n" +
              hidden);
  const Reply reply = client.receive();
  EXPECT_EQ(reply.status, 403);
  EXPECT_EQ(reply.header("Connection"), "close");
  EXPECT_EQ(client.receive(2s).status, 0);
}

TEST(Transport, ALargeAnswerArrivesWholeAndAReaderThatStopsHoldsUpNobody) {
  EchoServer server;
  Client lazy(server.port());
  lazy.send(get(server.port(), "/big"));
  std::vector<std::unique_ptr<Client>> lazier;
  for (int i = 0; i < 6; ++i) {  // together more than may wait to be sent
    lazier.push_back(std::make_unique<Client>(server.port()));
    lazier.back()->send(get(server.port(), "/big"));
  }
  const double tries[] = {seconds_to_body(server.port()), seconds_to_body(server.port())};
  EXPECT_LT(std::min(tries[0], tries[1]), 1);
  const Reply reply = lazy.receive();
  EXPECT_EQ(reply.body.size(), std::size_t{16} << 20U);
  EXPECT_EQ(reply.body.find_first_not_of('x'), std::string::npos);
}

TEST(Transport, AnswersThatNobodyTakesAreBounded) {
  TransportLimits limits;
  limits.unsent_bytes = std::size_t{20} << 20U;
  limits.stalled = 2s;
  EchoServer server(limits);
  std::vector<std::unique_ptr<Client>> lazy;
  for (int i = 0; i < 3; ++i) {
    lazy.push_back(std::make_unique<Client>(server.port()));
    lazy.back()->send(get(server.port(), "/big"));
  }
  ASSERT_TRUE(becomes_true([&] { return ask(server.port(), get(server.port(), "/hello")).status == 503; }, 10s));
  EXPECT_EQ(ask(server.port(), get(server.port(), "/hello")).header("Retry-After"), "2");
  EXPECT_TRUE(becomes_true([&] { return ask(server.port(), get(server.port(), "/hello")).status == 200; }, 10s))
      << "those that do not read are given up";
}

TEST(Transport, StreamsGetWhatIsPublishedAndHeartbeats) {
  TransportLimits limits;
  limits.heartbeat = 300ms;
  EchoServer server(limits);
  Client client(server.port());
  client.send(get(server.port(), "/events"));
  EXPECT_THAT(client.receive_until("retry"), StartsWith("HTTP/1.1 200 OK\r\n"));
  server->publish("event: change\ndata: {}\n\n");
  EXPECT_THAT(client.receive_until("data: {}\n\n", 1s), HasSubstr("event: change\n"));
  EXPECT_THAT(client.receive_until(":\n\n", 1s), HasSubstr(":\n\n"));
}

TEST(Transport, AStreamWhoseClientHasGoneEnds) {
  EchoServer server;
  {
    Client client(server.port());
    client.send(get(server.port(), "/events"));
    client.receive_until("retry");
    EXPECT_EQ(server->streams(), 1U);
  }
  EXPECT_TRUE(becomes_true([&] { return server->streams() == 0; }, 1s));
}

TEST(Transport, AStreamThatIsNotReadIsGivenUpBeforeItGrows) {
  EchoServer server;
  Client client(server.port());
  client.send(get(server.port(), "/events"));
  client.receive_until("retry");
  const std::string event = "data: " + std::string(60000, 'x') + "\n\n";
  EXPECT_TRUE(becomes_true(
      [&] {
        server->publish(event);
        return server->streams() == 0;
      },
      5s));
}

TEST(Transport, AThousandStreamsDoNotKeepOthersFromBeingAnswered) {
  EchoServer server;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    clients.back()->send(get(server.port(), "/events"));
  }
  EXPECT_LT(seconds_to_body(server.port()), 1);
  EXPECT_EQ(server->streams(), 48U);
  int told_to_wait = 0;
  for (int i = 0; i < 48; ++i) EXPECT_THAT(clients[i]->receive_until("retry", 1s), HasSubstr("200 OK")) << i;
  for (std::size_t i = 48; i < clients.size(); ++i) {
    const Reply reply = clients[i]->receive(1s);
    if (reply.status != 503) continue;
    ++told_to_wait;
    EXPECT_EQ(reply.header("Retry-After"), "15");
    EXPECT_EQ(reply.header("Connection"), "close");
  }
  EXPECT_EQ(told_to_wait, 952);
}

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

TEST(Transport, ConnectionsAndStreamsHaveNoThreadsOfTheirOwn) {
  EchoServer server;
  EXPECT_EQ(ask(server.port(), get(server.port(), "/hello")).status, 200);
  const std::ptrdiff_t before = threads_of_this_process();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 40; ++i) {
    for (const std::string& sent : {std::string(), std::string("GET /half"), get(server.port(), "/events")}) {
      clients.push_back(std::make_unique<Client>(server.port()));
      clients.back()->send(sent);
    }
  }
  ASSERT_TRUE(becomes_true([&] { return server->connections() >= 120 && server->streams() == 40; }, 5s));
  EXPECT_EQ(threads_of_this_process(), before);
}

TEST(Transport, SilentConnectionsAndHalfRequestsHoldUpNobody) {
  EchoServer server;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    if (i % 2 == 0) clients.back()->send("GET /hel");
  }
  double worst = 0;
  for (int i = 0; i < 20; ++i) worst = std::max(worst, seconds_to_body(server.port()));
  RecordProperty("worst_ms", static_cast<int>(worst * 1000));
  EXPECT_LT(worst, 1);
}

TEST(Transport, MoreConnectionsThanItKeepsCloseTheOldestIdleOnes) {
  TransportLimits limits;
  limits.connections = 50;
  EchoServer server(limits);
  Client oldest(server.port());
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(std::make_unique<Client>(server.port()));
  EXPECT_LT(seconds_to_body(server.port()), 1);
  EXPECT_LE(server->connections(), 50U);
  EXPECT_TRUE(oldest.is_ended(1s));
}

TEST(Transport, TheUnfinishedAreEndedWithAnAnswerAndTheSilentWithoutOne) {
  TransportLimits limits;
  limits.idle = 300ms;
  limits.request = 300ms;
  limits.linger = 100ms;
  EchoServer server(limits);
  Client silent(server.port());
  Client unfinished(server.port());
  unfinished.send("GET / HTTP/1.1\r\nHost");
  Client trickling(server.port());
  const auto start = Clock::now();
  while (Clock::now() - start < 5s && trickling.send("G")) std::this_thread::sleep_for(20ms);
  EXPECT_LT(Clock::now() - start, 4s) << "a byte now and then does not buy time";
  EXPECT_EQ(unfinished.receive(2s).status, 408);
  EXPECT_EQ(silent.receive(2s).status, 0);
  EXPECT_TRUE(silent.is_ended(1s));
}

TEST(Transport, ATakenPortIsAnErrorThatSaysWhatToDo) {
  EchoServer server;
  try {
    const Transport second("127.0.0.1", server.port());
    FAIL() << "two servers on one port";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(server.port())));
    EXPECT_THAT(error.remedy(), HasSubstr("--port"));
  }
  EXPECT_THROW(Transport("192.0.2.1", 0), Error);
  EXPECT_THROW(Transport("no such host", 0), Error);
}

TEST(Transport, StopsWhileClientsStay) {
  auto server = std::make_unique<EchoServer>();
  Client stream(server->port());
  stream.send(get(server->port(), "/events"));
  stream.receive_until("retry");
  const Client silent(server->port());
  const auto start = Clock::now();
  server.reset();
  EXPECT_LT(Clock::now() - start, 1s);
  EXPECT_TRUE(stream.is_ended(1s));
}

}  // namespace
}  // namespace quaver::test
