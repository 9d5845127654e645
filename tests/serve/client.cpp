#include "serve/client.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <fmt/format.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

namespace quaver::test {

using Clock = std::chrono::steady_clock;

std::string Reply::header(std::string_view name) const {
  const std::string start = fmt::format("\r\n{}: ", name);
  const std::size_t at = head.find(start);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + start.size();
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

Client::Client(std::uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw std::runtime_error("the test cannot connect to its server");
  }
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

std::size_t Client::send_some(std::string_view bytes, std::chrono::milliseconds longest) {
  std::size_t sent = 0;
  pollfd waiting{socket_.get(), POLLOUT, 0};
  while (sent < bytes.size() && poll(&waiting, 1, static_cast<int>(longest.count())) > 0) {
    const ssize_t count = ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count <= 0) break;
    sent += static_cast<std::size_t>(count);
  }
  return sent;
}

void Client::end_sending() { shutdown(socket_.get(), SHUT_WR); }

bool Client::receive_some(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  pollfd waiting{socket_.get(), POLLIN, 0};
  if (ended_ || left <= 0 || poll(&waiting, 1, static_cast<int>(left)) <= 0) return false;
  std::array<char, 65536> chunk;
  const ssize_t count = recv(socket_.get(), chunk.data(), chunk.size(), 0);
  if (count <= 0) {
    ended_ = true;
    return false;
  }
  buffer_.append(chunk.data(), static_cast<std::size_t>(count));
  return true;
}

Reply Client::receive(std::chrono::milliseconds longest) {
  const auto end = Clock::now() + longest;
  while (buffer_.find("\r\n\r\n") == std::string::npos) {
    if (!receive_some(end)) return {};
  }
  Reply reply;
  const std::size_t head = buffer_.find("\r\n\r\n") + 4;
  reply.head = buffer_.substr(0, head);
  buffer_.erase(0, head);
  reply.status = std::stoi(reply.head.substr(reply.head.find(' ') + 1, 3));
  const std::string length = reply.header("Content-Length");
  const bool has_body = reply.status != 204 && reply.status != 304;
  const std::size_t wanted = !has_body ? 0 : length.empty() ? SIZE_MAX : std::stoul(length);
  while (buffer_.size() < wanted && receive_some(end)) continue;
  const std::size_t taken = std::min(wanted, buffer_.size());
  reply.body = buffer_.substr(0, taken);
  buffer_.erase(0, taken);
  return reply;
}

std::string Client::receive_until(std::string_view text, std::chrono::milliseconds longest) {
  const auto end = Clock::now() + longest;
  while (buffer_.find(text) == std::string::npos && receive_some(end)) continue;
  return std::exchange(buffer_, "");
}

bool Client::is_ended(std::chrono::milliseconds longest) {
  const auto end = Clock::now() + longest;
  while (receive_some(end)) continue;
  return ended_;
}

std::string get(std::uint16_t port, std::string_view path, std::string_view more) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{}\r\n", path, port, more);
}

Reply ask(std::uint16_t port, std::string_view bytes) {
  Client client(port);
  client.send(bytes);
  return client.receive();
}

std::string token_line(std::uint16_t port) {
  const auto server = nlohmann::json::parse(ask(port, get(port, "/api/server")).body);
  return fmt::format("X-Quaver-Token: {}\r\n", server["change_token"].get<std::string>());
}

namespace {

ServeOptions on_free_port(ServeOptions options) {
  options.port = 0;
  return options;
}

}  // namespace

RunningDashboard::RunningDashboard(const std::filesystem::path& store, ServeOptions options)
    : dashboard_(store, on_free_port(std::move(options))), thread_([this] { dashboard_.listen(); }) {}

RunningDashboard::~RunningDashboard() {
  dashboard_.stop();
  thread_.join();
}

}  // namespace quaver::test
