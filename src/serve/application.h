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
#include "serve/store_door.h"

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
  tags
};

struct Target {
  Route route = Route::asset;
  std::string run;       // where the route is of a run: its id, of [A-Za-z0-9_-]{1,64}
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

  // The door outlives the application.
  Application(Doorkeeper keeper, StoreDoor& door, Outside outside);

  // The answer that takes no look into the store, if there is one: refusals, the page, the beginning of a stream. Needs
  // the head alone.
  std::optional<Response> at_once(const Request& head) const;

  // The answer to any request. Never throws.
  Response answer(const Request& request) const;

 private:
  Response answer_from_store(const Target& target, const Request& request) const;
  Response answer_without_store(const Target& target) const;
  Response answer_server() const;

  Doorkeeper doorkeeper_;
  StoreDoor& door_;
  Outside outside_;
};

}  // namespace quaver
