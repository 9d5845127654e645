#include "serve/query.h"

#include <charconv>
#include <fmt/format.h>

#include "io/utf8.h"

namespace quaver {

namespace {

constexpr std::size_t max_parameters = 64;
constexpr std::size_t longest_name = 256;  // bytes

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

template <class Use>
void split(std::string_view text, char separator, Use&& use) {
  while (true) {
    const std::size_t end = text.find(separator);
    use(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string percent_decoded(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escape =
        text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0;
    if (is_escape) {
      result += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      result += text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

bool is_clean_text(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text, i);
    const bool is_control = point.value < 0x20 || (point.value >= 0x7f && point.value < 0xa0);
    if (!point.valid || is_control) return false;
    i += static_cast<std::size_t>(point.bytes);
  }
  return true;
}

Query::Query(std::string_view text) {
  split(text, '&', [&](std::string_view part) {
    if (part.empty() || pairs_.size() == max_parameters) return;
    const std::size_t mark = part.find('=');
    const std::string_view value = mark == std::string_view::npos ? std::string_view() : part.substr(mark + 1);
    pairs_.emplace_back(percent_decoded(part.substr(0, mark)), percent_decoded(value));
  });
}

std::optional<std::string_view> Query::text(std::string_view name) const& {
  for (const auto& [key, value] : pairs_) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::uint64_t Query::number(std::string_view name, std::uint64_t fallback, std::uint64_t least,
                            std::uint64_t most) const {
  const auto value = text(name);
  if (!value) return fallback;
  std::uint64_t result = 0;
  const char* const last = value->data() + value->size();
  const auto [end, failure] = std::from_chars(value->data(), last, result);
  if (failure != std::errc() || end != last || result < least || result > most) {
    throw BadParameter(fmt::format("the parameter {} is not an integer within its bounds", name),
                       fmt::format("give one from {} to {}", least, most));
  }
  return result;
}

std::string name_in(const Query& query, std::string_view name) {
  const auto value = query.text(name);
  if (!value || value->empty()) {
    throw BadParameter(fmt::format("the parameter {} is missing", name), fmt::format("add {}=… to the address", name));
  }
  if (value->size() > longest_name || !is_clean_text(*value)) {
    throw BadParameter(fmt::format("the parameter {} is not a valid name", name),
                       "give a name that /api/runs/ID lists");
  }
  return std::string(*value);
}

std::vector<std::string> Query::list(std::string_view name, std::size_t most) const {
  std::vector<std::string> result;
  if (const auto value = text(name)) {
    split(*value, ',', [&](std::string_view part) {
      if (!part.empty() && result.size() < most) result.emplace_back(part);
    });
  }
  return result;
}

}  // namespace quaver
