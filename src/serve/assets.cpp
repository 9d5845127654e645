#include "serve/assets.h"

#include <array>
#include <fmt/format.h>

#include "io/file_io.h"

// Defined by cmake/embed.cmake.
extern "C" {
[[gnu::visibility("hidden")]] extern const char quaver_page_index_html_begin[];
[[gnu::visibility("hidden")]] extern const char quaver_page_index_html_end[];
[[gnu::visibility("hidden")]] extern const char quaver_page_app_js_begin[];
[[gnu::visibility("hidden")]] extern const char quaver_page_app_js_end[];
[[gnu::visibility("hidden")]] extern const char quaver_page_app_css_begin[];
[[gnu::visibility("hidden")]] extern const char quaver_page_app_css_end[];
}

namespace quaver {

namespace {

Asset make_asset(std::string_view content_type, const char* begin, const char* end) {
  const std::string_view bytes(begin, static_cast<std::size_t>(end - begin));
  const std::uint32_t sum = crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
  return {content_type, bytes, fmt::format("\"{:08x}-{:x}\"", sum, bytes.size())};
}

}  // namespace

const Asset* find_asset(std::string_view path) {
  static const Asset page =
      make_asset("text/html; charset=utf-8", quaver_page_index_html_begin, quaver_page_index_html_end);
  static const Asset script =
      make_asset("text/javascript; charset=utf-8", quaver_page_app_js_begin, quaver_page_app_js_end);
  static const Asset style = make_asset("text/css; charset=utf-8", quaver_page_app_css_begin, quaver_page_app_css_end);
  if (path == "/") return &page;
  if (path == "/app.js") return &script;
  if (path == "/app.css") return &style;
  return nullptr;
}

}  // namespace quaver
