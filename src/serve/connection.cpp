#include "serve/connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/socket.h>

namespace quaver {

namespace {

constexpr std::size_t chunk = std::size_t{16} * 1024;

bool would_block(int number) { return number == EAGAIN || number == EWOULDBLOCK; }

}  // namespace

Connection::Connection(std::uint64_t number, Descriptor accepted)
    : id(number), socket(std::move(accepted)), local(local_address(socket)) {}

Flow Connection::receive(std::size_t most) {
  std::array<char, chunk> buffer;
  while (received.size() < most) {
    const ssize_t count = recv(socket.get(), buffer.data(), std::min(buffer.size(), most - received.size()), 0);
    if (count > 0) {
      received.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (count == 0) {
      return Flow::ended;
    } else if (errno != EINTR) {
      return would_block(errno) ? Flow::blocked : Flow::ended;
    }
  }
  return Flow::some;
}

Flow Connection::discard() {
  std::array<char, chunk> buffer;
  for (int i = 0; i < 16; ++i) {  // others wait for their turn
    const ssize_t count = recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (count == 0) return Flow::ended;
    if (count < 0 && errno != EINTR) return would_block(errno) ? Flow::blocked : Flow::ended;
  }
  return Flow::some;
}

void Connection::begin_answer(Response answer, KeepAlive keep_alive) {
  response_ = std::move(answer);
  head_ = head_of(response_, keep_alive);
  if (sending == Sending::head) {
    response_.body.clear();
    response_.fixed = {};
  }
  sent_ = 0;
  after = keep_alive;
}

void Connection::append(std::string_view text) {
  head_.erase(0, sent_);
  sent_ = 0;
  head_ += text;
}

Flow Connection::send() {
  while (unsent() > 0) {
    const std::string_view content = response_.content();
    const bool in_head = sent_ < head_.size();
    const std::string_view piece =
        in_head ? std::string_view(head_).substr(sent_) : content.substr(sent_ - head_.size());
    const int more = in_head && !content.empty() ? MSG_MORE : 0;
    const ssize_t count = ::send(socket.get(), piece.data(), piece.size(), MSG_NOSIGNAL | more);
    if (count >= 0) {
      sent_ += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      return would_block(errno) ? Flow::blocked : Flow::ended;
    }
  }
  forget_answer();
  return Flow::some;
}

void Connection::forget_answer() {
  head_.clear();
  response_ = Response{};
  sent_ = 0;
}

}  // namespace quaver
