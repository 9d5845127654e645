// Access control for the dashboard, decided from the head of a request: a page of another site that is open in the same
// browser must neither read nor change anything, and clients on other machines need the token.
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

// Takes the same time for all texts of the same lengths.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// Whether the address is a loopback address: 127.0.0.0/8, ::1, localhost.
bool is_loopback(std::string_view host);

class RequestGuard {
 public:
  // `host` as configured, e.g. "127.0.0.1" or "0.0.0.0"; with an empty token everyone who reaches the port has access.
  RequestGuard(const std::string& host, std::uint16_t port, std::string token);

  // The response to a request that is denied; none where it is allowed. A request for the page with the token in its
  // query gets a response too: the cookie, and a redirect to the page.
  std::optional<Response> check(const Request& request) const;

  // Whether a Host header names this server: the address it listens on, this machine's name, or localhost.
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
