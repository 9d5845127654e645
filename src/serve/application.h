// Which request gets which answer. No sockets here: a request goes in, an answer comes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "serve/doorkeeper.h"
#include "serve/request.h"
#include "serve/response.h"
#include "serve/stores.h"

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
  std::string run;       // where the route is of a run: its id, of [A-Za-z0-9_-]{1,64}
  std::string store;     // and the suffix of its store: empty, or "~" and eight digits
  std::string document;  // its kind
};

// None for a path that does not exist. Total.
std::optional<Target> find_target(std::string_view path);

class Application {
 public:
  struct Outside {
    std::function<std::size_t()> open_streams;
    std::function<void(const std::string& what)> failed;  // an answer failed for a reason of the server's own
  };

  // The stores outlive the application. Requests that change something have to bring the token, which the page is told;
  // without one nothing can be changed.
  Application(Doorkeeper keeper, Stores& stores, std::string change_token, Outside outside);

  // The answer that takes no look into the store, if there is one: refusals, the page, the beginning of a stream. Needs
  // the head alone.
  std::optional<Response> at_once(const Request& head) const;

  // The answer to any request. Never throws.
  Response answer(const Request& request) const;

 private:
  Response answer_from_stores(const Target& target, const Request& request) const;
  Response answer_of_run(const Target& target, const Request& request) const;
  Response answer_server() const;
  std::optional<Response> check_change(const Request& head) const;

  Doorkeeper doorkeeper_;
  Stores& stores_;
  std::string change_token_;
  Outside outside_;
};

}  // namespace quaver
