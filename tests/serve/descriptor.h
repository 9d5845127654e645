// A file descriptor that closes itself, for tests that open sockets of their own.
#pragma once

#include <unistd.h>
#include <utility>

namespace quaver::test {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  int get() const { return number_; }

 private:
  int number_ = -1;
};

}  // namespace quaver::test
