// The parser accepts requests as browsers send them and rejects everything ambiguous.
#include "serve/request.h"

#include <gtest/gtest.h>
#include <random>

namespace quaver::test {
namespace {

constexpr const char* host = "Host: localhost:8265\r\n";

int status_of(const std::string& head) {
  const auto parsed = parse_head(head);
  const auto* bad = std::get_if<BadRequest>(&parsed);
  return bad == nullptr ? 200 : bad->status;
}

Request parsed(const std::string& head) { return std::get<Request>(parse_head(head)); }

TEST(Request, IsReadAsSent) {
  const Request request = parsed(std::string("POST /api/runs/a%2e?x=1&y=%41 HTTP/1.1\r\n") + host +
                                 "X-Thing:  two words\t \r\nContent-Length: 12\r\n\r\n");
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/api/runs/a%2e") << "nothing is decoded";
  EXPECT_EQ(request.query, "x=1&y=%41");
  EXPECT_EQ(request.header("x-thing"), "two words");
  EXPECT_EQ(request.header("absent"), std::nullopt);
  EXPECT_EQ(request.body_bytes, 12U);
  EXPECT_EQ(request.keep_alive, KeepAlive::yes);
}

TEST(Request, ConnectionsAreKeptAsTheClientWishes) {
  EXPECT_EQ(parsed("GET / HTTP/1.0\r\n\r\n").keep_alive, KeepAlive::no);
  EXPECT_EQ(parsed("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n").keep_alive, KeepAlive::no);
  EXPECT_EQ(parsed("GET / HTTP/1.1\r\nConnection: keep-alive\r\n\r\n").keep_alive, KeepAlive::yes);
}

TEST(Request, WhatIsNoRequestIsRefused) {
  for (const char* head : {
           "\r\n\r\n",
           "GET\r\n\r\n",
           "GET /\r\n\r\n",
           "GET / / HTTP/1.1\r\n\r\n",
           "GET  / HTTP/1.1\r\n\r\n",
           " GET / HTTP/1.1\r\n\r\n",
           "G(T / HTTP/1.1\r\n\r\n",
           "GET / FTP/1.1\r\n\r\n",
           "GET http://localhost/ HTTP/1.1\r\n\r\n",
           "GET * HTTP/1.1\r\n\r\n",
           "CONNECT localhost:80 HTTP/1.1\r\n\r\n",
           "GET /#part HTTP/1.1\r\n\r\n",
           "GET /\x01 HTTP/1.1\r\n\r\n",
           "GET /\xc3\xa9 HTTP/1.1\r\n\r\n",
           "GET /\n HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\r\nno colon\r\n\r\n",
           "GET / HTTP/1.1\r\n: no name\r\n\r\n",
           "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
           "GET / HTTP/1.1\r\n Host: folded\r\n\r\n",
           "GET / HTTP/1.1\r\nA: b\r\n\tfolded\r\n\r\n",
           "GET / HTTP/1.1\r\nA: b\nHost: smuggled\r\n\r\n",
           "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
           "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
           "GET / HTTP/1.1\r\nCookie: a\r\ncookie: b\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length: 0x10\r\n\r\n",
           "GET / HTTP/1.1\r\nContent-Length:\r\n\r\n",
           "GET / HTTP/1.1\r\nA: b\r\n\r\nmore",
           "GET / HTTP/1.1\r\nA: b\r\n",
       }) {
    EXPECT_EQ(status_of(head), 400) << ::testing::PrintToString(head);
  }
  using namespace std::string_literals;
  EXPECT_EQ(status_of("GET /\0 HTTP/1.1\r\n\r\n"s), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: 127.0.0.1\0.example\r\n\r\n"s), 400);
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\n\r\n"), 505);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 411);
}

TEST(Request, LengthsAreBounded) {
  const std::string line(max_target_bytes - 1, 'a');
  EXPECT_EQ(status_of("GET /" + line + " HTTP/1.1\r\n\r\n"), 200);
  EXPECT_EQ(status_of("GET /" + line + "a HTTP/1.1\r\n\r\n"), 414);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nA: " + std::string(max_head_bytes, 'a') + "\r\n\r\n"), 431);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 65536\r\n\r\n"), 200);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 65537\r\n\r\n"), 413);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n"), 413);
  std::string many = "GET / HTTP/1.1\r\n";
  for (std::size_t i = 0; i < max_header_count; ++i) many += "A: b\r\n";
  EXPECT_EQ(status_of(many + "\r\n"), 200);
  EXPECT_EQ(status_of(many + "A: b\r\n\r\n"), 431);
}

TEST(Request, TooMuchIsNoticedBeforeTheHeadIsComplete) {
  EXPECT_FALSE(too_long("GET / HTTP/1.1\r\nHost"));
  EXPECT_EQ(too_long(std::string(9000, 'a'))->status, 414);
  EXPECT_EQ(too_long("GET / HTTP/1.1\r\n" + std::string(17000, 'a'))->status, 431);
  EXPECT_EQ(head_length("GET / HTTP/1.1\r\n\r\nrest"), 18U);
  EXPECT_EQ(head_length("GET / HTTP/1.1\r\n\r"), std::nullopt);
}

TEST(Request, EveryStringOfBytesGetsAnAnswer) {
  std::mt19937 random(1);
  const std::string good = std::string("GET /api/runs?x=1 HTTP/1.1\r\n") + host + "Content-Length: 3\r\n\r\n";
  for (int i = 0; i < 20000; ++i) {
    std::string head = good;
    for (int change = 0; change < 3; ++change) head[random() % head.size()] = static_cast<char>(random());
    const int status = status_of(head);
    EXPECT_TRUE(status == 200 || (status >= 400 && status <= 505)) << ::testing::PrintToString(head);
  }
}

}  // namespace
}  // namespace quaver::test
