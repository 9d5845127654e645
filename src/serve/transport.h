// HTTP/1.1 over TCP: a single-threaded event loop for all connections and a bounded pool of workers for requests that
// read the store. A client that sends nothing, sends slowly, does not read or keeps an event stream open for hours
// occupies a few kilobytes and no thread.
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
  std::size_t connections = 900;  // at once; one more closes the one that has been idle the longest
  std::size_t streams = 48;       // of events; one more gets 503 with Retry-After
  std::size_t workers = 4;
  std::size_t waiting_requests = 256;                         // for a worker; one more gets 503
  std::size_t unsent_bytes = std::size_t{128} << 20U;         // of all response bodies; beyond, requests get 503
  std::size_t unsent_stream_bytes = std::size_t{256} << 10U;  // of one stream; beyond, it is closed
  std::chrono::milliseconds idle{15000};                      // without a request
  std::chrono::milliseconds request{10000};                   // from a request's first byte to its last
  std::chrono::milliseconds stalled{10000};                   // while the client reads nothing of a response
  std::chrono::milliseconds response{120000};                 // from a response's first byte to its last
  std::chrono::milliseconds linger{1000};                     // for the client to close after the last response
  std::chrono::milliseconds heartbeat{15000};                 // between comments that keep a stream open
};

struct RequestHandler {
  // The response where the request's head alone decides it: errors, the page, event streams. Called before the body is
  // read, on the thread of the event loop: it must not block. Must not throw.
  std::function<std::optional<Response>(const Request& head)> respond_to_head;
  // The response to a complete request. Called by the workers. Must not throw.
  std::function<Response(const Request&)> respond;
};

class Transport {
 public:
  // Binds and listens; requests are served from run() on. Port 0 takes a free one. Error where that fails.
  Transport(const std::string& host, std::uint16_t port, const TransportLimits& limits = {});
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  std::uint16_t port() const;

  // Serves until stop(), or until the flag is set, which is polled four times per second.
  void run(const RequestHandler& handler, const std::atomic<bool>* stop_flag = nullptr);
  void stop();  // from any thread; a later run() returns at once

  // Sends the text to every event stream. From any thread.
  void publish(std::string event);

  std::size_t streams() const;      // open now
  std::size_t connections() const;  // open now, streams among them

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace quaver
