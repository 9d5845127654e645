// libFuzzer target: what a client may send to the dashboard, up to the store. Every input is a request or is rejected
// with a status; a request contains only bytes that were sent, and no control characters.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "serve/application.h"
#include "serve/endpoints.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quaver;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  static StorePool pool("/nonexistent/quaver.db");
  static const Application application(RequestGuard("127.0.0.1", 8265, "secret"), pool, "token", {});
  const auto length = head_length(input);
  const auto parsed = parse_head(input.substr(0, length.value_or(size)));
  if (const BadRequest* bad = std::get_if<BadRequest>(&parsed)) {
    if (bad->status < 400 || bad->status > 505 || bad->what.empty()) std::abort();
    return 0;
  }
  Request request = std::get<Request>(parsed);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\t'; };
  for (const std::string* text : {&request.method, &request.path, &request.query}) {
    if (input.find(*text) == std::string_view::npos || std::any_of(text->begin(), text->end(), is_control)) {
      std::abort();
    }
  }
  for (const auto& [name, value] : request.headers) {
    if (std::any_of(value.begin(), value.end(), is_control)) std::abort();
  }
  request.body = input.substr(*length);
  const Response response = application.respond(request);
  if (response.status < 200 || response.status > 505) std::abort();
  const std::string head = head_of(response, KeepAlive::no);
  if (head.find("\r\n\r\n") + 4 != head.size()) std::abort();  // a head ends once
  try {
    const Query query(request.query);
    query.number("points", 1, 0, 100);
    const RunEdit edit = edit_in(request.body);
    for (const std::string& tag : edit.tags.value_or(std::vector<std::string>())) {
      if (tag.empty() || tag.size() > 256) std::abort();
    }
    const std::string name = edit.name.value_or("");
    if (std::any_of(name.begin(), name.end(), is_control) || name.size() > 512) std::abort();
  } catch (const BadParameter&) {
  }
  return 0;
}
