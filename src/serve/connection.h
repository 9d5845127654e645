// One connection of a client: what has come in, what has to go out, and how far it is. Sockets do not block; reading
// and writing do as much as goes and say how it went.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "serve/listener.h"
#include "serve/request.h"
#include "serve/response.h"

namespace quaver {

using Instant = std::chrono::steady_clock::time_point;

enum class Phase : std::uint8_t {
  reading,    // a request, or waiting for one
  working,    // its answer is being made
  writing,    // the answer
  streaming,  // events
  lingering   // all is said; the client may read it before the connection ends
};

enum class Sending : std::uint8_t { whole, head };  // of an answer; to HEAD its head alone

enum class Flow : std::uint8_t { some, blocked, ended };

struct Connection {
  Connection(std::uint64_t number, Descriptor accepted);

  // Appends what has arrived, up to `most` bytes in all. ended: the client sends no more, or is gone.
  Flow receive(std::size_t most);

  // Throws away what arrives.
  Flow discard();

  // Begins an answer; what of it does not lie in `fixed` bytes is held until it is sent.
  void begin_answer(Response answer, KeepAlive keep_alive);

  // Adds to what a stream has to send.
  void append(std::string_view text);

  // Sends what goes. some: everything is sent; blocked: the client has to read first; ended: it is gone.
  Flow send();

  std::size_t unsent() const { return head_.size() + response_.content().size() - sent_; }
  std::size_t held_bytes() const { return response_.body.size(); }
  void forget_answer();

  const std::uint64_t id;
  Descriptor socket;
  std::string local;  // address, as Request::local_address
  Phase phase = Phase::reading;
  Sending sending = Sending::whole;  // of the answer to the request that came last
  KeepAlive after = KeepAlive::no;   // what follows the answer
  std::string received;              // not yet taken as part of a request
  std::optional<Request> request;    // whose body is awaited
  std::uint32_t interest = 0;        // in which events of the socket, as the system was told
  Instant deadline{};                // after which the phase has taken too long
  Instant last_deadline{};           // of an answer, which progress does not move
  Instant heartbeat{};               // of a stream

 private:
  std::string head_;  // of the answer; in a stream all there is to send
  Response response_;
  std::size_t sent_ = 0;  // of head and content together
};

}  // namespace quaver
