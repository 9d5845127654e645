#include "serve/application.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "serve/answers.h"
#include "serve/assets.h"
#include "serve/json_text.h"

namespace quaver {

namespace {

struct PartOfRun {
  std::string_view name;
  Route route;
};
constexpr PartOfRun parts_of_run[] = {{"metrics", Route::metrics}, {"numerics", Route::numerics},
                                      {"history", Route::history}, {"histogram", Route::histogram},
                                      {"changes", Route::changes}, {"alerts", Route::alerts},
                                      {"events", Route::events},   {"samples", Route::samples},
                                      {"edit", Route::edit},       {"removal", Route::removal}};

constexpr std::string_view run_prefix = "/api/runs/";
constexpr std::string_view document_prefix = "documents/";
constexpr std::string_view change_token_header = "x-quaver-token";

bool is_run_id(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

bool is_store_suffix(std::string_view text) {
  return text.empty() || (text.size() == 9 && text.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos);
}

std::optional<Target> find_part_of_run(std::string_view rest) {
  const std::size_t slash = rest.find('/');
  const std::string_view address = rest.substr(0, slash);
  const std::string_view run = address.substr(0, address.find('~'));
  const std::string_view store = address.substr(run.size());
  if (!is_run_id(run) || !is_store_suffix(store)) return std::nullopt;
  const auto target = [&](Route route, std::string_view document = "") {
    return Target{route, std::string(run), std::string(store), std::string(document)};
  };
  if (slash == std::string_view::npos) return target(Route::run);
  const std::string_view part = rest.substr(slash + 1);
  for (const auto& [name, route] : parts_of_run) {
    if (part == name) return target(route);
  }
  if (part.starts_with(document_prefix)) {
    const std::string_view kind = part.substr(document_prefix.size());
    if (kind == "localization" || kind == "calibration") return target(Route::document, kind);
  }
  return std::nullopt;
}

bool is_change(Route route) { return route == Route::edit || route == Route::removal; }

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
  const std::string_view method = is_change(target.route) ? "POST" : "GET";
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

Response done() {
  Response response;
  response.status = 204;
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
  if (find_asset(path) != nullptr) return Target{Route::asset, "", "", ""};
  if (path == "/api/events") return Target{Route::stream, "", "", ""};
  if (path == "/api/server") return Target{Route::server, "", "", ""};
  if (path == "/api/runs") return Target{Route::runs, "", "", ""};
  if (path == "/api/alerts") return Target{Route::all_alerts, "", "", ""};
  if (path.starts_with(run_prefix)) return find_part_of_run(path.substr(run_prefix.size()));
  return std::nullopt;
}

Application::Application(Doorkeeper keeper, Stores& stores, std::string change_token, Outside outside)
    : doorkeeper_(std::move(keeper)),
      stores_(stores),
      change_token_(std::move(change_token)),
      outside_(std::move(outside)) {}

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
    case Route::edit:
    case Route::removal:
      return check_change(head);
    default:
      return std::nullopt;
  }
}

Response Application::answer(const Request& request) const {
  try {
    if (auto answered = at_once(request)) return *std::move(answered);
    return answer_from_stores(*find_target(request.path), request);
  } catch (const BadParameter& error) {
    return refusal(400, error.what(), error.remedy());
  } catch (const NoSuchRecord& error) {
    return refusal(404, error.what(), error.remedy());
  } catch (const EditConflict& error) {
    return refusal(409, error.what(), error.remedy());
  } catch (const Error& error) {
    if (outside_.failed) outside_.failed(error.what());
    return refusal(503, stores_.without_folders(error.what()), stores_.without_folders(error.remedy()));
  } catch (const std::exception& error) {
    if (outside_.failed) outside_.failed(error.what());
    return refusal(500, "the dashboard failed to answer", "its terminal says why");
  }
}

// Pages of other sites are refused before this (Doorkeeper). A header of its own is more: a browser asks before it
// sends one for another site, and the token in it is known to this server's page alone.
std::optional<Response> Application::check_change(const Request& head) const {
  if (change_token_.empty()) {
    return refusal(403, "this dashboard was started without changes",
                   "start it without --read-only; beyond this machine, with --allow-changes");
  }
  if (auto refused = check_content_type(head)) return refused;
  if (equal_in_constant_time(head.header(change_token_header).value_or(""), change_token_)) return std::nullopt;
  return refusal(403, "the request does not bring the token for changes",
                 "reload the page; programs find it as change_token in /api/server and send it as X-Quaver-Token");
}

Response Application::answer_server() const {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::weakly_canonical(stores_.folder(), ignored);
  const nlohmann::json answer{
      {"version", QUAVER_VERSION},
      {"store", stores_.all().front().door->file_name()},
      {"folder", folder.filename().string()},
      {"depth", stores_.depth()},
      {"streams", outside_.open_streams ? outside_.open_streams() : 0},
      {"token_required", doorkeeper_.token_required()},
      {"change_token", change_token_.empty() ? nlohmann::json() : nlohmann::json(change_token_)}};
  return json_response(json_text(answer));
}

Response Application::answer_from_stores(const Target& target, const Request& request) const {
  if (target.route == Route::runs) return json_response(runs_answer(stores_));
  if (target.route == Route::all_alerts) return json_response(all_alerts_answer(stores_));
  return answer_of_run(target, request);
}

Response Application::answer_of_run(const Target& target, const Request& request) const {
  const auto place = stores_.with_suffix(target.store);
  if (!place) return refusal(404, "there is no such store here", "choose a run from the list");
  const std::shared_ptr<StoreReader> store = place->door->reader();
  if (store == nullptr) {  // before the first run there is no store, and that is no fault
    return refusal(404, "there is no such run: nothing has been recorded here yet", "start one with `quaver train`");
  }
  const Query query(request.query);
  switch (target.route) {
    case Route::run:
      return json_response(run_answer(stores_, *place, *store, target.run));
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
      return json_response(alerts_answer(*place, *store, target.run));
    case Route::events:
      return json_response(events_answer(*store, target.run));
    case Route::samples:
      return json_response(samples_answer(*store, target.run));
    case Route::document:
      return json_response(document_answer(*store, target.run, target.document));
    case Route::edit:
      edit_run(store->path(), target.run, edit_in(request.body));
      return done();
    case Route::removal:
      remove_run(store->path(), target.run);
      return done();
    default:
      break;  // answered before
  }
  return refusal(404, "there is nothing at this address", "begin at /");
}

}  // namespace quaver
