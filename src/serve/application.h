// Routes requests to responses. A function of the request and the stores: no sockets here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "serve/request.h"
#include "serve/request_guard.h"
#include "serve/response.h"
#include "serve/store_pool.h"

namespace quaver {

enum class Route : std::uint8_t {
  asset,
  stream,
  server,
  runs,
  all_alerts,
  run,
  metrics,
  numerics,
  history,
  histogram,
  changes,
  alerts,
  events,
  samples,
  document,
  edit,
  removal
};

struct Target {
  Route route = Route::asset;
  std::string run;       // the run's id, [A-Za-z0-9_-]{1,64}; empty for routes that are not of a run
  std::string store;     // the suffix of its store: empty, or "~" and eight hexadecimal digits
  std::string document;  // the kind of document
};

// None for a path that does not exist. Total.
std::optional<Target> find_target(std::string_view path);

class Application {
 public:
  struct Hooks {
    std::function<std::size_t()> open_streams;
    std::function<void(const std::string& what)> failed;  // called for errors of the server, 5xx
  };

  // The pool outlives the application. Requests that change runs must carry the change token, which the page reads from
  // /api/server; with an empty one the dashboard is read-only.
  Application(RequestGuard guard, StorePool& pool, std::string change_token, Hooks hooks);

  // The response where the head decides it without reading the store: errors, the page, event streams.
  std::optional<Response> respond_to_head(const Request& head) const;

  // The response to any request. Never throws.
  Response respond(const Request& request) const;

 private:
  Response respond_from_stores(const Target& target, const Request& request) const;
  Response respond_for_run(const Target& target, const Request& request) const;
  Response server_response() const;
  std::optional<Response> check_change(const Request& head) const;

  RequestGuard guard_;
  StorePool& pool_;
  std::string change_token_;
  Hooks hooks_;
};

}  // namespace quaver
