// The socket that the dashboard listens on, and file descriptors that close themselves.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace quaver {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return number_; }
  void close();

 private:
  int number_ = -1;
};

// Listens on the first address that the host has; port 0 takes a free one. Error where the port is taken, the host is
// not this machine's, or the system refuses.
Descriptor listen_on(const std::string& host, std::uint16_t port);

std::uint16_t local_port(const Descriptor& socket);

// The local address of a connection as a Host header writes it: "10.0.0.5", "[::1]". Empty where the system gives none.
std::string local_address(const Descriptor& socket);

}  // namespace quaver
