// An HTTP request, and the strict parser for its head. Anything ambiguous is rejected: nothing is percent-decoded,
// unfolded or guessed, so that access control checks the bytes that were sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace quaver {

inline constexpr std::size_t max_target_bytes = std::size_t{8} * 1024;
inline constexpr std::size_t max_head_bytes = std::size_t{16} * 1024;
inline constexpr std::size_t max_header_count = 100;
inline constexpr std::size_t max_body_bytes = std::size_t{64} * 1024;

enum class KeepAlive : std::uint8_t { no, yes };

struct Request {
  std::string method;  // "GET"
  std::string path;    // "/api/runs": as sent, without the query. No route contains an escape, so none is decoded.
  std::string query;   // "after=3&names=loss": what follows the first '?', as sent
  std::vector<std::pair<std::string, std::string>> headers;  // names in lowercase, values trimmed
  std::string body;
  std::string local_address;  // of the connection, as a Host header writes it: "127.0.0.1", "[::1]"
  KeepAlive keep_alive = KeepAlive::no;
  std::size_t body_bytes = 0;  // by its Content-Length

  // The value of a header, by its name in lowercase; the first where there are several.
  std::optional<std::string_view> header(std::string_view name) const;
};

// Why a head was rejected: the status of the response, what is wrong and what to do about it.
struct BadRequest {
  int status = 400;
  std::string_view what;
  std::string_view remedy;
};

// The length of the head in bytes, including its empty line; none while it is incomplete.
std::optional<std::size_t> head_length(std::string_view received);

// Whether a head that may be incomplete already exceeds its limits.
std::optional<BadRequest> too_long(std::string_view received);

// Parses a complete head, including its empty line. Total: any bytes give a request or the reason for rejecting them.
std::variant<Request, BadRequest> parse_head(std::string_view head);

}  // namespace quaver
