#include "serve/response.h"

#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>

#include "serve/json_text.h"

namespace quaver {

namespace {

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Response";
  }
}

// The page loads its own script and style and talks to its own server; nothing else may be loaded, embedded or sent.
constexpr std::string_view security_headers =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n";

bool has_header(const Response& response, std::string_view name) {
  for (const auto& header : response.headers) {
    if (header.first == name) return true;
  }
  return false;
}

}  // namespace

Response json_response(std::string body) {
  Response response;
  response.content_type = "application/json; charset=utf-8";
  response.body = std::move(body);
  return response;
}

Response error_response(int status, std::string_view what, std::string_view remedy) {
  const nlohmann::json text{{"error", what}, {"remedy", remedy}};
  Response response = json_response(json_text(text));
  response.status = status;
  return response;
}

std::string head_of(const Response& response, KeepAlive keep_alive) {
  std::string head;
  auto out = std::back_inserter(head);
  fmt::format_to(out, "HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  head += security_headers;
  if (!has_header(response, "Cache-Control")) head += "Cache-Control: no-store\r\n";
  for (const auto& [name, value] : response.headers) fmt::format_to(out, "{}: {}\r\n", name, value);
  if (!response.content_type.empty()) fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
  const bool has_length = response.kind == Body::whole && response.status != 204 && response.status != 304;
  if (has_length) fmt::format_to(out, "Content-Length: {}\r\n", response.content().size());
  head += keep_alive == KeepAlive::yes ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

}  // namespace quaver
