// Who may ask the dashboard anything. A page of another site that a browser has open must learn and change nothing, and
// beyond this machine only who holds the token gets in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "serve/request.h"
#include "serve/response.h"

namespace quaver {

// 128 random bits from the system, in hexadecimal.
std::string make_token();

// Takes as long for every pair of texts of the same lengths.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// Whether only this machine can reach the address: 127.0.0.0/8, ::1, localhost.
bool is_loopback(std::string_view host);

class Doorkeeper {
 public:
  // `host` as asked for, e.g. "127.0.0.1" or "0.0.0.0"; an empty token lets everyone in who reaches the port.
  Doorkeeper(const std::string& host, std::uint16_t port, std::string token);

  // The answer to a request that is not let in; none where it is. A request that brings the token in its address is
  // answered as well: with the cookie, and a redirection to the page.
  std::optional<Response> check(const Request& request) const;

  // Whether the text is a name of this server: the address it listens on, this machine's name, or localhost.
  bool is_own_host(std::string_view host, std::string_view local_address) const;

  bool token_required() const { return !token_.empty(); }

 private:
  std::optional<Response> check_origin(const Request& request) const;
  std::optional<Response> check_token(const Request& request) const;
  std::string cookie_name() const;

  std::string host_;
  std::string machine_;
  std::string port_;
  std::string token_;
};

}  // namespace quaver
