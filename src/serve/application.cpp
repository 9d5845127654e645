#include "serve/application.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "serve/answers.h"
#include "serve/assets.h"
#include "serve/json_text.h"
#include "store/run_edits.h"

namespace quaver {

namespace {

struct PartOfRun {
  std::string_view name;
  Route route;
};
constexpr PartOfRun parts_of_run[] = {
    {"metrics", Route::metrics},     {"numerics", Route::numerics}, {"history", Route::history},
    {"histogram", Route::histogram}, {"changes", Route::changes},   {"alerts", Route::alerts},
    {"events", Route::events},       {"samples", Route::samples},   {"tags", Route::tags}};

constexpr std::string_view run_prefix = "/api/runs/";
constexpr std::string_view document_prefix = "documents/";

bool is_run_id(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::optional<Target> find_part_of_run(std::string_view rest) {
  const std::size_t slash = rest.find('/');
  const std::string_view run = rest.substr(0, slash);
  if (!is_run_id(run)) return std::nullopt;
  if (slash == std::string_view::npos) return Target{Route::run, std::string(run), ""};
  const std::string_view part = rest.substr(slash + 1);
  for (const auto& [name, route] : parts_of_run) {
    if (part == name) return Target{route, std::string(run), ""};
  }
  if (part.starts_with(document_prefix)) {
    const std::string_view kind = part.substr(document_prefix.size());
    if (kind == "localization" || kind == "calibration") {
      return Target{Route::document, std::string(run), std::string(kind)};
    }
  }
  return std::nullopt;
}

Response answer_asset(const Request& request) {
  const Asset& asset = *find_asset(request.path);
  Response response;
  response.headers = {{"ETag", asset.tag}, {"Cache-Control", "no-cache"}};
  if (request.header("if-none-match") == asset.tag) {
    response.status = 304;
    return response;
  }
  response.content_type = asset.content_type;
  response.fixed = asset.bytes;
  return response;
}

std::optional<Response> check_method(const Target& target, const Request& request) {
  const std::string_view method = target.route == Route::tags ? "POST" : "GET";
  if (request.method == method || (method == "GET" && request.method == "HEAD")) return std::nullopt;
  Response response = refusal(405, "this address is not for that method", "use " + std::string(method));
  response.headers.emplace_back("Allow", method == "GET" ? "GET, HEAD" : method);
  return response;
}

// A page of another site can post forms and plain text without asking first, but not JSON.
std::optional<Response> check_content_type(const Request& request) {
  std::string_view type = request.header("content-type").value_or("");
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  if (type == "application/json") return std::nullopt;
  return refusal(415, "the body is not JSON", "send it with Content-Type: application/json");
}

Response begin_stream() {
  Response response;
  response.kind = Body::events;
  response.content_type = "text/event-stream; charset=utf-8";
  return response;
}

Response bytes_response(std::string bytes) {
  Response response;
  response.content_type = "application/octet-stream";
  response.body = std::move(bytes);
  return response;
}

}  // namespace

std::optional<Target> find_target(std::string_view path) {
  if (find_asset(path) != nullptr) return Target{Route::asset, "", ""};
  if (path == "/api/events") return Target{Route::stream, "", ""};
  if (path == "/api/server") return Target{Route::server, "", ""};
  if (path == "/api/runs") return Target{Route::runs, "", ""};
  if (path == "/api/alerts") return Target{Route::all_alerts, "", ""};
  if (path.starts_with(run_prefix)) return find_part_of_run(path.substr(run_prefix.size()));
  return std::nullopt;
}

Application::Application(Doorkeeper keeper, StoreDoor& door, Outside outside)
    : doorkeeper_(std::move(keeper)), door_(door), outside_(std::move(outside)) {}

std::optional<Response> Application::at_once(const Request& head) const {
  if (auto refused = doorkeeper_.check(head)) return refused;
  const auto target = find_target(head.path);
  if (!target) return refusal(404, "there is nothing at this address", "begin at /");
  if (auto refused = check_method(*target, head)) return refused;
  switch (target->route) {
    case Route::asset:
      return answer_asset(head);
    case Route::stream:
      return begin_stream();
    case Route::server:
      return answer_server();
    case Route::tags:
      return check_content_type(head);
    default:
      return std::nullopt;
  }
}

Response Application::answer(const Request& request) const {
  try {
    if (auto answered = at_once(request)) return *std::move(answered);
    return answer_from_store(*find_target(request.path), request);
  } catch (const BadParameter& error) {
    return refusal(400, error.what(), error.remedy());
  } catch (const NoSuchRecord& error) {
    return refusal(404, error.what(), error.remedy());
  } catch (const Error& error) {
    if (outside_.failed) outside_.failed(error.what());
    return refusal(503, door_.without_folders(error.what()), door_.without_folders(error.remedy()));
  } catch (const std::exception& error) {
    if (outside_.failed) outside_.failed(error.what());
    return refusal(500, "the dashboard failed to answer", "its terminal says why");
  }
}

Response Application::answer_server() const {
  const nlohmann::json answer{{"version", QUAVER_VERSION},
                              {"store", door_.file_name()},
                              {"streams", outside_.open_streams ? outside_.open_streams() : 0},
                              {"token_required", doorkeeper_.token_required()}};
  return json_response(json_text(answer));
}

// Before the first run there is no store, and that is no fault.
Response Application::answer_without_store(const Target& target) const {
  if (target.route == Route::runs) return json_response(R"({"runs":[]})");
  if (target.route == Route::all_alerts) return json_response(R"({"alerts":[]})");
  return refusal(404, "there is no such run: nothing has been recorded here yet", "start one with `quaver train`");
}

Response Application::answer_from_store(const Target& target, const Request& request) const {
  const std::shared_ptr<StoreReader> store = door_.reader();
  if (store == nullptr) return answer_without_store(target);
  const Query query(request.query);
  switch (target.route) {
    case Route::runs:
      return json_response(runs_answer(*store));
    case Route::all_alerts:
      return json_response(all_alerts_answer(*store));
    case Route::run:
      return json_response(run_answer(*store, target.run));
    case Route::metrics:
      return json_response(metrics_answer(*store, target.run, query));
    case Route::numerics:
      return bytes_response(numerics_answer(*store, target.run, query));
    case Route::history:
      return json_response(history_answer(*store, target.run, query));
    case Route::histogram:
      return json_response(histogram_answer(*store, target.run, query));
    case Route::changes:
      return json_response(changes_answer(*store, target.run));
    case Route::alerts:
      return json_response(alerts_answer(*store, target.run));
    case Route::events:
      return json_response(events_answer(*store, target.run));
    case Route::samples:
      return json_response(samples_answer(*store, target.run));
    case Route::document:
      return json_response(document_answer(*store, target.run, target.document));
    case Route::tags: {
      edit_run(store->path(), target.run, {.tags = tags_in(request.body)});
      Response done;
      done.status = 204;
      return done;
    }
    case Route::asset:
    case Route::stream:
    case Route::server:
      break;  // answered at once
  }
  return refusal(404, "there is nothing at this address", "begin at /");
}

}  // namespace quaver
