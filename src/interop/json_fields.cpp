#include "interop/json_fields.h"

#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "quaver/error.h"

namespace quaver {

using nlohmann::json;

namespace {

constexpr const char* download_again = "copy or download the folder again";

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::size_t longest = 120;
  std::string shown;
  for (const char c : text.substr(0, longest)) shown += c >= 0x20 && c < 0x7F ? c : '?';
  return text.size() > longest ? shown + "..." : shown;
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

json parse_object(std::string_view text, std::string_view source) {
  constexpr int deepest = 16;
  const auto refuse_deep = [&](int depth, json::parse_event_t, const json&) {
    if (depth > deepest) throw Error(fmt::format("{}: it is nested too deep", source), download_again);
    return true;
  };
  json read;
  try {
    read = json::parse(text, refuse_deep);
  } catch (const json::parse_error& error) {
    throw Error(fmt::format("{}: not valid JSON at byte {}", source, error.byte), download_again);
  } catch (const json::exception&) {  // such as a number beyond all bounds
    throw Error(fmt::format("{}: not valid JSON", source), download_again);
  }
  if (!read.is_object()) throw Error(fmt::format("{}: not a JSON object", source), download_again);
  return read;
}

const json* Fields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool Fields::is_null(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && found->is_null();
}

void Fields::missing(const char* key) const {
  throw Error(fmt::format("{}: \"{}\" is missing", source_, key), "use the config.json of a complete model folder");
}

void Fields::wrong(const char* key, const std::string& expected) const {
  const json* value = find(key);
  const std::string found =
      value == nullptr ? "null" : printable(value->dump(-1, ' ', true, json::error_handler_t::replace));
  throw Error(fmt::format("{}: \"{}\" is {}, expected {}", source_, key, found, expected), download_again);
}

Size Fields::integer(const char* key, Size most, std::optional<Size> otherwise) const {
  const json* value = find(key);
  if (value == nullptr && !otherwise) missing(key);
  if (value == nullptr) return *otherwise;
  const bool fits = value->is_number_unsigned() && value->get<std::uint64_t>() >= 1 &&
                    value->get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  if (!fits) wrong(key, fmt::format("an integer from 1 to {}", most));
  return value->get<Size>();
}

double Fields::number(const char* key, double least, double most, std::optional<double> otherwise) const {
  const json* value = find(key);
  if (value == nullptr && !otherwise) missing(key);
  if (value == nullptr) return *otherwise;
  const double read = value->is_number() ? value->get<double>() : std::nan("");
  if (!(read >= least && read <= most)) wrong(key, fmt::format("a number from {} to {}", least, most));
  return read;
}

bool Fields::boolean(const char* key, bool otherwise) const {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) wrong(key, "true or false");
  return value->get<bool>();
}

std::string Fields::text(const char* key, std::optional<std::string> otherwise) const {
  const json* value = find(key);
  if (value == nullptr && !otherwise) missing(key);
  if (value == nullptr) return *otherwise;
  if (!value->is_string()) wrong(key, "text");
  return value->get<std::string>();
}

}  // namespace quaver
