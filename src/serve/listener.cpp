#include "serve/listener.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "quaver/error.h"

namespace quaver {

namespace {

constexpr int backlog = 512;

struct AddressListEnd {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

std::unique_ptr<addrinfo, AddressListEnd> resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = has_brackets ? host.substr(1, host.size() - 2) : host;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failure != 0 || found == nullptr) {
    throw Error(fmt::format("cannot listen on {}: {}", host, gai_strerror(failure)),
                "give an address of this machine with --host, e.g. 127.0.0.1, or 0.0.0.0 for all of them");
  }
  return std::unique_ptr<addrinfo, AddressListEnd>(found);
}

Error listen_error(const std::string& host, std::uint16_t port, int number) {
  const std::string what = fmt::format("cannot listen on {}:{}: {}", host, port, std::strerror(number));
  if (number == EADDRINUSE) {
    return Error(what, fmt::format("a dashboard may be running there already: open http://{}:{}, or choose another "
                                   "port with --port",
                                   host, port));
  }
  if (number == EACCES) return Error(what, "ports below 1024 need rights; choose another with --port");
  if (number == EADDRNOTAVAIL)
    return Error(what, "this machine does not have that address; choose another with --host");
  return Error(what, "choose another address with --host or another port with --port");
}

sockaddr_storage name_of_socket(const Descriptor& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) address.ss_family = AF_UNSPEC;
  return address;
}

}  // namespace

void Descriptor::close() {
  if (number_ >= 0) ::close(std::exchange(number_, -1));
}

Descriptor listen_on(const std::string& host, std::uint16_t port) {
  const auto addresses = resolve(host, port);
  Descriptor socket(::socket(addresses->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) throw listen_error(host, port, errno);
  // So that a dashboard can be started again at once. Unlike SO_REUSEPORT it does not let two listen side by side.
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool listens =
      bind(socket.get(), addresses->ai_addr, addresses->ai_addrlen) == 0 && listen(socket.get(), backlog) == 0;
  if (!listens) throw listen_error(host, port, errno);
  return socket;
}

std::uint16_t local_port(const Descriptor& socket) {
  const sockaddr_storage address = name_of_socket(socket);
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

std::string local_address(const Descriptor& socket) {
  const sockaddr_storage address = name_of_socket(socket);
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    if (inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size()) == nullptr) return "";
    return text.data();
  }
  if (address.ss_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      if (inet_ntop(AF_INET, &v6.s6_addr[12], text.data(), text.size()) == nullptr) return "";
      return text.data();
    }
    if (inet_ntop(AF_INET6, &v6, text.data(), text.size()) == nullptr) return "";
    return fmt::format("[{}]", text.data());
  }
  return "";
}

}  // namespace quaver
