// The pieces below the transport: one connection, the socket that listens, the threads that answer.
#include "serve/connection.h"

#include <atomic>
#include <condition_variable>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "quaver/error.h"
#include "serve/client.h"
#include "serve/workers.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A connection and the other end of its wire, which the test reads and writes.
class Wire : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    other_ = Descriptor(ends[1]);
    connection_ = std::make_unique<Connection>(7, Descriptor(ends[0]));
  }
  void put(std::string_view bytes) const {
    ASSERT_EQ(write(other_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  std::string take(std::size_t most = SIZE_MAX) const {
    std::string all;
    std::array<char, 4096> buffer;
    while (all.size() < most) {
      const ssize_t count = read(other_.get(), buffer.data(), std::min(buffer.size(), most - all.size()));
      if (count <= 0) break;
      all.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return all;
  }

  Descriptor other_;
  std::unique_ptr<Connection> connection_;
};

TEST_F(Wire, ReceivesNoMoreThanAllowedAndLeavesTheRest) {
  put("abcdefgh");
  EXPECT_EQ(connection_->receive(5), Flow::some);
  EXPECT_EQ(connection_->received, "abcde");
  EXPECT_EQ(connection_->receive(5), Flow::some) << "full, not ended";
  EXPECT_EQ(connection_->received, "abcde");
  EXPECT_EQ(connection_->receive(100), Flow::blocked);
  EXPECT_EQ(connection_->received, "abcdefgh");
  shutdown(other_.get(), SHUT_WR);
  EXPECT_EQ(connection_->receive(100), Flow::ended);
  EXPECT_EQ(connection_->received, "abcdefgh");
}

TEST_F(Wire, ReceivesMoreThanOneChunkAtOnce) {
  const std::string text(50000, 'x');
  put(text);
  EXPECT_EQ(connection_->receive(80000), Flow::blocked);
  EXPECT_EQ(connection_->received, text);
}

TEST_F(Wire, DiscardsWhatArrives) {
  put("abc");
  EXPECT_EQ(connection_->discard(), Flow::blocked);
  EXPECT_EQ(connection_->received, "");
  shutdown(other_.get(), SHUT_WR);
  EXPECT_EQ(connection_->discard(), Flow::ended);
}

TEST_F(Wire, SendsAHeadAndItsContent) {
  connection_->begin_answer(json_response("{}"), KeepAlive::yes);
  EXPECT_EQ(connection_->after, KeepAlive::yes);
  EXPECT_EQ(connection_->held_bytes(), 2U);
  const std::string head = head_of(json_response("{}"), KeepAlive::yes);
  EXPECT_EQ(connection_->unsent(), head.size() + 2);
  EXPECT_EQ(connection_->send(), Flow::some);
  EXPECT_EQ(take(), head + "{}");
  EXPECT_EQ(connection_->unsent(), 0U);
  EXPECT_EQ(connection_->held_bytes(), 0U) << "forgotten once it is sent";
}

TEST_F(Wire, ToHeadOnlyTheHeadIsSent) {
  Response fixed = json_response("");
  fixed.fixed = "fixed bytes";
  for (const Response& response : {json_response("a body"), fixed}) {
    connection_->sending = Sending::head;
    connection_->begin_answer(response, KeepAlive::no);
    EXPECT_EQ(connection_->held_bytes(), 0U);
    EXPECT_EQ(connection_->send(), Flow::some);
    EXPECT_EQ(take(), head_of(response, KeepAlive::no));
    EXPECT_EQ(connection_->after, KeepAlive::no);
  }
}

TEST_F(Wire, FixedBytesAreSentAndNotHeld) {
  static const std::string bytes(3000, 'f');
  Response response;
  response.content_type = "text/plain";
  response.body = "not this";
  response.fixed = bytes;
  connection_->begin_answer(response, KeepAlive::yes);
  EXPECT_EQ(connection_->send(), Flow::some);
  const std::string sent = take();
  EXPECT_THAT(sent, HasSubstr("Content-Length: 3000\r\n"));
  EXPECT_EQ(sent.substr(sent.find("\r\n\r\n") + 4), bytes);
}

// What a slow reader has taken is not sent again when more is added.
TEST_F(Wire, AStreamIsSentOnceHoweverSlowlyItIsRead) {
  Response begin;
  begin.kind = Body::events;
  begin.content_type = "text/event-stream";
  connection_->begin_answer(begin, KeepAlive::no);
  std::string expected = head_of(begin, KeepAlive::no);
  std::string got;
  bool was_blocked = false;
  for (int event = 0; event < 40; ++event) {
    const std::string text = fmt::format("data: {}{}\n\n", event, std::string(20000, 'x'));
    expected += text;
    connection_->append(text);
    was_blocked = connection_->send() == Flow::blocked || was_blocked;
    got += take(7000);
  }
  EXPECT_TRUE(was_blocked);
  while (got.size() < expected.size()) {
    const std::string more = take();
    if (more.empty() && connection_->send() == Flow::ended) break;
    got += more;
  }
  EXPECT_EQ(got.size(), expected.size());
  EXPECT_TRUE(got == expected);
  EXPECT_EQ(connection_->unsent(), 0U);
}

TEST_F(Wire, AGoneReaderEndsTheSending) {
  other_.close();
  connection_->begin_answer(json_response("{}"), KeepAlive::yes);
  EXPECT_EQ(connection_->send(), Flow::ended);
}

TEST(Descriptor, MovesAndCloses) {
  Descriptor first(dup(1));
  const int number = first.get();
  Descriptor second(std::move(first));
  EXPECT_EQ(first.get(), -1);  // NOLINT(bugprone-use-after-move): what a move leaves
  EXPECT_EQ(second.get(), number);
  second.close();
  EXPECT_EQ(second.get(), -1);
  EXPECT_EQ(close(number), -1) << "closed already";
}

Descriptor connected_to(const Descriptor& listener, int family) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  Descriptor client(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  return client;
}

Descriptor accepted_by(const Descriptor& listener) {
  for (int i = 0; i < 1000; ++i) {
    Descriptor accepted(accept(listener.get(), nullptr, nullptr));
    if (accepted.get() >= 0) return accepted;
    usleep(1000);
  }
  return Descriptor();
}

TEST(Listener, ConnectionsKnowTheAddressTheyCameInOn) {
  const Descriptor listener = listen_on("127.0.0.1", 0);
  EXPECT_GT(local_port(listener), 0);
  EXPECT_EQ(local_address(listener), "127.0.0.1");
  const Descriptor client = connected_to(listener, AF_INET);
  const Descriptor accepted = accepted_by(listener);
  EXPECT_EQ(local_address(accepted), "127.0.0.1");
  EXPECT_EQ(local_port(accepted), local_port(listener));
  EXPECT_EQ(local_address(Descriptor()), "");
  EXPECT_EQ(local_port(Descriptor()), 0);
}

TEST(Listener, AddressesOfIPv6HaveBrackets) {
  Descriptor listener;
  try {
    listener = listen_on("[::1]", 0);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  EXPECT_EQ(local_address(listener), "[::1]");
  EXPECT_GT(local_port(listener), 0);
  EXPECT_EQ(local_address(listen_on("::1", 0)), "[::1]");
}

// A socket of IPv6 that listens on all addresses takes those of IPv4 as well, and shows them as such.
TEST(Listener, AddressesOfIPv4StayThemselvesOnASocketOfIPv6) {
  Descriptor listener;
  try {
    listener = listen_on("::", 0);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  std::unique_ptr<Client> client;
  try {
    client = std::make_unique<Client>(local_port(listener));  // to 127.0.0.1
  } catch (const std::exception&) {
    GTEST_SKIP() << "sockets of IPv6 take no IPv4 here";
  }
  EXPECT_EQ(local_address(accepted_by(listener)), "127.0.0.1");
}

TEST(Listener, APortIsFreeAgainAtOnce) {
  std::uint16_t port = 0;
  {
    const Descriptor listener = listen_on("127.0.0.1", 0);
    port = local_port(listener);
    const Descriptor client = connected_to(listener, AF_INET);
    accepted_by(listener).close();  // this side ends first, so the system remembers the connection
    char byte = 0;
    EXPECT_EQ(read(client.get(), &byte, 1), 0);
  }
  const Descriptor again = listen_on("127.0.0.1", port);
  EXPECT_EQ(local_port(again), port);
}

std::string remedy_of_listening_on(const std::string& host, std::uint16_t port) {
  try {
    listen_on(host, port);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(host));
    return error.remedy();
  }
  return "";
}

TEST(Listener, EachRefusalSaysWhatHelps) {
  const Descriptor listener = listen_on("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener);
  EXPECT_THAT(remedy_of_listening_on("127.0.0.1", port), HasSubstr(fmt::format("http://127.0.0.1:{}", port)));
  EXPECT_THAT(remedy_of_listening_on("192.0.2.1", 0), HasSubstr("does not have that address"));
  EXPECT_THAT(remedy_of_listening_on("no such host", 0), HasSubstr("0.0.0.0"));
}

// Holds a thread of the pool until it is told to go on.
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

TEST(Workers, TakeAsManyJobsAsMayWaitAndDoThemInOrder) {
  Gate gate;
  std::mutex mutex;
  std::vector<int> done;
  std::atomic<int> left = 3;
  Workers workers(1, 3);
  ASSERT_TRUE(workers.add([&] { gate.pass(); }));
  gate.wait_for(1);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_TRUE(workers.add([&, i] {
      const std::lock_guard lock(mutex);
      done.push_back(i);
      --left;
    })) << i;
  }
  EXPECT_FALSE(workers.add([] {}));
  gate.open();
  for (int i = 0; i < 4000 && left > 0; ++i) usleep(5000);
  const std::lock_guard lock(mutex);
  EXPECT_THAT(done, ElementsAre(1, 2, 3));
}

TEST(Workers, AreAsManyThreadsAsAskedFor) {
  Gate gate;
  Workers workers(3, 8);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(workers.add([&] { gate.pass(); }));
  gate.wait_for(3);
  gate.open();
}

TEST(Workers, FinishWhatHasBegunAndDropWhatWaits) {
  Gate gate;
  std::atomic<bool> finished = false;
  std::atomic<bool> begun = false;
  std::thread opener;
  {
    Workers workers(1, 3);
    workers.add([&] {
      gate.pass();
      finished = true;
    });
    gate.wait_for(1);
    workers.add([&] { begun = true; });
    opener = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // by then the workers are told to end
      gate.open();
    });
  }
  opener.join();
  EXPECT_TRUE(finished);
  EXPECT_FALSE(begun);
}

}  // namespace
}  // namespace quaver::test
