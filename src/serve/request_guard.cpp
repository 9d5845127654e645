#include "serve/request_guard.h"

#include <array>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include "quaver/error.h"
#include "serve/query.h"

namespace quaver {

namespace {

std::string machine_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

// "a.b:80" → "a.b" and "80"; the port is empty where there is none. An IPv6 address keeps its brackets.
std::pair<std::string_view, std::string_view> split_host(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const std::size_t bracket = text.rfind(']');
  const bool has_port = colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (!has_port) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

bool equal_names(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  if (a.empty() || a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

std::string_view without_brackets(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) return host.substr(1, host.size() - 2);
  return host;
}

// The value of a cookie; empty where there is none of that name.
std::string_view cookie(const Request& request, std::string_view name) {
  std::string_view rest = request.header("cookie").value_or("");
  while (!rest.empty()) {
    const std::size_t end = rest.find(';');
    std::string_view pair = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    while (pair.starts_with(' ')) pair.remove_prefix(1);
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('=')) return pair.substr(name.size() + 1);
  }
  return "";
}

}  // namespace

std::string make_token() {
  std::array<unsigned char, 16> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error("the system provides no random numbers for a token", "listen on 127.0.0.1, where none is needed");
  }
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned difference = 0;  // volatile: the compiler may not leave the loop early
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = difference | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

bool is_loopback(std::string_view host) {
  const std::string_view name = without_brackets(host);
  if (name == "localhost" || name == "::1") return true;
  const bool is_address = name.find_first_not_of("0123456789.") == std::string_view::npos;
  return is_address && name.starts_with("127.");
}

RequestGuard::RequestGuard(const std::string& host, std::uint16_t port, std::string token)
    : host_(without_brackets(host)), machine_(machine_name()), port_(std::to_string(port)), token_(std::move(token)) {}

bool RequestGuard::is_own_host(std::string_view host, std::string_view local_address) const {
  const auto [name, port] = split_host(host);
  const bool is_own_port = port == port_ || (port.empty() && port_ == "80");
  if (!is_own_port) return false;
  if (equal_names(name, "localhost") || name == "127.0.0.1" || name == "[::1]") return true;
  if (equal_names(without_brackets(name), host_)) return true;
  // A server that other machines reach has the names they use for it. DNS rebinding is no danger there: the browser
  // sends the cookie with the token to one host name alone.
  if (!token_required()) return false;
  return equal_names(name, machine_) || equal_names(name, local_address);
}

std::optional<Response> RequestGuard::check(const Request& request) const {
  const std::string_view host = request.header("host").value_or("");
  if (!is_own_host(host, request.local_address)) {
    return error_response(
        403, "the Host header does not name this server",
        fmt::format("open http://127.0.0.1:{} or the address that `quaver dash` printed; a tunnel must "
                    "use the same port at both ends",
                    port_));
  }
  if (auto refused = check_origin(request)) return refused;
  return check_token(request);
}

std::optional<Response> RequestGuard::check_origin(const Request& request) const {
  constexpr std::string_view what = "the request comes from a page of another site";
  constexpr std::string_view remedy = "only the dashboard's own page has access; open it in the browser";
  if (const auto origin = request.header("origin")) {
    if (!origin->starts_with("http://") || !equal_names(origin->substr(7), request.header("host").value_or(""))) {
      return error_response(403, what, remedy);
    }
  }
  // Browsers send no Origin for images, scripts and links of other sites, but they send Sec-Fetch-Site. A link to the
  // page itself may be followed.
  const std::string_view site = request.header("sec-fetch-site").value_or("none");
  const bool is_link = request.path == "/" && request.header("sec-fetch-mode") == "navigate";
  if (site != "same-origin" && site != "none" && !is_link) return error_response(403, what, remedy);
  return std::nullopt;
}

std::optional<Response> RequestGuard::check_token(const Request& request) const {
  const bool may_carry_token = request.path == "/" && (request.method == "GET" || request.method == "HEAD");
  const Query query(may_carry_token ? request.query : "");
  if (const auto given = query.text("token")) {
    if (token_required() && !equal_in_constant_time(*given, token_)) {
      return error_response(401, "the token in the address is not this server's",
                            "open the address that `quaver dash` printed when it was started last");
    }
    Response response;
    response.status = 303;
    response.headers = {{"Location", "/"}};
    if (token_required()) {
      response.headers.emplace_back("Set-Cookie",
                                    fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict", cookie_name(), token_));
    }
    return response;
  }
  if (!token_required()) return std::nullopt;
  std::string_view bearer = request.header("authorization").value_or("");
  bearer = bearer.starts_with("Bearer ") ? bearer.substr(7) : std::string_view();
  const bool is_known =
      equal_in_constant_time(bearer, token_) || equal_in_constant_time(cookie(request, cookie_name()), token_);
  if (is_known) return std::nullopt;
  Response refused =
      error_response(401, "this dashboard requires its token",
                     "open the address with ?token=… that `quaver dash` printed, or send it as Authorization: "
                     "Bearer");
  refused.headers.emplace_back("WWW-Authenticate", "Bearer");
  return refused;
}

// Cookies are shared between ports; the name has the port, so that two dashboards of one machine do not overwrite each
// other's.
std::string RequestGuard::cookie_name() const { return "quaver_" + port_; }

}  // namespace quaver
