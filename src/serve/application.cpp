#include "serve/application.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "serve/assets.h"
#include "serve/endpoints.h"
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
    if (kind == "localization" || kind == "calibration" || kind == "ranks") return target(Route::document, kind);
  }
  return std::nullopt;
}

bool is_change(Route route) { return route == Route::edit || route == Route::removal; }

Response asset_response(const Request& request) {
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
  Response response = error_response(405, "this method is not allowed here", "use " + std::string(method));
  response.headers.emplace_back("Allow", method == "GET" ? "GET, HEAD" : method);
  return response;
}

// A page of another site can post forms and plain text without a CORS preflight, but not JSON.
std::optional<Response> check_content_type(const Request& request) {
  std::string_view type = request.header("content-type").value_or("");
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  if (type == "application/json") return std::nullopt;
  return error_response(415, "the body is not JSON", "send it with Content-Type: application/json");
}

Response event_stream() {
  Response response;
  response.kind = Body::events;
  response.content_type = "text/event-stream; charset=utf-8";
  return response;
}

Response no_content() {
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

Application::Application(RequestGuard guard, StorePool& pool, std::string change_token, Hooks hooks)
    : guard_(std::move(guard)), pool_(pool), change_token_(std::move(change_token)), hooks_(std::move(hooks)) {}

std::optional<Response> Application::respond_to_head(const Request& head) const {
  if (auto refused = guard_.check(head)) return refused;
  const auto target = find_target(head.path);
  if (!target) return error_response(404, "there is nothing at this address", "begin at /");
  if (auto refused = check_method(*target, head)) return refused;
  switch (target->route) {
    case Route::asset:
      return asset_response(head);
    case Route::stream:
      return event_stream();
    case Route::server:
      return server_response();
    case Route::edit:
    case Route::removal:
      return check_change(head);
    default:
      return std::nullopt;
  }
}

Response Application::respond(const Request& request) const {
  try {
    if (auto response = respond_to_head(request)) return *std::move(response);
    return respond_from_stores(*find_target(request.path), request);
  } catch (const BadParameter& error) {
    return error_response(400, error.what(), error.remedy());
  } catch (const NoSuchRecord& error) {
    return error_response(404, error.what(), error.remedy());
  } catch (const EditConflict& error) {
    return error_response(409, error.what(), error.remedy());
  } catch (const Error& error) {
    if (hooks_.failed) hooks_.failed(error.what());
    return error_response(503, pool_.without_folders(error.what()), pool_.without_folders(error.remedy()));
  } catch (const std::exception& error) {
    if (hooks_.failed) hooks_.failed(error.what());
    return error_response(500, "internal error of the dashboard", "its terminal shows the cause");
  }
}

// A second line of defense behind RequestGuard: for another site's page a custom header needs a CORS preflight, and
// only this server's page can read the token.
std::optional<Response> Application::check_change(const Request& head) const {
  if (change_token_.empty()) {
    return error_response(403, "this dashboard is read-only",
                          "start it without --read-only; on addresses beyond loopback, with --allow-changes");
  }
  if (auto refused = check_content_type(head)) return refused;
  if (equal_in_constant_time(head.header(change_token_header).value_or(""), change_token_)) return std::nullopt;
  return error_response(
      403, "the request does not carry the token for changes",
      "reload the page; programs find it as change_token in /api/server and send it as X-Quaver-Token");
}

Response Application::server_response() const {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::weakly_canonical(pool_.folder(), ignored);
  const nlohmann::json body{{"version", QUAVER_VERSION},
                            {"store", pool_.all().front().handle->file_name()},
                            {"folder", folder.filename().string()},
                            {"depth", pool_.depth()},
                            {"streams", hooks_.open_streams ? hooks_.open_streams() : 0},
                            {"token_required", guard_.token_required()},
                            {"change_token", change_token_.empty() ? nlohmann::json() : nlohmann::json(change_token_)}};
  return json_response(json_text(body));
}

Response Application::respond_from_stores(const Target& target, const Request& request) const {
  if (target.route == Route::runs) return json_response(runs_body(pool_));
  if (target.route == Route::all_alerts) return json_response(all_alerts_body(pool_));
  return respond_for_run(target, request);
}

Response Application::respond_for_run(const Target& target, const Request& request) const {
  const auto place = pool_.with_suffix(target.store);
  if (!place) return error_response(404, "there is no such store here", "choose a run from the list");
  const std::shared_ptr<StoreReader> store = place->handle->reader();
  if (store == nullptr) {  // not an error: before the first run there is no store
    return error_response(404, "there is no such run: nothing has been recorded here yet",
                          "start one with `quaver train`");
  }
  const Query query(request.query);
  switch (target.route) {
    case Route::run:
      return json_response(run_body(pool_, *place, *store, target.run));
    case Route::metrics:
      return json_response(metrics_body(*store, target.run, query));
    case Route::numerics:
      return bytes_response(numerics_body(*store, target.run, query));
    case Route::history:
      return json_response(history_body(*store, target.run, query));
    case Route::histogram:
      return json_response(histogram_body(*store, target.run, query));
    case Route::changes:
      return json_response(changes_body(*store, target.run));
    case Route::alerts:
      return json_response(alerts_body(*place, *store, target.run));
    case Route::events:
      return json_response(events_body(*store, target.run));
    case Route::samples:
      return json_response(samples_body(*store, target.run));
    case Route::document:
      return json_response(document_body(*store, target.run, target.document));
    case Route::edit:
      edit_run(store->path(), target.run, edit_in(request.body));
      return no_content();
    case Route::removal:
      remove_run(store->path(), target.run);
      return no_content();
    default:
      break;  // respond_to_head has handled these
  }
  return error_response(404, "there is nothing at this address", "begin at /");
}

}  // namespace quaver
