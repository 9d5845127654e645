#include "serve/transport.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <unordered_map>
#include <variant>
#include <vector>

#include "quaver/error.h"
#include "serve/connection.h"
#include "serve/workers.h"

namespace quaver {

namespace {

constexpr std::uint64_t listener_id = 0;
constexpr std::uint64_t wake_id = 1;
constexpr std::uint64_t first_connection_id = 2;
constexpr auto tick = std::chrono::milliseconds(250);
constexpr std::size_t most_received = max_head_bytes + max_body_bytes;

Descriptor require(int number, const char* what) {
  if (number < 0) {
    throw Error(std::string("cannot ") + what + ": " + std::strerror(errno),
                "close programs that have many files open, or raise the limit with `ulimit -n`");
  }
  return Descriptor(number);
}

// Leaves descriptors for the store and the rest of the program.
std::size_t connections_within_limits(std::size_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  const std::size_t allowed = static_cast<std::size_t>(files.rlim_cur);
  return std::min(wanted, allowed > 128 ? allowed - 64 : allowed / 2);
}

Response come_back_later(std::string_view what, std::string_view seconds) {
  Response response = refusal(503, what, "try again in a few seconds, or close other windows of the dashboard");
  response.headers.emplace_back("Retry-After", seconds);
  return response;
}

}  // namespace

class Transport::Loop {
 public:
  Loop(const std::string& host, std::uint16_t port, const TransportLimits& limits)
      : limits_(limits),
        most_connections_(connections_within_limits(limits.connections)),
        listener_(listen_on(host, port)),
        epoll_(require(epoll_create1(EPOLL_CLOEXEC), "wait for connections")),
        wake_(require(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "wait for connections")) {
    watch(listener_.get(), listener_id, EPOLLIN, EPOLL_CTL_ADD);
    watch(wake_.get(), wake_id, EPOLLIN, EPOLL_CTL_ADD);
  }

  void run(const RequestHandler& handler, const std::atomic<bool>* stop_flag);

  void stop() {
    stopping_ = true;
    wake();
  }

  void publish(std::string event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    wake();
  }

  std::uint16_t port() const { return local_port(listener_); }
  std::size_t streams() const { return streams_; }
  std::size_t connections() const { return connection_count_; }

 private:
  struct Answer {
    std::uint64_t connection;
    Response response;
  };

  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);  // fails only when it is set already
  }
  void watch(int descriptor, std::uint64_t id, std::uint32_t events, int operation) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    epoll_ctl(epoll_.get(), operation, descriptor, &event);
  }
  void set_interest(Connection& connection, std::uint32_t events) const {
    if (connection.interest == events) return;
    connection.interest = events;
    watch(connection.socket.get(), connection.id, events, EPOLL_CTL_MOD);
  }

  void handle(const epoll_event& event);
  void accept_all();
  bool make_room();
  void pause_listening();
  void take_messages();
  void look_at_clocks();

  void on_readable(Connection& connection);
  void advance(Connection& connection);
  bool take_head(Connection& connection);
  void dispatch(Connection& connection);
  void respond(Connection& connection, Response response, KeepAlive keep_alive);
  void begin_stream(Connection& connection, Response response);
  void on_writable(Connection& connection);
  void finish_answer(Connection& connection);
  void linger(Connection& connection);
  void expire(Connection& connection);
  void close(Connection& connection);

  const TransportLimits limits_;
  const std::size_t most_connections_;
  Descriptor listener_;
  Descriptor epoll_;
  Descriptor wake_;
  bool listening_ = true;
  const RequestHandler* handler_ = nullptr;
  std::optional<Workers> workers_;
  Instant now_{};

  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> closed_;  // kept until no function up the stack refers to them
  std::uint64_t next_id_ = first_connection_id;
  std::size_t held_bytes_ = 0;
  std::atomic<std::size_t> streams_{0};
  std::atomic<std::size_t> connection_count_{0};
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;  // of what other threads hand over
  std::vector<Answer> answers_;
  std::vector<std::string> events_;
};

void Transport::Loop::run(const RequestHandler& handler, const std::atomic<bool>* stop_flag) {
  handler_ = &handler;
  workers_.emplace(limits_.workers, limits_.waiting_requests);
  Instant next_look = std::chrono::steady_clock::now();
  std::array<epoll_event, 128> events;
  while (!stopping_ && (stop_flag == nullptr || !*stop_flag)) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), tick.count());
    now_ = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) handle(events[static_cast<std::size_t>(i)]);
    if (now_ >= next_look) {
      look_at_clocks();
      next_look = now_ + tick;
    }
    closed_.clear();
  }
  workers_.reset();
  connections_.clear();
  streams_ = 0;
  connection_count_ = 0;
  handler_ = nullptr;
}

void Transport::Loop::handle(const epoll_event& event) {
  if (event.data.u64 == listener_id) return accept_all();
  if (event.data.u64 == wake_id) return take_messages();
  const auto found = connections_.find(event.data.u64);
  if (found == connections_.end()) return;  // closed by an earlier event of the same batch
  Connection& connection = *found->second;
  if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) return close(connection);
  if ((event.events & EPOLLOUT) != 0) {
    on_writable(connection);
    advance(connection);  // the next request may have arrived with the one that is answered now
  }
  if ((event.events & (EPOLLIN | EPOLLRDHUP)) != 0) on_readable(connection);
}

void Transport::Loop::accept_all() {
  for (int i = 0; i < 64; ++i) {  // then others have their turn
    Descriptor accepted(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.get() < 0) {
      const bool out_of_descriptors = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
      if (out_of_descriptors && !make_room()) pause_listening();
      closed_.clear();  // gives their descriptors back
      return;
    }
    if (connections_.size() >= most_connections_ && !make_room()) continue;
    const int on = 1;
    setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto made = std::make_unique<Connection>(next_id_++, std::move(accepted));
    Connection& connection = *made;
    connections_.emplace(connection.id, std::move(made));
    connection_count_ = connections_.size();
    connection.interest = EPOLLIN | EPOLLRDHUP;
    connection.deadline = now_ + limits_.idle;
    watch(connection.socket.get(), connection.id, connection.interest, EPOLL_CTL_ADD);
    on_readable(connection);  // most requests are there already
  }
}

// Closes the connection that has waited the longest without a whole request. False: every one is being served.
bool Transport::Loop::make_room() {
  Connection* oldest = nullptr;
  for (const auto& [id, connection] : connections_) {
    const bool is_waiting = connection->phase == Phase::reading || connection->phase == Phase::lingering;
    if (is_waiting && (oldest == nullptr || connection->deadline < oldest->deadline)) oldest = connection.get();
  }
  if (oldest != nullptr) close(*oldest);
  return oldest != nullptr;
}

// Until the next look at the clocks: the listener would report the same connection again and again.
void Transport::Loop::pause_listening() {
  listening_ = false;
  watch(listener_.get(), listener_id, 0, EPOLL_CTL_MOD);
}

void Transport::Loop::take_messages() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = read(wake_.get(), &count, sizeof count);
  std::vector<Answer> answers;
  std::vector<std::string> events;
  {
    const std::lock_guard lock(mutex_);
    answers.swap(answers_);
    events.swap(events_);
  }
  for (Answer& answer : answers) {
    const auto found = connections_.find(answer.connection);
    if (found == connections_.end()) continue;  // the client has gone meanwhile
    Connection& connection = *found->second;
    respond(connection, std::move(answer.response), connection.after);
    advance(connection);
  }
  if (events.empty()) return;
  std::vector<Connection*> listeners;
  for (const auto& [id, connection] : connections_) {
    if (connection->phase == Phase::streaming) listeners.push_back(connection.get());
  }
  for (Connection* connection : listeners) {
    for (const std::string& event : events) connection->append(event);
    on_writable(*connection);
  }
}

void Transport::Loop::look_at_clocks() {
  if (!listening_) {
    listening_ = true;
    watch(listener_.get(), listener_id, EPOLLIN, EPOLL_CTL_MOD);
  }
  std::vector<Connection*> due;
  for (const auto& [id, connection] : connections_) {
    if (connection->phase != Phase::working) due.push_back(connection.get());
  }
  for (Connection* connection : due) {
    if (connection->phase == Phase::streaming && connection->heartbeat <= now_) {
      connection->heartbeat = now_ + limits_.heartbeat;
      connection->append(":\n\n");
      on_writable(*connection);
    } else if (connection->deadline <= now_) {
      expire(*connection);
    }
  }
}

void Transport::Loop::expire(Connection& connection) {
  const bool has_begun = connection.phase == Phase::reading && (!connection.received.empty() || connection.request);
  if (!has_begun) return close(connection);
  respond(connection, refusal(408, "the request did not arrive in time", "send it at once"), KeepAlive::no);
}

void Transport::Loop::on_readable(Connection& connection) {
  if (connection.phase == Phase::lingering) {
    if (connection.discard() == Flow::ended) close(connection);
    return;
  }
  if (connection.phase == Phase::streaming) return close(connection);  // the client has nothing to say here
  if (connection.phase != Phase::reading) return;
  const bool was_empty = connection.received.empty() && !connection.request;
  const Flow flow = connection.receive(most_received);
  if (was_empty && !connection.received.empty()) connection.deadline = now_ + limits_.request;
  advance(connection);
  // A client may end its side as soon as it has asked; whether it is gone shows when the answer is sent.
  if (flow == Flow::ended && connection.phase == Phase::reading) close(connection);
}

// Takes what has been received as far as it goes. A loop, not a recursion: many requests may have come at once.
void Transport::Loop::advance(Connection& connection) {
  while (connection.phase == Phase::reading) {
    const std::size_t before = connection.received.size();
    if (connection.request || take_head(connection)) {
      Request& request = *connection.request;
      if (connection.received.size() < request.body_bytes) return;
      request.body = connection.received.substr(0, request.body_bytes);
      connection.received.erase(0, request.body_bytes);
      dispatch(connection);
    }
    if (connection.received.size() == before) return;
  }
}

// False: the head is not complete yet, or is answered already.
bool Transport::Loop::take_head(Connection& connection) {
  const auto length = head_length(connection.received);
  if (!length) {
    const auto bad = too_long(connection.received);
    if (bad) respond(connection, refusal(bad->status, bad->what, bad->remedy), KeepAlive::no);
    return false;
  }
  connection.sending = Sending::whole;
  auto parsed = parse_head(std::string_view(connection.received).substr(0, *length));
  if (const BadRequest* bad = std::get_if<BadRequest>(&parsed)) {
    respond(connection, refusal(bad->status, bad->what, bad->remedy), KeepAlive::no);
    return false;
  }
  connection.received.erase(0, *length);
  Request& request = std::get<Request>(parsed);
  request.local_address = connection.local;
  if (request.method == "HEAD") connection.sending = Sending::head;
  if (auto answer = handler_->at_once(request)) {
    // A body that nobody waits for would be taken for the next request.
    const KeepAlive keep_alive = request.body_bytes == 0 ? request.keep_alive : KeepAlive::no;
    respond(connection, std::move(*answer), keep_alive);
    return false;
  }
  connection.request = std::move(request);
  return true;
}

void Transport::Loop::dispatch(Connection& connection) {
  Request request = std::move(*connection.request);
  connection.request.reset();
  connection.after = request.keep_alive;
  auto job = [this, id = connection.id, request = std::move(request)] {
    Response response = handler_->answer(request);
    {
      const std::lock_guard lock(mutex_);
      answers_.push_back({id, std::move(response)});
    }
    wake();
  };
  if (held_bytes_ > limits_.unsent_bytes || !workers_->add(std::move(job))) {
    return respond(connection, come_back_later("the dashboard is asked more than it can answer", "2"), KeepAlive::no);
  }
  connection.phase = Phase::working;
  set_interest(connection, 0);
}

void Transport::Loop::respond(Connection& connection, Response response, KeepAlive keep_alive) {
  if (response.kind == Body::events) {
    if (connection.sending == Sending::whole) return begin_stream(connection, std::move(response));
    keep_alive = KeepAlive::no;  // as a stream says of itself
  }
  connection.phase = Phase::writing;
  connection.deadline = now_ + limits_.stalled;
  connection.last_deadline = now_ + limits_.answer;
  connection.begin_answer(std::move(response), keep_alive);
  held_bytes_ += connection.held_bytes();
  on_writable(connection);
}

void Transport::Loop::begin_stream(Connection& connection, Response response) {
  if (streams_ >= limits_.streams) {
    return respond(connection, come_back_later("as many windows as it can follow are open on this dashboard", "15"),
                   KeepAlive::no);
  }
  // A client whose machine vanished without a word is given up soon after the next heartbeat.
  const unsigned unanswered = static_cast<unsigned>(limits_.stalled.count());
  setsockopt(connection.socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
  ++streams_;
  connection.phase = Phase::streaming;
  connection.heartbeat = now_ + limits_.heartbeat;
  connection.deadline = Instant::max();
  connection.begin_answer(std::move(response), KeepAlive::no);
  connection.append("retry: 2000\n\n");
  on_writable(connection);
}

void Transport::Loop::on_writable(Connection& connection) {
  const std::size_t before = connection.unsent();
  const std::size_t held = connection.held_bytes();
  const Flow flow = connection.send();
  if (flow == Flow::ended) return close(connection);
  if (connection.phase == Phase::streaming) {
    if (connection.unsent() > limits_.unsent_stream_bytes) return close(connection);  // it can ask again
    const bool is_stuck = flow == Flow::blocked;
    if (!is_stuck || connection.unsent() < before) {
      connection.deadline = is_stuck ? now_ + limits_.stalled : Instant::max();
    } else {
      connection.deadline = std::min(connection.deadline, now_ + limits_.stalled);
    }
    return set_interest(connection, EPOLLIN | EPOLLRDHUP | (is_stuck ? EPOLLOUT : 0U));
  }
  if (flow == Flow::blocked) {
    if (connection.unsent() < before) {
      connection.deadline = std::min(now_ + limits_.stalled, connection.last_deadline);
    }
    return set_interest(connection, EPOLLOUT);
  }
  held_bytes_ -= held;
  finish_answer(connection);
}

void Transport::Loop::finish_answer(Connection& connection) {
  if (connection.after == KeepAlive::no) return linger(connection);
  connection.phase = Phase::reading;
  connection.deadline = now_ + (connection.received.empty() ? limits_.idle : limits_.request);
  set_interest(connection, EPOLLIN | EPOLLRDHUP);
}

// An end with bytes unread would reset the connection, and the client could lose the answer.
void Transport::Loop::linger(Connection& connection) {
  shutdown(connection.socket.get(), SHUT_WR);
  connection.phase = Phase::lingering;
  connection.received = {};
  connection.deadline = now_ + limits_.linger;
  set_interest(connection, EPOLLIN | EPOLLRDHUP);
}

void Transport::Loop::close(Connection& connection) {
  const auto found = connections_.find(connection.id);
  if (found == connections_.end()) return;
  if (connection.phase == Phase::streaming) --streams_;
  if (connection.phase == Phase::writing) held_bytes_ -= connection.held_bytes();
  connection.phase = Phase::working;  // nothing more is done with it
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
  closed_.push_back(std::move(found->second));
  connections_.erase(found);
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
