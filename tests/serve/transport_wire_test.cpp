// What a transport puts on the wire byte by byte, the addresses it listens on, and how many requests its workers take.
#include <arpa/inet.h>
#include <atomic>
#include <condition_variable>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <netinet/in.h>
#include <sys/socket.h>
#include <vector>

#include "quaver/error.h"
#include "serve/client.h"
#include "serve/descriptor.h"
#include "serve/test_server.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

RequestHandler always(const Response& response) {
  return {.respond_to_head = [](const Request&) { return std::nullopt; },
          .respond = [response](const Request&) { return response; }};
}

std::string sent_for(const Response& response, const std::string& method) {
  const TestServer server(always(response));
  Client client(server.port());
  client.send(method + " / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  return client.receive_until("never sent");
}

Response fixed_response(std::string_view bytes) {
  Response response;
  response.content_type = "text/plain";
  response.body = "not this";
  response.fixed = bytes;
  return response;
}

TEST(TransportWire, AResponseIsItsHeadAndItsContent) {
  static const std::string bytes(3000, 'f');
  const Response body = json_response("a body"), fixed = fixed_response(bytes);
  EXPECT_EQ(sent_for(body, "GET"), head_of(body, KeepAlive::no) + "a body");
  EXPECT_EQ(sent_for(fixed, "GET"), head_of(fixed, KeepAlive::no) + bytes);
}

TEST(TransportWire, ToHeadOnlyTheHeadIsSent) {
  const Response body = json_response("a body"), fixed = fixed_response("fixed bytes");
  EXPECT_EQ(sent_for(body, "HEAD"), head_of(body, KeepAlive::no));
  EXPECT_EQ(sent_for(fixed, "HEAD"), head_of(fixed, KeepAlive::no));
}

// A body longer than the buffer of one read, and a request behind it.
TEST(TransportWire, ALongBodyIsReceivedWhole) {
  const TestServer server({.respond_to_head = [](const Request&) { return std::nullopt; },
                           .respond = [](const Request& request) { return json_response(request.body); }});
  std::string body;
  while (body.size() < max_body_bytes) body += fmt::format("{} ", body.size());
  body.resize(max_body_bytes);
  Client client(server.port());
  client.send(fmt::format("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.size()) + body +
              get(server.port(), "/next"));
  EXPECT_TRUE(client.receive().body == body);
  EXPECT_EQ(client.receive().status, 200);
}

// What a slow reader has received is not sent again, and nothing is left out, when more is published meanwhile.
TEST(TransportWire, AStreamIsSentOnceHoweverSlowlyItIsRead) {
  Response begin;
  begin.kind = Body::events;
  begin.content_type = "text/event-stream";
  TransportLimits limits;
  limits.unsent_stream_bytes = std::size_t{1} << 30U;
  TestServer server({.respond_to_head = [&](const Request&) { return begin; }, .respond = {}}, limits);
  Client client(server.port());
  client.send(get(server.port(), "/events"));
  std::string expected = head_of(begin, KeepAlive::no) + "retry: 2000\n\n";
  std::string received = client.receive_until("retry: 2000\n\n");
  for (int event = 0; event < 100; ++event) {
    const std::string text = fmt::format("data: {}{}\n\n", event, std::string(100000, 'x'));
    expected += text;
    server->publish(text);
    if (event % 10 == 0) received += client.receive_until("\n\n");
  }
  server->publish("data: end\n\n");
  expected += "data: end\n\n";
  while (!received.ends_with("data: end\n\n")) {
    const std::string more = client.receive_until("\n\n", std::chrono::seconds(20));
    if (more.empty()) break;
    received += more;
  }
  EXPECT_EQ(received.size(), expected.size());
  EXPECT_TRUE(received == expected);
}

RequestHandler local_address_handler() {
  return {.respond_to_head = [](const Request& head) { return json_response(head.local_address); }, .respond = {}};
}

std::string local_address_at_ipv6_loopback(std::uint16_t port) {
  const Descriptor client(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = in6addr_loopback;
  if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return "";
  const std::string request = "GET / HTTP/1.1\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(write(client.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string received;
  std::array<char, 4096> chunk;
  for (ssize_t count = 0; (count = read(client.get(), chunk.data(), chunk.size())) > 0;) {
    received.append(chunk.data(), static_cast<std::size_t>(count));
  }
  return received.substr(received.find("\r\n\r\n") + 4);
}

TEST(TransportAddress, OfIPv6HasBrackets) {
  for (const char* host : {"[::1]", "::1"}) {
    try {
      const TestServer server(local_address_handler(), {}, host);
      EXPECT_EQ(local_address_at_ipv6_loopback(server.port()), "[::1]") << host;
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
}

// A socket of IPv6 that listens on all addresses takes those of IPv4 as well, and shows them as such.
TEST(TransportAddress, OfIPv4StaysItselfOnASocketOfIPv6) {
  try {
    const TestServer server(local_address_handler(), {}, "::");
    EXPECT_EQ(ask(server.port(), get(server.port(), "/")).body, "127.0.0.1");
  } catch (const std::exception& error) {
    GTEST_SKIP() << error.what();
  }
}

TEST(TransportAddress, APortIsFreeAgainAtOnce) {
  std::uint16_t port = 0;
  {
    TestServer server(local_address_handler());
    port = server.port();
    Client client(port);
    client.send(get(port, "/"));
    EXPECT_EQ(client.receive().status, 200);
    server.stop();  // this side closes first, so the system remembers the connection
    EXPECT_TRUE(client.is_ended(std::chrono::seconds(20)));
  }
  EXPECT_EQ(Transport("127.0.0.1", port).port(), port);
}

std::string remedy_of_listening_on(const std::string& host, std::uint16_t port) {
  try {
    const Transport transport(host, port);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(host));
    return error.remedy();
  }
  return "";
}

TEST(TransportAddress, EachErrorSaysWhatHelps) {
  const Transport transport("127.0.0.1", 0);
  const std::uint16_t port = transport.port();
  EXPECT_THAT(remedy_of_listening_on("127.0.0.1", port), HasSubstr(fmt::format("http://127.0.0.1:{}", port)));
  EXPECT_THAT(remedy_of_listening_on("192.0.2.1", 0), HasSubstr("does not have that address"));
  EXPECT_THAT(remedy_of_listening_on("no such host", 0), HasSubstr("0.0.0.0"));
}

// Holds workers until the test lets them go on.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void wait_for(int waiting) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return waiting_ >= waiting; });
    EXPECT_EQ(waiting_, waiting);
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

// "/gate" waits at the gate; every other path is answered at once. The order is that in which workers began.
struct GatedHandler {
  RequestHandler handler() {
    return {.respond_to_head = [](const Request&) { return std::nullopt; },
            .respond =
                [this](const Request& request) {
                  {
                    const std::lock_guard lock(mutex);
                    order.push_back(request.path);
                  }
                  if (request.path == "/gate") gate.pass();
                  return json_response(request.path);
                }};
  }

  Gate gate;
  std::mutex mutex;
  std::vector<std::string> order;
};

TransportLimits worker_limits(std::size_t workers, std::size_t waiting) {
  TransportLimits limits;
  limits.workers = workers;
  limits.waiting_requests = waiting;
  return limits;
}

TEST(TransportWorkers, TakeAsManyRequestsAsMayWaitAndInOrder) {
  GatedHandler gated;
  const TestServer server(gated.handler(), worker_limits(1, 3));
  Client held(server.port());
  held.send(get(server.port(), "/gate"));
  gated.gate.wait_for(1);
  std::vector<std::unique_ptr<Client>> waiting;
  for (int i = 1; i <= 3; ++i) {
    waiting.push_back(std::make_unique<Client>(server.port()));
    waiting.back()->send(get(server.port(), fmt::format("/{}", i)));
    // A response from the loop's own thread shows that it has read what was sent before.
    EXPECT_EQ(ask(server.port(), "no request\r\n\r\n").status, 400);
  }
  const Reply refused = ask(server.port(), get(server.port(), "/4"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("Retry-After"), "2");
  gated.gate.open();
  EXPECT_EQ(held.receive().body, "/gate");
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(waiting[i - 1]->receive().body, fmt::format("/{}", i));
  EXPECT_EQ(ask(server.port(), get(server.port(), "/5")).status, 200) << "there is room again";
  const std::lock_guard lock(gated.mutex);
  EXPECT_THAT(gated.order, ElementsAre("/gate", "/1", "/2", "/3", "/5"));
}

TEST(TransportWorkers, AreAsManyThreadsAsAskedForAndNotOneMore) {
  GatedHandler gated;
  const TestServer server(gated.handler(), worker_limits(3, 8));
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    clients.back()->send(get(server.port(), "/gate"));
  }
  gated.gate.wait_for(3);
  EXPECT_EQ(ask(server.port(), "no request\r\n\r\n").status, 400);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // in which a fourth would have begun
  gated.gate.wait_for(3);
  gated.gate.open();
  for (const auto& client : clients) EXPECT_EQ(client->receive().body, "/gate");
}

// It stays in the system's buffers, and then with the client: the server's memory holds one request per connection.
TEST(TransportWorkers, WhatComesBehindARequestIsNotReadUntilItIsAnswered) {
  GatedHandler gated;
  const TestServer server(gated.handler(), worker_limits(1, 3));
  Client client(server.port());
  client.send(get(server.port(), "/gate"));
  gated.gate.wait_for(1);
  const std::string behind(std::size_t{64} << 20U, 'x');
  EXPECT_LT(client.send_some(behind, std::chrono::milliseconds(200)), behind.size());
  gated.gate.open();
  EXPECT_EQ(client.receive().body, "/gate");
}

TEST(TransportWorkers, FinishWhatHasBegunAndDropWhatWaits) {
  GatedHandler gated;
  TestServer server(gated.handler(), worker_limits(1, 3));
  Client begun(server.port()), waiting(server.port());
  begun.send(get(server.port(), "/gate"));
  gated.gate.wait_for(1);
  waiting.send(get(server.port(), "/waits"));
  EXPECT_EQ(ask(server.port(), "no request\r\n\r\n").status, 400);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // by then the server is told to stop
    gated.gate.open();
  });
  server.stop();
  opener.join();
  EXPECT_THAT(gated.order, ElementsAre("/gate"));
}

}  // namespace
}  // namespace quaver::test
