// The dashboard's end of the wire: HTTP/1.1 over TCP. One thread waits on all connections and never on one of them; it
// gathers requests, sends answers as fast as clients take them and keeps the event streams. So a client that sends
// nothing, sends slowly, does not read or stays for hours holds a few kilobytes and no thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "serve/request.h"
#include "serve/response.h"

namespace quaver {

struct TransportLimits {
  std::size_t connections = 900;  // at once; for one more the one that has been idle the longest is closed
  std::size_t streams = 48;       // of events; one more is told to come back later
  std::size_t workers = 4;
  std::size_t waiting_requests = 256;
  std::size_t unsent_bytes = std::size_t{128} << 20U;  // of answers that clients have not taken yet
  std::size_t unsent_stream_bytes = std::size_t{256} << 10U;
  std::chrono::milliseconds idle{15000};       // without a request
  std::chrono::milliseconds request{10000};    // from a request's first byte to its last
  std::chrono::milliseconds stalled{10000};    // an answer of which nothing is taken
  std::chrono::milliseconds answer{120000};    // an answer of which too little is taken
  std::chrono::milliseconds linger{1000};      // for the client to read the last answer before the end
  std::chrono::milliseconds heartbeat{15000};  // between comments that keep a stream open
};

// What a transport asks about requests.
struct RequestHandler {
  // The answer that needs nothing but the request's head, if there is one: refusals, the page, event streams. Called
  // before the body is awaited, from the thread that waits on connections: it must be quick. Must not throw.
  std::function<std::optional<Response>(const Request& head)> at_once;
  // The answer to a whole request. Called from several threads. Must not throw.
  std::function<Response(const Request&)> answer;
};

class Transport {
 public:
  // Listens from here on, and answers from run() on. Error where the port cannot be had.
  Transport(const std::string& host, std::uint16_t port, const TransportLimits& limits = {});
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  std::uint16_t port() const;

  // Serves until stop(), or until the flag is set, which is looked at some four times a second.
  void run(const RequestHandler& handler, const std::atomic<bool>* stop_flag = nullptr);
  void stop();  // from any thread; a later run() returns at once

  // Sends the text of an event to every stream. From any thread.
  void publish(std::string event);

  std::size_t streams() const;      // open now
  std::size_t connections() const;  // open now, streams among them

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace quaver
