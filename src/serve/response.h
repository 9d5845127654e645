// One answer of the dashboard, and the bytes it is sent as. The headers that keep a browser strict are on every answer,
// refusals among them.
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
  events  // the answer begins an event stream, which goes on until the client leaves
};

struct Response {
  int status = 200;
  std::string content_type;  // empty: no body
  std::string body;
  std::string_view fixed;  // bytes that live as long as the program, such as the page; not copied
  Body kind = Body::whole;
  std::vector<std::pair<std::string, std::string>> headers;  // beyond those of every answer

  std::string_view content() const { return fixed.empty() ? std::string_view(body) : fixed; }
};

Response json_response(std::string body);

// {"error": what, "remedy": remedy}. Bytes that are not UTF-8 are replaced.
Response refusal(int status, std::string_view what, std::string_view remedy);

// Status line and headers, the empty line included.
std::string head_of(const Response& response, KeepAlive keep_alive);

}  // namespace quaver
