// One HTTP request as the dashboard sees it, and the strict parser that makes it from bytes. Whatever is not plainly a
// request of HTTP/1.x is refused: nothing is decoded, folded or guessed, so that what is checked is what was sent.
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
  std::string path;    // "/api/runs": as sent, without the query. No route needs an escape, so none is decoded.
  std::string query;   // "after=3&names=loss": what follows the first '?', as sent
  std::vector<std::pair<std::string, std::string>> headers;  // names in small letters, values trimmed
  std::string body;
  std::string local_address;  // that the connection came in on: "127.0.0.1", "[::1]"
  KeepAlive keep_alive = KeepAlive::no;
  std::size_t body_bytes = 0;  // that its head promises

  // The value of a header, by its name in small letters; the first where there are several.
  std::optional<std::string_view> header(std::string_view name) const;
};

// Why bytes are no request: the status to answer with, what is wrong and what to do about it.
struct BadRequest {
  int status = 400;
  std::string_view what;
  std::string_view remedy;
};

// The length of the head in bytes, its empty line included; none while it is not complete.
std::optional<std::size_t> head_length(std::string_view received);

// Whether what has been received of a head is already too much to be one.
std::optional<BadRequest> too_long(std::string_view received);

// A complete head, its empty line included. Total: every string of bytes gives a request or a refusal.
std::variant<Request, BadRequest> parse_head(std::string_view head);

}  // namespace quaver
