// A transport with the test's handler, running in a thread of its own for the duration of the test.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "serve/transport.h"

namespace quaver::test {

class TestServer {
 public:
  explicit TestServer(RequestHandler handler, const TransportLimits& limits = {}, const std::string& host = "127.0.0.1")
      : handler_(std::move(handler)), transport_(host, 0, limits), thread_([this] { transport_.run(handler_); }) {}
  ~TestServer() { stop(); }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  void stop() {
    transport_.stop();
    if (thread_.joinable()) thread_.join();
  }
  std::uint16_t port() const { return transport_.port(); }
  Transport* operator->() { return &transport_; }

 private:
  const RequestHandler handler_;
  Transport transport_;
  std::thread thread_;
};

}  // namespace quaver::test
