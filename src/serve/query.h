// The part of an address behind the '?': names and values, percent-decoded. Values are checked where they are read:
// whatever a query holds, it gives a value within the stated bounds or a refusal that names the parameter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quaver/error.h"

namespace quaver {

// The request makes no sense as it was sent.
class BadParameter : public Error {
 public:
  using Error::Error;
};

class Query {
 public:
  // Total. Of a name that occurs twice the first counts; parameters beyond the 64th are left out.
  explicit Query(std::string_view text);

  // Lives as long as the query does.
  std::optional<std::string_view> text(std::string_view name) const&;
  void text(std::string_view name) const&& = delete;

  // A whole number within [least, most]; the fallback where the parameter is absent. BadParameter otherwise.
  std::uint64_t number(std::string_view name, std::uint64_t fallback, std::uint64_t least, std::uint64_t most) const;

  // Comma-separated, empty parts left out, at most `most` of them; none where the parameter is absent.
  std::vector<std::string> list(std::string_view name, std::size_t most) const;

 private:
  std::vector<std::pair<std::string, std::string>> pairs_;
};

// A name that the query has to give: 1 to 256 bytes of text without controls. BadParameter otherwise.
std::string name_in(const Query& query, std::string_view name);

// %41 and + decoded; an escape that is none is kept as it is written.
std::string percent_decoded(std::string_view text);

// Whether the bytes are UTF-8 (RFC 3629) without control characters: what a name in the store may be.
bool is_clean_text(std::string_view text);

}  // namespace quaver
