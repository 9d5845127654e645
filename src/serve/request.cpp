#include "serve/request.h"

#include <algorithm>
#include <charconv>

namespace quaver {

namespace {

constexpr std::string_view line_end = "\r\n";
constexpr std::string_view head_end = "\r\n\r\n";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// RFC 9110, 5.6.2: methods and header names.
bool is_token(std::string_view text) {
  constexpr std::string_view symbols = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || is_digit(c) || symbols.find(c) != std::string_view::npos;
  });
}

bool is_printable(char c) { return c > ' ' && c < '\x7f'; }

// Anything but control characters; bytes beyond ASCII are accepted, since nothing here interprets them.
bool is_value(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string lowercase(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

constexpr BadRequest malformed{400, "not a valid HTTP/1.1 request", "open the dashboard in a browser"};
constexpr BadRequest target_too_long{414, "the request target is too long", "ask for less at once"};

std::optional<BadRequest> parse_request_line(std::string_view line, Request& request) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return malformed;
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method)) return malformed;
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    if (!version.starts_with("HTTP/")) return malformed;
    return BadRequest{505, "this HTTP version is not supported", "use HTTP/1.1"};
  }
  if (target.size() > max_target_bytes) return target_too_long;
  const bool is_plain = std::all_of(target.begin(), target.end(), is_printable);
  if (!target.starts_with('/') || !is_plain || target.find('#') != std::string_view::npos) {
    return BadRequest{400, "the request target is not a path", "use a path such as /api/runs"};
  }
  const std::size_t mark = target.find('?');
  request.method = method;
  request.path = target.substr(0, mark);
  if (mark != std::string_view::npos) request.query = target.substr(mark + 1);
  request.keep_alive = version == "HTTP/1.1" ? KeepAlive::yes : KeepAlive::no;
  return std::nullopt;
}

std::optional<BadRequest> parse_header(std::string_view line, Request& request) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return malformed;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (!is_token(name) || !is_value(value)) return malformed;
  if (request.headers.size() == max_header_count) {
    return BadRequest{431, "the request has too many headers", "send fewer"};
  }
  request.headers.emplace_back(lowercase(name), value);
  return std::nullopt;
}

// Headers that decide something: repeated, they would be ambiguous.
std::optional<BadRequest> check_repeated(const Request& request) {
  for (const std::string_view name :
       {"host", "origin", "content-length", "content-type", "authorization", "cookie", "x-quaver-token"}) {
    const auto count = std::count_if(request.headers.begin(), request.headers.end(),
                                     [&](const auto& header) { return header.first == name; });
    if (count > 1) return BadRequest{400, "a header that must be unique is repeated", "send it once"};
  }
  return std::nullopt;
}

std::optional<BadRequest> parse_content_length(Request& request) {
  if (request.header("transfer-encoding")) {
    return BadRequest{411, "a body without Content-Length is not accepted", "send Content-Length"};
  }
  const auto length = request.header("content-length");
  if (!length) return std::nullopt;
  if (length->empty() || !std::all_of(length->begin(), length->end(), is_digit)) return malformed;
  const auto [end, failure] = std::from_chars(length->data(), length->data() + length->size(), request.body_bytes);
  if (failure != std::errc() || request.body_bytes > max_body_bytes) {
    return BadRequest{413, "the body is longer than 64 KiB", "send less"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string_view> Request::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::optional<std::size_t> head_length(std::string_view received) {
  const std::size_t end = received.find(head_end);
  if (end == std::string_view::npos) return std::nullopt;
  return end + head_end.size();
}

std::optional<BadRequest> too_long(std::string_view received) {
  constexpr std::size_t around_target = 64;  // method, spaces and version
  const std::size_t line = std::min(received.find(line_end), received.size());
  if (line > max_target_bytes + around_target) return target_too_long;
  if (std::min(received.find(head_end), received.size()) > max_head_bytes) {
    return BadRequest{431, "the request's headers are too long", "send less, or clear this site's cookies"};
  }
  return std::nullopt;
}

std::variant<Request, BadRequest> parse_head(std::string_view head) {
  if (const auto bad = too_long(head)) return *bad;
  Request request;
  bool is_first = true;
  while (true) {
    const std::size_t end = head.find(line_end);
    if (end == std::string_view::npos) return malformed;
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + line_end.size());
    if (line.empty()) break;
    const auto bad = is_first ? parse_request_line(line, request) : parse_header(line, request);
    if (bad) return *bad;
    is_first = false;
  }
  if (is_first || !head.empty()) return malformed;
  if (const auto bad = check_repeated(request)) return *bad;
  if (const auto bad = parse_content_length(request)) return *bad;
  if (const auto connection = request.header("connection")) {
    if (lowercase(*connection) == "close") request.keep_alive = KeepAlive::no;
  }
  return request;
}

}  // namespace quaver
