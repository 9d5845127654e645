// The query string of a request target: names and values, percent-decoded. Values are validated where they are read: a
// value is within the stated bounds, or BadParameter names the parameter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quaver/error.h"

namespace quaver {

// An invalid or missing parameter: the response is 400.
class BadParameter : public Error {
 public:
  using Error::Error;
};

class Query {
 public:
  // Accepts any text. The first of a repeated name counts; parameters beyond the 64th are ignored.
  explicit Query(std::string_view text);

  // Lives as long as the query does.
  std::optional<std::string_view> text(std::string_view name) const&;
  void text(std::string_view name) const&& = delete;

  // A whole number within [least, most]; the fallback where the parameter is absent. BadParameter otherwise.
  std::uint64_t number(std::string_view name, std::uint64_t fallback, std::uint64_t least, std::uint64_t most) const;

  // Comma-separated, without empty parts, at most `most` of them; none where the parameter is absent.
  std::vector<std::string> list(std::string_view name, std::size_t most) const;

 private:
  std::vector<std::pair<std::string, std::string>> pairs_;
};

// A required name: 1 to 256 bytes of text without control characters. BadParameter otherwise.
std::string name_in(const Query& query, std::string_view name);

// %41 and + decoded; an invalid escape is kept as it is.
std::string percent_decoded(std::string_view text);

// Whether the bytes are UTF-8 (RFC 3629) without control characters, as names in the store are.
bool is_clean_text(std::string_view text);

}  // namespace quaver
