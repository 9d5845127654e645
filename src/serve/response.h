// An HTTP response and its serialized head. Every response has the security headers, errors included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/request.h"

namespace quaver {

enum class Body : std::uint8_t {
  whole,  // `body`, or `fixed` where that is not empty
  events  // the response begins an event stream, which lasts until the client leaves
};

struct Response {
  int status = 200;
  std::string content_type;  // empty: no body
  std::string body;
  std::string_view fixed;  // bytes of static lifetime, such as the page; not copied
  Body kind = Body::whole;
  std::vector<std::pair<std::string, std::string>> headers;  // beyond those of every response

  std::string_view content() const { return fixed.empty() ? std::string_view(body) : fixed; }
};

Response json_response(std::string body);

// {"error": what, "remedy": remedy}. Bytes that are not UTF-8 are replaced.
Response error_response(int status, std::string_view what, std::string_view remedy);

// Status line and headers, including the empty line.
std::string head_of(const Response& response, KeepAlive keep_alive);

}  // namespace quaver
