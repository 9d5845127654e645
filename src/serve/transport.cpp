#include "serve/transport.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unordered_set>
#include <variant>
#include <vector>

#include "quaver/error.h"

namespace quaver {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr int backlog = 512;
constexpr auto tick_period = std::chrono::milliseconds(250);

// Leaves file descriptors for the stores and the rest of the program.
std::size_t connections_within_limits(std::size_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  const std::size_t allowed = static_cast<std::size_t>(files.rlim_cur);
  return std::min(wanted, allowed > 128 ? allowed - 64 : allowed / 2);
}

Response overloaded(std::string_view what, std::string_view retry_after_seconds) {
  Response response = error_response(503, what, "try again in a few seconds, or close other windows of the dashboard");
  response.headers.emplace_back("Retry-After", retry_after_seconds);
  return response;
}

Error listen_error(const std::string& host, std::uint16_t port, const error_code& code) {
  const std::string what = fmt::format("cannot listen on {}:{}: {}", host, port, code.message());
  if (code == asio::error::address_in_use) {
    return Error(what, fmt::format("a dashboard may be running there already: open http://{}:{}, or choose another "
                                   "port with --port",
                                   host, port));
  }
  if (code == asio::error::access_denied) {
    return Error(what, "ports below 1024 need privileges; choose another with --port");
  }
  if (code == boost::system::errc::address_not_available) {
    return Error(what, "this machine does not have that address; choose another with --host");
  }
  if (code == asio::error::no_descriptors) {
    return Error(what, "close programs that have many files open, or raise the limit with `ulimit -n`");
  }
  if (code.category() != asio::error::get_system_category()) {  // the host's name could not be resolved
    return Error(what, "give an address of this machine with --host, e.g. 127.0.0.1, or 0.0.0.0 for all of them");
  }
  return Error(what, "choose another address with --host or another port with --port");
}

// Asio leaves descriptors open in child processes; the browser that `quaver dash` starts would keep the port.
template <class Socket>
void close_on_exec(Socket& socket) {
  fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

tcp::acceptor listen_on(asio::io_context& io, const std::string& host, std::uint16_t port) try {
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = has_brackets ? host.substr(1, host.size() - 2) : host;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(name, std::to_string(port), tcp::resolver::passive | tcp::resolver::numeric_service);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(io, endpoint.protocol());
  close_on_exec(acceptor);
  // So that a dashboard can be restarted at once. Unlike SO_REUSEPORT this does not let two listen side by side.
  acceptor.set_option(tcp::acceptor::reuse_address(true));
  acceptor.bind(endpoint);
  acceptor.listen(backlog);
  return acceptor;
} catch (const boost::system::system_error& error) {
  throw listen_error(host, port, error.code());
}

// As a Host header writes it: "10.0.0.5", "[::1]". Empty where the system gives none.
std::string local_address_of(const tcp::socket& socket) {
  error_code failure;
  const asio::ip::address address = socket.local_endpoint(failure).address();
  if (failure) return "";
  if (address.is_v4()) return address.to_string();
  asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, v6).to_string();
  v6.scope_id(0);
  return fmt::format("[{}]", v6.to_string());
}

}  // namespace

// Everything but stop() and publish() runs on the thread of run(). A pending operation holds its connection, so that
// one can be closed from anywhere; the operation then completes in Phase::closed and does nothing.
class Transport::Loop {
 public:
  Loop(const std::string& host, std::uint16_t port, const TransportLimits& limits)
      : limits_(limits),
        most_connections_(connections_within_limits(limits.connections)),
        acceptor_(listen_on(io_, host, port)) {}

  void run(const RequestHandler& handler, const std::atomic<bool>* stop_flag);
  void stop() { io_.stop(); }
  void publish(std::string event);

  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  std::size_t streams() const { return streams_; }
  std::size_t connections() const { return connection_count_; }

 private:
  enum class Phase : std::uint8_t {
    reading,    // a request, or waiting for one
    working,    // a worker makes the response
    writing,    // the response
    streaming,  // events
    lingering,  // everything is sent; what still arrives is discarded until the client closes
    closed
  };

  enum class Method : std::uint8_t { head, other };  // HEAD gets the head of the response alone

  struct Connection;
  using ConnectionPtr = std::shared_ptr<Connection>;

  void tick(const std::atomic<bool>* stop_flag);
  void accept();
  void add(tcp::socket socket);
  bool make_room();
  void check_deadlines();
  void expire(const ConnectionPtr& connection);

  void read(const ConnectionPtr& connection);
  void on_received(const ConnectionPtr& connection, std::string_view bytes);
  void advance(const ConnectionPtr& connection);
  void take_head(const ConnectionPtr& connection);
  void dispatch(const ConnectionPtr& connection);

  void respond(const ConnectionPtr& connection, Response response, KeepAlive keep_alive);
  void begin_stream(const ConnectionPtr& connection, const Response& response);
  void enqueue(const ConnectionPtr& connection, std::string_view events);
  void write(const ConnectionPtr& connection);
  void on_written(const ConnectionPtr& connection);
  void linger(const ConnectionPtr& connection);
  void close(const ConnectionPtr& connection);

  // A copy, since closing a connection takes it out of the set.
  std::vector<ConnectionPtr> snapshot() const { return {connections_.begin(), connections_.end()}; }

  const TransportLimits limits_;
  const std::size_t most_connections_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  bool is_accepting_ = false;
  asio::steady_timer timer_{io_};
  const RequestHandler* handler_ = nullptr;
  std::optional<asio::thread_pool> workers_;
  std::atomic<std::size_t> waiting_requests_{0};  // raised by the loop, lowered by the workers

  std::unordered_set<ConnectionPtr> connections_;
  std::size_t held_bytes_ = 0;  // of responses that are being written
  std::atomic<std::size_t> streams_{0};
  std::atomic<std::size_t> connection_count_{0};
};

struct Transport::Loop::Connection {
  explicit Connection(tcp::socket accepted) : socket(std::move(accepted)) {}

  std::array<asio::const_buffer, 2> unsent() const {
    const std::string_view content = response.content();
    const std::size_t in_head = std::min(sent, head.size());
    return {asio::buffer(head) + in_head, asio::buffer(content.data(), content.size()) + (sent - in_head)};
  }

  tcp::socket socket;
  std::string local_address;
  Phase phase = Phase::reading;
  Clock::time_point deadline{};           // when the phase has taken too long
  Clock::time_point response_deadline{};  // bounds `deadline`, however steadily the client reads
  Clock::time_point heartbeat{};          // when a stream gets its next one

  std::array<char, 4096> chunk;  // filled by the pending read
  bool is_reading = false;
  std::string received;            // not yet consumed by a request
  std::optional<Request> request;  // whose body is awaited
  Method method = Method::other;   // of the current request
  KeepAlive keep_alive = KeepAlive::no;

  std::string head;  // of the response, or the events being sent; must not change while a write is pending
  Response response;
  std::size_t sent = 0;  // of head and content together
  bool is_writing = false;
  std::string queued;  // events to send after `head`
};

void Transport::Loop::run(const RequestHandler& handler, const std::atomic<bool>* stop_flag) {
  handler_ = &handler;
  workers_.emplace(limits_.workers);
  tick(stop_flag);
  io_.run();
  workers_.reset();  // finishes requests that a worker has begun, drops those that wait
  for (const ConnectionPtr& connection : snapshot()) close(connection);
}

void Transport::Loop::publish(std::string event) {
  asio::post(io_, [this, event = std::move(event)] {
    for (const ConnectionPtr& connection : snapshot()) {
      if (connection->phase == Phase::streaming) enqueue(connection, event);
    }
  });
}

void Transport::Loop::tick(const std::atomic<bool>* stop_flag) {
  if (stop_flag != nullptr && *stop_flag) return io_.stop();
  check_deadlines();
  if (!is_accepting_) accept();
  timer_.expires_after(tick_period);
  timer_.async_wait([this, stop_flag](const error_code&) { tick(stop_flag); });
}

void Transport::Loop::accept() {
  is_accepting_ = true;
  acceptor_.async_accept([this](const error_code& failure, tcp::socket socket) {
    is_accepting_ = false;
    if (!failure) {
      add(std::move(socket));
    } else if (!make_room()) {
      return;  // out of descriptors: the next tick tries again
    }
    accept();
  });
}

void Transport::Loop::add(tcp::socket socket) {
  if (connections_.size() >= most_connections_ && !make_room()) return;
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  close_on_exec(socket);
  const auto connection = std::make_shared<Connection>(std::move(socket));
  connection->local_address = local_address_of(connection->socket);
  connection->deadline = Clock::now() + limits_.idle;
  connections_.insert(connection);
  connection_count_ = connections_.size();
  read(connection);
}

// Closes the connection that has waited the longest without a whole request. False: every one is being served.
bool Transport::Loop::make_room() {
  ConnectionPtr oldest;
  for (const ConnectionPtr& connection : connections_) {
    const bool is_waiting = connection->phase == Phase::reading || connection->phase == Phase::lingering;
    if (is_waiting && (oldest == nullptr || connection->deadline < oldest->deadline)) oldest = connection;
  }
  if (oldest != nullptr) close(oldest);
  return oldest != nullptr;
}

void Transport::Loop::check_deadlines() {
  const Clock::time_point now = Clock::now();
  for (const ConnectionPtr& connection : snapshot()) {
    if (connection->phase == Phase::streaming && connection->heartbeat <= now) {
      connection->heartbeat = now + limits_.heartbeat;
      enqueue(connection, ":\n\n");
    } else if (connection->phase != Phase::working && connection->deadline <= now) {
      expire(connection);
    }
  }
}

void Transport::Loop::expire(const ConnectionPtr& connection) {
  const bool has_begun = connection->phase == Phase::reading && (!connection->received.empty() || connection->request);
  if (!has_begun) return close(connection);
  respond(connection, error_response(408, "the request did not arrive in time", "send it at once"), KeepAlive::no);
}

void Transport::Loop::read(const ConnectionPtr& connection) {
  if (std::exchange(connection->is_reading, true)) return;
  connection->socket.async_read_some(asio::buffer(connection->chunk),
                                     [this, connection](const error_code& failure, std::size_t count) {
                                       connection->is_reading = false;
                                       on_received(connection, {connection->chunk.data(), failure ? 0 : count});
                                     });
}

// No bytes: the client has ended its side, or is gone.
void Transport::Loop::on_received(const ConnectionPtr& connection, std::string_view bytes) {
  switch (connection->phase) {
    case Phase::reading:
      if (bytes.empty()) return close(connection);
      if (connection->received.empty() && !connection->request) connection->deadline = Clock::now() + limits_.request;
      connection->received += bytes;
      return advance(connection);
    case Phase::streaming:  // the client has nothing to say here
      return close(connection);
    case Phase::lingering:
      return bytes.empty() ? close(connection) : read(connection);
    default:  // closed, or its request timed out: what it still sends does not matter
      return;
  }
}

// Takes the next request from what has been received, or reads on.
void Transport::Loop::advance(const ConnectionPtr& connection) {
  if (!connection->request) take_head(connection);
  if (connection->phase != Phase::reading) return;  // the head decided the response
  const bool is_complete = connection->request && connection->received.size() >= connection->request->body_bytes;
  is_complete ? dispatch(connection) : read(connection);
}

// Parses the head once it is complete. Sets `request`, or responds where the head decides the response.
void Transport::Loop::take_head(const ConnectionPtr& connection) {
  const auto length = head_length(connection->received);
  if (!length) {
    const auto bad = too_long(connection->received);
    if (bad) respond(connection, error_response(bad->status, bad->what, bad->remedy), KeepAlive::no);
    return;
  }
  auto parsed = parse_head(std::string_view(connection->received).substr(0, *length));
  if (const BadRequest* bad = std::get_if<BadRequest>(&parsed)) {
    return respond(connection, error_response(bad->status, bad->what, bad->remedy), KeepAlive::no);
  }
  connection->received.erase(0, *length);
  Request& request = std::get<Request>(parsed);
  request.local_address = connection->local_address;
  if (request.method == "HEAD") connection->method = Method::head;
  if (auto response = handler_->respond_to_head(request)) {
    // A body that nobody reads would be taken for the next request.
    const KeepAlive keep_alive = request.body_bytes == 0 ? request.keep_alive : KeepAlive::no;
    return respond(connection, std::move(*response), keep_alive);
  }
  connection->request = std::move(request);
}

void Transport::Loop::dispatch(const ConnectionPtr& connection) {
  Request request = std::move(*connection->request);
  connection->request.reset();
  request.body = connection->received.substr(0, request.body_bytes);
  connection->received.erase(0, request.body_bytes);
  if (held_bytes_ > limits_.unsent_bytes || waiting_requests_ >= limits_.waiting_requests) {
    return respond(connection, overloaded("the dashboard has too many requests at once", "2"), KeepAlive::no);
  }
  connection->phase = Phase::working;
  ++waiting_requests_;
  asio::post(*workers_, [this, connection, request = std::move(request)] {
    --waiting_requests_;
    asio::post(io_,
               [this, connection, keep_alive = request.keep_alive, response = handler_->respond(request)]() mutable {
                 if (connection->phase == Phase::working) respond(connection, std::move(response), keep_alive);
               });
  });
}

void Transport::Loop::respond(const ConnectionPtr& connection, Response response, KeepAlive keep_alive) {
  const bool is_stream = response.kind == Body::events;
  if (is_stream && connection->method == Method::other) return begin_stream(connection, response);
  connection->phase = Phase::writing;
  connection->keep_alive = is_stream ? KeepAlive::no : keep_alive;
  connection->head = head_of(response, connection->keep_alive);
  connection->sent = 0;
  if (connection->method == Method::other) connection->response = std::move(response);
  held_bytes_ += connection->response.body.size();
  connection->response_deadline = Clock::now() + limits_.response;
  write(connection);
}

void Transport::Loop::begin_stream(const ConnectionPtr& connection, const Response& response) {
  if (streams_ >= limits_.streams) {
    return respond(connection, overloaded("this dashboard is open in too many windows", "15"), KeepAlive::no);
  }
  // A client whose machine vanished without closing is dropped soon after the next heartbeat.
  const unsigned unanswered = static_cast<unsigned>(limits_.stalled.count());
  setsockopt(connection->socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
  ++streams_;
  connection->phase = Phase::streaming;
  connection->heartbeat = Clock::now() + limits_.heartbeat;
  connection->response_deadline = Clock::time_point::max();
  enqueue(connection, head_of(response, KeepAlive::no) + "retry: 2000\n\n");
  read(connection);  // completes when the client leaves
}

void Transport::Loop::enqueue(const ConnectionPtr& connection, std::string_view events) {
  connection->queued += events;
  if (!connection->is_writing) return on_written(connection);
  const std::size_t unsent = asio::buffer_size(connection->unsent()) + connection->queued.size();
  if (unsent > limits_.unsent_stream_bytes) close(connection);  // the page reconnects
}

void Transport::Loop::write(const ConnectionPtr& connection) {
  connection->deadline = std::min(Clock::now() + limits_.stalled, connection->response_deadline);
  connection->is_writing = true;
  connection->socket.async_write_some(connection->unsent(),
                                      [this, connection](const error_code& failure, std::size_t count) {
                                        if (connection->phase == Phase::closed) return;
                                        if (failure) return close(connection);
                                        connection->is_writing = false;
                                        connection->sent += count;
                                        if (asio::buffer_size(connection->unsent()) > 0) return write(connection);
                                        on_written(connection);
                                      });
}

// Nothing is left to send: a stream goes on with what was queued, other connections with their next request.
void Transport::Loop::on_written(const ConnectionPtr& connection) {
  connection->head = std::exchange(connection->queued, {});
  connection->sent = 0;
  if (connection->phase == Phase::streaming) {
    connection->deadline = Clock::time_point::max();
    if (!connection->head.empty()) write(connection);
    return;
  }
  held_bytes_ -= connection->response.body.size();
  connection->response = {};
  connection->method = Method::other;
  if (connection->keep_alive == KeepAlive::no) return linger(connection);
  connection->phase = Phase::reading;
  connection->deadline = Clock::now() + (connection->received.empty() ? limits_.idle : limits_.request);
  advance(connection);
}

// Closing with bytes unread would reset the connection, and the client could lose the response.
void Transport::Loop::linger(const ConnectionPtr& connection) {
  error_code ignored;
  connection->socket.shutdown(tcp::socket::shutdown_send, ignored);
  connection->phase = Phase::lingering;
  connection->received = {};
  connection->deadline = Clock::now() + limits_.linger;
  read(connection);
}

void Transport::Loop::close(const ConnectionPtr& connection) {
  if (connection->phase == Phase::closed) return;
  if (connection->phase == Phase::streaming) --streams_;
  if (connection->phase == Phase::writing) held_bytes_ -= connection->response.body.size();
  connection->phase = Phase::closed;
  error_code ignored;
  connection->socket.close(ignored);
  connections_.erase(connection);
  connection_count_ = connections_.size();
}

Transport::Transport(const std::string& host, std::uint16_t port, const TransportLimits& limits)
    : loop_(std::make_unique<Loop>(host, port, limits)) {}
Transport::~Transport() = default;

std::uint16_t Transport::port() const { return loop_->port(); }
void Transport::run(const RequestHandler& handler, const std::atomic<bool>* stop_flag) {
  loop_->run(handler, stop_flag);
}
void Transport::stop() { loop_->stop(); }
void Transport::publish(std::string event) { loop_->publish(std::move(event)); }
std::size_t Transport::streams() const { return loop_->streams(); }
std::size_t Transport::connections() const { return loop_->connections(); }

}  // namespace quaver
