// A client that sends exactly the given bytes, and a dashboard that runs for the duration of a test.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "support/temporary_folder.h"

#include "serve/dashboard.h"
#include "serve/descriptor.h"

namespace quaver::test {

struct Reply {
  int status = 0;  // 0: the server closed the connection without a response
  std::string head;
  std::string body;

  std::string header(std::string_view name) const;  // empty where there is none; names as they are written
};

// A connection to 127.0.0.1. Nothing waits longer than the time given.
class Client {
 public:
  explicit Client(std::uint16_t port);

  bool send(std::string_view bytes);

  // Sends until the connection has taken no byte for the time given. How many it took.
  std::size_t send_some(std::string_view bytes, std::chrono::milliseconds longest);
  void end_sending();

  // One response, by its Content-Length, or up to the end of the connection where it has none.
  Reply receive(std::chrono::milliseconds longest = std::chrono::seconds(10));

  // What arrives up to the text, the timeout or the end of the connection.
  std::string receive_until(std::string_view text, std::chrono::milliseconds longest = std::chrono::seconds(10));

  // Whether the server closes the connection within the time.
  bool is_ended(std::chrono::milliseconds longest);

 private:
  bool receive_some(std::chrono::steady_clock::time_point end);

  Descriptor socket_;
  std::string buffer_;
  bool ended_ = false;
};

// "GET path" as a browser would send it, with more header lines ("Name: value\r\n").
std::string get(std::uint16_t port, std::string_view path, std::string_view more = "");

// The header line that authorizes changes, as the page sends it.
std::string token_line(std::uint16_t port);

// Sends the bytes over a new connection.
Reply ask(std::uint16_t port, std::string_view bytes);

// A temporary folder for a store.
class StoreFolder : public TemporaryFolder {
 public:
  std::filesystem::path store() const { return path() / "quaver.db"; }
};

// A dashboard on a free port of 127.0.0.1, listening in a thread of its own.
class RunningDashboard {
 public:
  explicit RunningDashboard(const std::filesystem::path& store, ServeOptions options = {});
  ~RunningDashboard();
  RunningDashboard(const RunningDashboard&) = delete;
  RunningDashboard& operator=(const RunningDashboard&) = delete;

  std::uint16_t port() const { return dashboard_.port(); }
  const Dashboard& operator*() const { return dashboard_; }
  const Dashboard* operator->() const { return &dashboard_; }

 private:
  Dashboard dashboard_;
  std::thread thread_;
};

}  // namespace quaver::test
