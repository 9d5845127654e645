#include "serve/dashboard.h"

#include <fmt/format.h>

#include "serve/application.h"
#include "serve/watcher.h"

namespace quaver {

namespace {

std::string token_for(const ServeOptions& options) {
  const bool is_needed = options.token == TokenUse::always || !is_loopback(options.host);
  return is_needed ? make_token() : "";
}

std::string change_token_for(const ServeOptions& options) {
  const bool is_allowed =
      options.changes == Changes::allowed || (options.changes == Changes::on_loopback && is_loopback(options.host));
  return is_allowed ? make_token() : "";
}

// The host by which a browser on this machine reaches the server.
std::string host_in_url(const std::string& host) {
  if (host == "0.0.0.0") return "127.0.0.1";
  if (host == "::" || host == "[::]") return "[::1]";
  const bool is_bare_v6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return is_bare_v6 ? "[" + host + "]" : host;
}

}  // namespace

class Dashboard::Parts {
 public:
  Parts(const std::filesystem::path& runs, const ServeOptions& options)
      : host(options.host),
        token(token_for(options)),
        pool(runs),
        transport(options.host, options.port, options.limits),
        application(RequestGuard(host, transport.port(), token), pool, change_token_for(options),
                    {.open_streams = [this] { return transport.streams(); }, .failed = options.warning}) {}

  const std::string host;
  const std::string token;
  StorePool pool;
  Transport transport;
  Application application;
};

Dashboard::Dashboard(const std::filesystem::path& runs, const ServeOptions& options)
    : parts_(std::make_unique<Parts>(runs, options)) {}
Dashboard::~Dashboard() = default;

void Dashboard::listen(const std::atomic<bool>* stop_flag) {
  const Watcher watcher(parts_->pool, [this](std::string events) { parts_->transport.publish(std::move(events)); });
  parts_->transport.run(
      {.respond_to_head = [this](const Request& head) { return parts_->application.respond_to_head(head); },
       .respond = [this](const Request& request) { return parts_->application.respond(request); }},
      stop_flag);
}

void Dashboard::stop() { parts_->transport.stop(); }

std::uint16_t Dashboard::port() const { return parts_->transport.port(); }
const std::string& Dashboard::token() const { return parts_->token; }
std::size_t Dashboard::streams() const { return parts_->transport.streams(); }
const StorePool& Dashboard::pool() const { return parts_->pool; }

std::string Dashboard::url() const {
  const std::string base = fmt::format("http://{}:{}/", host_in_url(parts_->host), port());
  return token().empty() ? base : base + "?token=" + token();
}

}  // namespace quaver
